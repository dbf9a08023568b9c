"""Layers against the audit: what the rows say of paths is what the trellis says."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from tests.zoo import ZOO
from trellis import trace
from trellis.errors import TrellisError
from trellis.methods import layers
from trellis.methods.layers import Layered, layered
from trellis.paths.liveness import liveness

LAYERED = [
    "mlp", "text_classifier", "gcn", "gcn_einsum", "gcn_shared", "gcn_stacked", "gcn_conv",
    "tied_autoencoder", "tied_embedding", "shared_layer", "weight_norm", "strided_convolution",
    "convolution1d", "convolution3d", "transposed_convolution", "pooling", "upsampling",
    "instance_norm_remembered", "wiring",
]  # fmt: skip


def live(net: Layered, kept: set[int]) -> set[int]:
    """Connections on a path of kept ones, unit by unit."""
    uses = [
        [(t, c, h) for t in range(layer.tails) for c, h in zip(*layer.row(t), strict=True)]
        for layer in net.layers
    ]
    reached = [set(range(net.units[0]))]
    for level in uses:
        reached.append({h for t, c, h in level if c in kept and t in reached[-1]})
    found: set[int] = set()
    leading = set(net.outputs[net.outputs >= 0].tolist())
    for tails, level in zip(reversed(reached[:-1]), reversed(uses), strict=True):
        found |= {int(c) for t, c, h in level if c in kept and t in tails and h in leading}
        leading = {t for t, c, h in level if c in kept and h in leading}
    return found


def numbers(net: Layered, masks: Mapping[str, Tensor]) -> set[int]:
    return {
        net.starts[name] + place
        for name, mask in masks.items()
        for place in mask.reshape(-1).nonzero()[:, 0].tolist()
    }


@pytest.mark.parametrize("name", LAYERED)
@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
def test_paths_of_the_rows_are_the_paths_of_the_trellis(name: str, density: float) -> None:
    model, inputs = ZOO[name]()
    trellis = trace(model, inputs)
    net = layered(trellis)
    masks = {n: torch.rand(shape) < density for n, shape in trellis.connections.items()}
    assert live(net, numbers(net, masks)) == numbers(net, liveness(trellis, masks).live)


@pytest.mark.parametrize("name", LAYERED)
def test_columns_are_rows_read_backward(name: str) -> None:
    net = layered(trace(*ZOO[name]()))
    for layer in net.layers:
        rows = {
            (t, int(c), int(h))
            for t in range(layer.tails) if layer.reached[t]
            for c, h in zip(*layer.row(t), strict=True)
        }  # fmt: skip
        columns = {
            (int(t), int(c), h)
            for h in range(layer.heads) if layer.useful[h]
            for c, t in zip(*layer.column(h), strict=True)
        }  # fmt: skip
        assert rows == columns


@pytest.mark.parametrize("name", LAYERED)
def test_rows_and_columns_are_in_the_order_that_settles_ties(name: str) -> None:
    for layer in layered(trace(*ZOO[name]())).layers:
        found = [layer.row(t) for t in range(layer.tails)]
        found += [layer.column(h) for h in range(layer.heads)]
        for connections, ends in found:
            uses = list(zip(connections.tolist(), ends.tolist(), strict=True))
            assert uses == sorted(set(uses))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("residual", "`blocks.0.0.weight` reads also goes around it"),
        ("stgcn", "`gcn.weight` and `residual.weight` read the same signal"),
        ("squeeze_excite", "signals are multiplied"),
        ("layer_norm", "mixes its units"),
        ("several", "the model has 2 outputs"),
        ("adaptive_graph", "paths begin at more than one input"),
    ],
)
def test_a_branching_trellis_is_refused_with_its_reason(name: str, reason: str) -> None:
    with pytest.raises(TrellisError, match="viterbi") as error:
        layered(trace(*ZOO[name]()))
    assert reason in str(error.value)


def test_a_softmax_behind_the_last_layer_is_no_obstacle() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(-1))
    net = layered(trace(model, torch.zeros(1, 3)))
    assert net.units == [3, 4, 2]


def test_too_many_uses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST", 100)
    with pytest.raises(TrellisError, match="528 uses of connections are too many"):
        layered(trace(*ZOO["mlp"]()))
