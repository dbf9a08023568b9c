"""The graph network: its formula, its size, and that the core understands all its options."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import trellis
from tests.training.networks import CHANNELS, CLASSES, LINE, NODES, OPTIONS, gcn
from trellis.errors import TrellisError
from trellis.skeleton import GCN

WIDE: dict[str, Any] = {"heads": 8, "filters": 32}


def count(model: GCN) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_papers_sizes() -> None:
    assert count(GCN(nodes=21, channels=96, classes=45)) == 2_139_024
    assert count(GCN(nodes=21, channels=96, classes=45, shared=True)) == 1_954_704


def by_hand(model: GCN, x: Tensor) -> Tensor:
    """One recording (nodes, channels) -> (classes,), by the sums of the formula, in scalars."""
    state = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    heads, filters = model.sizes["heads"], model.sizes["filters"]
    signal: list[list[float]] = x.tolist()
    for i in range(model.sizes["blocks"]):
        attention, kernels = state[f"blocks.{i}.attention"], state[f"blocks.{i}.convolution"]
        edges = state.get(f"blocks.{i}.edges")
        parts = [[[0.0] * filters for _ in range(heads)] for _ in signal]
        for u, k, f in itertools.product(range(NODES), range(heads), range(filters)):
            kernel = kernels[0 if model.sizes["shared"] else k]
            for v, c in itertools.product(range(NODES), range(len(signal[0]))):
                edge = attention[k][u][v] * (1 if edges is None else edges[k][u][v])
                parts[u][k][f] += edge * signal[v][c] * kernel[c][f]
        if model.sizes["combine"] == "sum":
            rows = [
                [sum(part[k][f] for k in range(heads)) for f in range(filters)] for part in parts
            ]
        else:
            rows = [[value for head in part for value in head] for part in parts]
        bias = state.get(f"blocks.{i}.bias", [0.0] * len(rows[0]))
        folds = model.sizes["activation"] == "abs"
        units = [[v + b for v, b in zip(row, bias, strict=True)] for row in rows]
        signal = [[abs(v) if folds else max(v, 0) for v in row] for row in units]
    hidden = [value for row in signal for value in row]
    logits = [
        sum(w * unit for w, unit in zip(row, hidden, strict=True)) for row in state["dense.weight"]
    ]
    bias = state.get("dense.bias", [0.0] * len(logits))
    return torch.tensor(logits, dtype=x.dtype) + torch.tensor(bias, dtype=x.dtype)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_formula(name: str) -> None:
    model = gcn(1, heads=2, filters=3, **OPTIONS[name])
    x = torch.randn(2, NODES, CHANNELS, dtype=torch.float64)
    expected = torch.stack([by_hand(model, one) for one in x])
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["viterbi", "chains"])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_traced_audited_and_pruned(name: str, method: str) -> None:
    model = gcn(2, **WIDE, **OPTIONS[name]).float()
    example = torch.zeros(1, NODES, CHANNELS)
    dense = trellis.audit(model, example)
    # Biases are no connections, and where attention is limited most of it is not there.
    assert dense.total == sum(
        p.numel() for n, p in model.named_parameters() if not n.endswith("bias")
    )
    masks = trellis.prune(model, example, sparsity=0.99, method=method)
    found = trellis.audit(model, example)
    assert found.kept == found.live == masks.kept == masks.budget
    assert found.outputs_reached == CLASSES
    if "adjacency" in OPTIONS[name] and OPTIONS[name].get("edges") != "start":
        for block, mask in ((n, m) for n, m in masks.items() if n.endswith("attention")):
            assert not mask[(LINE == 0).expand_as(mask)].any(), block


@pytest.mark.parametrize("method", ["viterbi", "chains"])
def test_the_papers_network_at_99_percent(method: str) -> None:
    torch.manual_seed(0)
    model = GCN(nodes=21, channels=96, classes=45)
    example = torch.zeros(1, 21, 96)
    net = trellis.trace(model, example)
    masks = trellis.prune(net, sparsity=0.99, method=method)
    found = trellis.audit(net)
    assert found.kept == found.live == masks.budget == 21_390
    assert found.outputs_reached == 45


def test_dead_weights_of_magnitude_pruning_change_nothing() -> None:
    """Removing what an audit calls dead leaves every output as it was, options or not."""
    for options in OPTIONS.values():
        model = gcn(3, **(WIDE | {k: v for k, v in options.items() if k != "bias"}))
        example = torch.randn(8, NODES, CHANNELS, dtype=torch.float64)
        trellis.prune(model, example[:1], sparsity=0.97, method="magnitude", scope="layer")
        before = model(example)
        audit = trellis.audit(model, example[:1])
        trellis.Masks(audit.live_masks).apply(model)
        torch.testing.assert_close(model(example), before, rtol=0, atol=1e-12)


def test_attention_starts_at_the_adjacency() -> None:
    model = gcn(0, adjacency=3 * LINE)
    attention = model.get_parameter("blocks.0.attention").detach()
    assert (attention[:, LINE == 0] == 0).all()
    assert float(attention[:, LINE == 1].mean()) == pytest.approx(3, rel=0.1)
    heads = torch.stack([LINE, LINE.T, LINE @ LINE])
    limited = gcn(0, adjacency=heads).get_parameter("blocks.0.attention")
    assert torch.equal(limited != 0, heads != 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes=0 is not a whole number from 1 up"),
        ({"heads": 2.0}, "heads=2.0"),
        ({"blocks": True}, "blocks=True"),
        ({"combine": "mean"}, "combine='mean' is unknown"),
        ({"activation": "gelu"}, "activation='gelu' is unknown: 'relu' or 'abs'"),
        ({"activation": []}, r"activation=\[\] is unknown"),
        ({"adjacency": LINE, "edges": "none"}, "edges='none' is unknown"),
        ({"adjacency": torch.ones(3, 4)}, r"adjacency has the shape \(3, 4\)"),
        ({"adjacency": LINE * torch.nan}, "not finite"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrellisError, match=message):
        GCN(**({"nodes": NODES, "channels": CHANNELS, "classes": CLASSES, "heads": 3} | options))


@pytest.mark.parametrize("blocks", [1, 2])
def test_first_weights_by_fan_in(blocks: int) -> None:
    """Every tensor is normal with the deviation 1 / sqrt(fan-in)."""
    torch.manual_seed(0)
    model = GCN(20, 60, 30, heads=8, filters=40, blocks=blocks, first_weights="fan-in", bias=True)
    fans = {"attention": 20, "convolution": 60, "dense.weight": 20 * 8 * 40}
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            assert not weight.any()
            continue
        fan = fans[name if name in fans else name.rpartition(".")[2]]
        fan = 8 * 40 if name == "blocks.1.convolution" else fan
        z = weight.detach().double() * fan**0.5
        assert z.mean().abs() < 0.05 and abs(z.std() - 1) < 0.05
        assert abs((z**4).mean() - 3) < 0.4  # of a normal distribution; 1.8 of a uniform one
    with pytest.raises(TrellisError, match="first_weights='he' is unknown"):
        GCN(first_weights="he")


def test_usual_first_weights_are_those_of_earlier_releases() -> None:
    """Drawn in this order from one generator, so that a seed means the same network."""
    torch.manual_seed(3)
    model = GCN(5, 6, 4, heads=2, filters=3)
    torch.manual_seed(3)
    attention = torch.randn(2, 5, 5) / 5
    convolution = torch.randn(2, 6, 3) * (2 / 6) ** 0.5
    dense = torch.nn.Linear(5 * 2 * 3, 4, bias=False).weight
    assert torch.equal(model.get_parameter("blocks.0.attention"), attention)
    assert torch.equal(model.get_parameter("blocks.0.convolution"), convolution)
    assert torch.equal(model.dense.weight, dense)
