"""Filters that slide over time windows: the fast forms equal their definitions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import trellis
from trellis import TrellisError, skeleton
from trellis.report.gcn_paths import dense_multiplications, messages_of, multiplications, weights_of
from trellis.skeleton import GCN, Layout, Recognizer
from trellis.skeleton.data.preparation import Channels, Normalization, cosines
from trellis.skeleton.model.gcn_stacks import Narrow, StackSelector

WINDOWS, SIZE, WHOLE = 3, 2, 4
ARM = Layout("arm", ("shoulder", "elbow", "hand"), parents=(-1, 0, 1), roots=(0,))


def network(seed: int = 0, activation: str = "abs", **sizes: int) -> GCN:
    torch.manual_seed(seed)
    own: dict[str, Any] = {"nodes": 4, "classes": 3, "heads": 2, "filters": 5} | sizes
    return GCN(
        channels=WINDOWS * SIZE + WHOLE, windows=WINDOWS, per_window=SIZE, activation=activation,
        **own,
    )  # fmt: skip


def literal(model: GCN, x: Tensor) -> Tensor:
    """The definition, one window and head at a time."""
    attention, convolution, dense = (p.detach().double() for p in model.parameters())
    act = torch.abs if model.sizes["activation"] == "abs" else torch.relu
    units = []
    for a, w in zip(attention, convolution, strict=True):
        mixed = torch.einsum("uv,bvc->buc", a, x)
        whole = mixed[..., WINDOWS * SIZE :] @ w[SIZE:]
        values = [
            act(mixed[..., i * SIZE : (i + 1) * SIZE] @ w[:SIZE] + whole) for i in range(WINDOWS)
        ]
        both = torch.stack(values)
        units.append(torch.cat([both.max(0).values, both.mean(0)], -1))  # batch, nodes, 2 filters
    return torch.stack(units, 2).flatten(1) @ dense.T


@pytest.mark.parametrize("activation", ["abs", "relu"])
@pytest.mark.parametrize("seed", range(4))
def test_the_network_equals_its_definition(seed: int, activation: str) -> None:
    model = network(seed, activation).double()
    x = torch.randn(6, 4, WINDOWS * SIZE + WHOLE, dtype=torch.float64)
    torch.testing.assert_close(model(x), literal(model, x))


@pytest.mark.parametrize("activation", ["abs", "relu"])
@pytest.mark.parametrize("still", [(), (0, 1), (0, 1, 2)])  # windows that are equal, and so tie
def test_a_stack_equals_its_networks_with_gradients(
    activation: str, still: tuple[int, ...]
) -> None:
    models = [network(seed, activation).double() for seed in range(2)]
    x = torch.randn(2, 6, 4, WINDOWS * SIZE + WHOLE, dtype=torch.float64)
    for window in still:
        x[..., window * SIZE : (window + 1) * SIZE] = x[..., :SIZE]
    weights = {
        name: torch.stack([dict(m.named_parameters())[name].detach() for m in models])
        for name, _ in models[0].named_parameters()
    }
    for weight in weights.values():
        weight.requires_grad_()
    alone, stacked = x.clone().requires_grad_(), x.clone().requires_grad_()
    found = models[0].stacked(weights, stacked)
    wanted = torch.stack([m(part) for m, part in zip(models, alone, strict=True)])
    torch.testing.assert_close(found, wanted)
    toward = torch.randn_like(wanted)
    found.backward(toward)
    wanted.backward(toward)
    if not still:  # the first of equal windows gets the gradient, or all get their shares
        torch.testing.assert_close(stacked.grad, alone.grad)
    for name, weight in weights.items():
        own = [dict(m.named_parameters())[name].grad for m in models]
        torch.testing.assert_close(weight.grad, torch.stack([g for g in own if g is not None]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("keep", [12, 20, 60])
@pytest.mark.parametrize("method", ["viterbi", "closed", "synflow"])
def test_selecting_in_stacks_is_exact_and_consistent(seed: int, keep: int, method: str) -> None:
    model = network(seed)
    worth = {name: weight.detach().abs()[None] for name, weight in model.named_parameters()}
    everything = {name: torch.ones_like(value, dtype=torch.bool) for name, value in worth.items()}
    masks = StackSelector(model, method)(worth, everything, [keep])
    pruned = copy.deepcopy(model)
    trellis.Masks({name: mask[0] for name, mask in masks.items()}).apply(pruned)
    found = trellis.audit(pruned, model.example())
    assert found.kept == found.live == keep
    assert found.outputs_reached == 3
    if method == "viterbi":
        wanted = trellis.prune(copy.deepcopy(model), model.example(), keep=keep, method=method)
        assert all(torch.equal(wanted[name], masks[name][0]) for name in masks)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("keep", [12, 30])
def test_a_narrow_network_equals_the_masked_one(seed: int, keep: int) -> None:
    model = network(seed)
    masks = trellis.prune(copy.deepcopy(model), model.example(), keep=keep, method="viterbi")
    kept = {name: mask[None] for name, mask in masks.items()}
    weights = {name: (w.detach() * masks[name])[None] for name, w in model.named_parameters()}
    narrow = Narrow.of(model, kept)
    assert narrow is not None
    x = torch.randn(1, 6, 4, WINDOWS * SIZE + WHOLE)
    small = narrow.narrow(weights)
    torch.testing.assert_close(narrow.forward()(small, x), model.stacked(weights, x))
    assert all(torch.equal(narrow.whole(small)[name], weights[name]) for name in weights)
    shapes = [tuple(p.shape) for p in narrow.alike().parameters()]
    assert shapes == [tuple(w.shape[1:]) for w in small.values()]


def test_filters_that_read_no_window_equal_those_of_a_plain_network() -> None:
    model = network()
    with torch.no_grad():
        model.get_parameter("blocks.0.convolution")[:, :SIZE] = 0
    kept = {name: (weight != 0)[None] for name, weight in model.named_parameters()}
    narrow = Narrow.of(model, kept)
    assert narrow is not None
    weights = {name: weight.detach()[None] for name, weight in model.named_parameters()}
    x = torch.randn(1, 6, 4, WINDOWS * SIZE + WHOLE)
    found = narrow.forward()(narrow.narrow(weights), x)
    torch.testing.assert_close(found[0], model(x[0]))


def test_windows_are_cosine_transforms_of_parts() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 16 * 3)).astype(np.float32)
    channels = Channels.of(ARM, ("windows", "coordinates"), "cosines")
    found = channels(x)
    points = x.reshape(2, 3, 16, 3)
    parts = [
        np.einsum("km,nvma->nvka", cosines(4), points[:, :, start : start + 4])
        for start in range(0, 13, 2)
    ]
    wanted = np.concatenate([part.reshape(2, 3, -1) for part in parts], -1)
    assert channels.windows(16) == (7, 12)
    np.testing.assert_allclose(found[..., :84], wanted, atol=1e-5)
    np.testing.assert_allclose(found[..., 84:], Channels.of(ARM, basis="cosines")(x), atol=1e-6)


def recognizer() -> Recognizer:
    channels = Channels.of(ARM, ("windows", "coordinates"), "cosines")
    windows, size = channels.windows(8)
    torch.manual_seed(0)
    model = GCN(
        3, channels.count(8), 2, heads=2, filters=6, activation="abs", windows=windows,
        per_window=size,
    )  # fmt: skip
    return Recognizer(
        model, 8, Normalization((0,), 1.0), ("wave", "point"), ARM, kinds=channels.kinds,
        basis="cosines",
    )  # fmt: skip


def recordings() -> list[skeleton.Frames]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(length, 3, 3)).astype(np.float32) for length in (5, 8, 40)]


def test_saved_and_exported_networks_give_the_same(tmp_path: object) -> None:
    own = recognizer()
    trellis.prune(own.model, own.model.example(), sparsity=0.9, method="viterbi")
    own.save(f"{tmp_path}/model")
    again = Recognizer.load(f"{tmp_path}/model")
    assert again.kinds == own.kinds
    assert again.model.sizes == own.model.sizes
    wanted = own.probabilities(recordings())
    np.testing.assert_array_equal(again.probabilities(recordings()), wanted)
    prepared = torch.from_numpy(own.prepared(recordings()))
    logits = own.network()(prepared)
    torch.testing.assert_close(logits, own.model(torch.from_numpy(own.inputs(recordings()))))
    trellis.export_c(own.network(), prepared[:1], f"{tmp_path}/c")
    found = trellis.Runtime(f"{tmp_path}/c/model.trellis").predict(prepared.numpy())
    np.testing.assert_allclose(found, logits.detach().numpy(), atol=1e-5)


def test_multiplications_are_counted_by_their_uses() -> None:
    model = network()
    full = messages_of(weights_of(model))
    assert multiplications(full) == dense_multiplications(model.sizes)
    nodes, heads, filters, classes = 4, 2, 5, 3
    rows = WINDOWS * SIZE + WHOLE
    wanted = heads * nodes * (nodes * rows + rows * filters) + nodes * heads * 2 * filters * classes
    assert dense_multiplications(model.sizes) == wanted
    trellis.prune(model, model.example(), keep=15, method="viterbi")
    pruned = messages_of(weights_of(model))
    block: Any = model.blocks[0]
    masked = block.attention, block.convolution, model.dense.weight
    attention, convolution, dense = (weight.detach().bool() for weight in masked)
    last = dense.reshape(classes, nodes, heads, 2, filters)
    wanted = int(last.sum())
    for k in range(heads):
        for u in range(nodes):
            for c in range(SIZE + WHOLE):
                uses = WINDOWS if c < SIZE else 1
                read = [
                    f for f in range(filters) if convolution[k, c, f] and last[:, u, k, :, f].any()
                ]
                if read and attention[k, u].any():
                    wanted += uses * (int(attention[k, u].sum()) + len(read))
    assert multiplications(pruned) == wanted


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"windows": 1, "per_window": 2}, "at least 2 windows"),
        ({"windows": 5, "per_window": 2}, "at least 2 windows"),
        ({"windows": 2, "per_window": 0}, "at least 2 windows"),
        ({"windows": 2, "per_window": 2, "bias": True}, "windows need blocks=1"),
        ({"windows": 2, "per_window": 2, "blocks": 2}, "windows need blocks=1"),
        ({"windows": True, "per_window": 2}, "whole number"),
    ],
)
def test_invalid_windows_raise(options: dict[str, int], match: str) -> None:
    with pytest.raises(TrellisError, match=match):
        GCN(nodes=2, channels=8, classes=2, heads=1, filters=1, **options)  # type: ignore[arg-type]


def test_channels_say_what_windows_need() -> None:
    with pytest.raises(TrellisError, match="windows come first"):
        Channels.of(ARM, ("coordinates", "windows"), "cosines")
    with pytest.raises(TrellisError, match="basis 'cosines'"):
        Channels.of(ARM, ("windows", "coordinates"))
    with pytest.raises(TrellisError, match="multiple of 8"):
        Channels.of(ARM, ("windows", "coordinates"), "cosines").count(12)
