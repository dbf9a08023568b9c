"""The audit: its table, its words, what it reads, and that it leaves no trace."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune as torch_prune

import trellis
from tests.zoo import ZOO, bare
from tests.zoo.graph import gcn
from tests.zoo.plain import lenet, mlp
from trellis import Audit, Masks, audit


def by_hand() -> nn.Sequential:
    """2 inputs, 3 and 2 hidden units, 2 outputs; x1 is cut off, and so are h2, k1 and y1.

    x0 -> h0 -> k0 -> y0 lives; x0 -> h1 leads nowhere; nothing reaches h2, which feeds k0;
    nothing reaches k1, which feeds y0.
    """
    model = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise((2, 3, 2, 2))))
    rows = (
        [[1, 0], [1, 0], [0, 0]],
        [[1, 0, 1], [0, 0, 0]],
        [[1, 1], [0, 0]],
    )
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), rows, strict=True):
            parameter.copy_(torch.tensor(values, dtype=torch.float32))
    return model


TABLE = """\
layer     shape  connections  kept  accessible  co-accessible  live  dead
-------------------------------------------------------------------------
0.weight  3x2              6     2           2              1     1     1
1.weight  2x3              6     2           1              2     1     1
2.weight  2x2              4     2           1              2     1     1
-------------------------------------------------------------------------
whole                     16     6           4              5     3     3

