"""Eq. 4 and 5 against the sum, norm and maximum over explicit paths."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.zoo import ZOO
from trellis import trace
from trellis.methods import chains as surrogate
from trellis.methods.chains import ahead
from trellis.methods.layers import Floats, Layered, layered

from .literal import mlp, saliency_of

POWERS = [1.0, 1.5, 10.0, 50.0, math.inf]


def paths(
    net: Layered, sizes: Floats, level: int, unit: int, divide: bool
) -> Iterator[tuple[int, float]]:
    """(output unit, logarithm of the product) of every path from a unit on."""
    if level == len(net.layers):
        yield from ((k, 0.0) for k, reads in enumerate(net.outputs.tolist()) if unit in reads)
        return
    connections, heads = net.layers[level].row(unit)
    share = math.log(sizes[connections].sum()) if divide and sizes[connections].any() else 0.0
    for c, head in zip(connections.tolist(), heads.tolist(), strict=True):
        if sizes[c] > 0:
            for k, rest in paths(net, sizes, level + 1, head, divide):
                yield k, math.log(sizes[c]) - share + rest


def by_definition(
    net: Layered, sizes: Floats, p: float, total: bool, divide: bool
) -> list[list[float]]:
    found: list[list[float]] = []
    for level in range(1, len(net.layers) + 1):
        found.append([])
        for unit in range(net.units[level]):
            columns: dict[int, list[float]] = {}  # per output unit
            for k, value in paths(net, sizes, level, unit, divide):
                columns.setdefault(k, []).append(value)
            norms = [
                max(values) if p == math.inf
                else float(np.logaddexp.reduce(np.array(values) * p)) / p
                for values in columns.values()
            ]  # fmt: skip
            join = np.logaddexp.reduce if total else np.max
            found[-1].append(float(join(norms)) if norms else -math.inf)
    return found


def check(model: nn.Module, inputs: tuple[Tensor, ...], seed: int, levels: int | None) -> None:
    net = layered(trace(model, inputs))
    sizes = net.flat(saliency_of(model, levels, seed), missing=1.0)
    for p in POWERS:
        for total in (False, True):
            for divide in (False, True):
                fast = ahead(net, sizes, p, total=total, row_normalize=divide)
                slow = by_definition(net, sizes, p, total, divide)
                for a, b in zip(fast, slow, strict=True):
                    np.testing.assert_allclose(a, b, atol=1e-7)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(0, 999),
       st.sampled_from([None, 2, 4]))  # fmt: skip
@settings(max_examples=25)
def test_dense_networks(sizes: list[int], seed: int, levels: int | None) -> None:
    check(mlp(sizes), (torch.zeros(1, sizes[0]),), seed, levels)


@pytest.mark.parametrize("name", ["gcn", "gcn_shared", "gcn_conv"])
def test_graph_networks(name: str) -> None:
    check(*ZOO[name](), 0, 3)


def test_convolution_overlapping_pools_and_flatten() -> None:
    model = nn.Sequential(
        nn.Conv1d(1, 2, 3, padding=1), nn.MaxPool1d(3, 1), nn.Conv1d(2, 2, 2), nn.AvgPool1d(2),
        nn.Flatten(), nn.Linear(2, 2),
    )  # fmt: skip
    check(model.eval(), (torch.zeros(1, 1, 5),), 1, None)


def test_what_underflows_is_summed_exactly() -> None:
    """Weights over forty orders of magnitude, to the fiftieth power."""
    model = mlp([2, 5, 5, 5])
    net = layered(trace(model, torch.zeros(1, 2)))
    generator = torch.Generator().manual_seed(3)
    sizes = 10 ** (40 * torch.rand(net.total, generator=generator, dtype=torch.float64) - 30)
    for p in (1.0, 50.0):
        fast = ahead(net, sizes.numpy(), p, total=False)
        slow = by_definition(net, sizes.numpy(), p, False, False)
        for a, b in zip(fast, slow, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("total", [False, True])
def test_outputs_in_blocks_are_outputs_at_once(
    monkeypatch: pytest.MonkeyPatch, total: bool
) -> None:
    net = layered(trace(*ZOO["gcn"]()))
    sizes = np.linspace(0.1, 1.0, net.total)
    whole = ahead(net, sizes, 2.5, total=total)
    monkeypatch.setattr(surrogate, "BLOCK", 1)
    for a, b in zip(whole, ahead(net, sizes, 2.5, total=total), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