live: 50 % of what is kept; outputs reached: 1 of 2
- 1 of 2 outputs are reached by no input
- `0.weight`: 50 % of what is kept can reach no output
- `1.weight`: 50 % of what is kept is reached by no input
- `2.weight`: 50 % of what is kept is reached by no input"""


def test_the_table_by_hand() -> None:
    report = audit(by_hand(), torch.zeros(1, 2))
    assert str(report) == TABLE
    assert (report.total, report.kept, report.live, report.dead) == (16, 6, 3, 3)
    assert (report.outputs, report.outputs_reached, report.live_fraction) == (2, 1, 0.5)
    assert [layer.name for layer in report.layers] == ["0.weight", "1.weight", "2.weight"]
    assert report.live_masks["1.weight"].tolist() == [[True, False, False], [False] * 3]


def test_the_numbers_are_json() -> None:
    report = audit(by_hand(), torch.zeros(1, 2))
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert found == report.to_dict()
    assert {k: v for k, v in found.items() if k not in ("layers", "words")} == {
        "total": 16, "kept": 6, "live": 3, "dead": 3, "live_fraction": 0.5,
        "outputs": 2, "outputs_reached": 1,
    }  # fmt: skip
    assert found["words"] == report.words()
    assert found["layers"][0] == {
        "name": "0.weight", "shape": [3, 2], "total": 6, "kept": 2, "accessible": 2,
        "coaccessible": 1, "live": 1, "dead": 1,
    }  # fmt: skip


def weights(model: nn.Module) -> list[tuple[nn.Module, str]]:
    return [(m, "weight") for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]


def test_words_when_all_is_well() -> None:
    model, inputs = mlp()
    assert audit(model, inputs).words() == [
        "every kept connection is on a path from an input to an output"
    ]


def test_words_when_nothing_is_kept() -> None:
    model = by_hand()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    report = audit(model, torch.zeros(1, 2))
    assert report.live_fraction == 0.0 and report.kept == 0 and report.outputs_reached == 0
    assert report.words() == [
        "2 of 2 outputs are reached by no input",
        *(f"`{i}.weight`: nothing is kept" for i in range(3)),
    ]


def test_words_for_a_layer_that_is_cut_off_and_for_one_dead_on_both_sides() -> None:
    model = by_hand()
    with torch.no_grad():
        model.get_parameter("2.weight").zero_()
    words = "\n".join(audit(model, torch.zeros(1, 2)).words())
    assert "`0.weight`: nothing that is kept is on a path; the layer is cut off" in words
    model = by_hand()
    with torch.no_grad():
        model.get_parameter("1.weight")[1, 1] = 1  # h1 -> k1, which now lives
        model.get_parameter("1.weight")[0, 0] = 0
        model.get_parameter("2.weight")[0, 1] = 0  # and k1 leads nowhere
    (line,) = (t for t in audit(model, torch.zeros(1, 2)).words() if "`1.weight`" in t)
    assert line == "`1.weight`: nothing that is kept is on a path; the layer is cut off"


def test_words_say_that_biases_make_constants() -> None:
    for bias in (True, False):
        model, inputs = mlp(bias=bias)
        with torch.no_grad():
            model.get_parameter("0.weight")[3:].zero_()
        text = str(audit(model, inputs))
        assert ("a unit that nothing reaches is a constant here" in text) is bias


def test_a_model_without_connections_says_so() -> None:
    report = audit(nn.Sequential(nn.ReLU(), nn.Flatten()), torch.zeros(1, 2, 2))
    assert report.words() == ["the model has no connections: no parameter multiplies a signal"]
    assert report.total == 0 and report.live_fraction == 0.0
    assert (report.outputs, report.outputs_reached) == (4, 4)


def same(a: Audit, b: Audit) -> bool:
    return a.to_dict() == b.to_dict() and all(
        torch.equal(a.live_masks[n], b.live_masks[n]) for n in a.live_masks
    )


def test_zeros_our_masks_and_torchs_read_alike() -> None:
    pruned, inputs = lenet()
    torch_prune.global_unstructured(weights(pruned), torch_prune.L1Unstructured, amount=0.9)
    masks = trellis.masks_of(pruned)
    ours, _ = lenet()
    masks.apply(ours)
    zeros, _ = lenet()
    masks.bake(masks.apply(zeros))
    reports = [audit(model, inputs) for model in (pruned, ours, zeros)]
    assert 0 < reports[0].live < reports[0].kept
    assert same(reports[0], reports[1]) and same(reports[0], reports[2])


def test_a_mask_keeps_a_weight_that_happens_to_be_zero() -> None:
    model = by_hand()
    Masks({"2.weight": torch.ones(2, 2, dtype=torch.bool)}).apply(model)
    assert [layer.kept for layer in audit(model, torch.zeros(1, 2)).layers] == [2, 2, 4]


def state(model: nn.Module) -> list[object]:
    """What a user could tell: tensors bit by bit, objects by identity, flags, hooks, classes."""
    return [
        {n: t.numpy().tobytes() for n, t in model.state_dict().items()},
        [(n, id(p), p.requires_grad, p.grad) for n, p in model.named_parameters()],
        [(n, id(m), type(m), m.training, len(m._forward_pre_hooks))
         for n, m in model.named_modules()],
        torch.get_rng_state().tolist(),
    ]  # fmt: skip


def torch_pruned() -> tuple[nn.Module, tuple[Tensor, ...]]:
    model, inputs = lenet()
    torch_prune.global_unstructured(weights(model), torch_prune.L1Unstructured, amount=0.9)
    return model, inputs


def ours() -> tuple[nn.Module, tuple[Tensor, ...]]:
    model, inputs = lenet()
    trellis.prune(model, inputs, sparsity=0.9)
    return model, inputs


EXAMPLES = {name: ZOO[name] for name in (
    "resnet18", "gpt2", "lstm", "weight_norm", "tied_embedding", "multihead_attention", "gcn_conv",
)}  # fmt: skip
EXAMPLES |= {"torch_pruned": torch_pruned, "ours": ours}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_changes_nothing(name: str, training: bool) -> None:
    model, inputs = EXAMPLES[name]()
    model.train(training)
    first = next(m for m in model.modules() if next(m.children(), None) is None)
    first.train(not training)  # flags that are not all alike
    before, given = state(model), [x.clone() for x in inputs]
    audit(model, inputs)
    assert state(model) == before
    assert all(torch.equal(x, y) for x, y in zip(inputs, given, strict=True))


def without_biases() -> dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]]:
    """No biases, norms or added constants; activations map 0 to 0."""
    return {
        "mlp": lambda: mlp((12, 24, 24, 5), bias=False),
        "lenet": lambda: lenet(bias=False),
        "gcn": lambda: gcn(4, 3, 3, 2, 4, blocks=2),
        "swiglu": ZOO["swiglu"],
        "product": ZOO["product"],
        "residual": bare.residual,
        "unet": bare.unet,
        "concatenating": bare.concatenating,
    }


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("name", without_biases())
def test_dead_is_dead(name: str, per_layer: bool) -> None:
    """Pruned by torch's tool: zeroing what the audit calls dead changes no output."""
    dead = 0
    for amount in (0.5, 0.8, 0.9, 0.95):
        model, inputs = without_biases()[name]()
        held = [
            (m, n) for m in model.modules() for n, p in m.named_parameters(recurse=False)
            if p.ndim > 1
        ]  # fmt: skip
        if per_layer:
            for module, leaf in held:
                torch_prune.l1_unstructured(module, leaf, amount=amount)
        else:
            torch_prune.global_unstructured(held, torch_prune.L1Unstructured, amount=amount)
        report = audit(model, inputs)
        dead += report.dead
        trials = [tuple(torch.randn_like(x) for x in inputs) for _ in range(3)]
        before = [model(*x).detach() for x in trials]
        Masks(report.live_masks).apply(model)
        thinned = audit(model, inputs)
        assert thinned.kept == thinned.live == report.live
        for x, y in zip(trials, before, strict=True):
            torch.testing.assert_close(model(*x).detach(), y, rtol=1e-5, atol=1e-6)
    assert dead > 0
