"""The lean trellis says the same of every connection as the whole one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.oracle.autograd import live_by_autograd
from tests.paths.traced import shapes, traced
from tests.zoo import ZOO
from trellis import Trellis, trace
from trellis.paths.liveness import ends, liveness
from trellis.paths.scores import best_path


def some(net: Trellis, density: float) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {n: torch.rand(w.shape, generator=generator) < density for n, w in shapes(net).items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("density", [0.1, 0.5])
@pytest.mark.parametrize("name", ZOO)
def test_audits_agree(name: str, density: float) -> None:
    net, _ = traced(name)
    kept = some(net, density)
    whole, lean = liveness(net, kept), liveness(net.lean, kept)
    assert same(dict(whole.live), dict(lean.live))
    assert all(torch.equal(a, b) for a, b in zip(whole.outputs, lean.outputs, strict=True))
    for mine, other in zip(ends(net, kept, whole.run), ends(net.lean, kept, lean.run), strict=True):
        assert same(mine, other)


@pytest.mark.parametrize("name", ZOO)
def test_scores_agree_to_the_last_bit(name: str) -> None:
    net, _ = traced(name)
    generator = torch.Generator().manual_seed(6)
    worth = {n: torch.rand(w.shape, generator=generator) for n, w in shapes(net).items()}
    whole, lean = best_path(net, worth, exact=True), best_path(net.lean, worth, exact=True)
    assert same({n: whole[n] for n in worth}, {n: lean[n] for n in worth})


def test_it_is_leaner() -> None:
    """Residual networks lose the steps that only rename units, transformers their patches."""
    residual, _ = traced("resnet50")
    assert len(residual.lean.steps) < 0.65 * len(residual.steps)
    patches, _ = traced("vit")
    assert {step.x.shape[1] for step in patches.contractions} >= {4, 5}
    assert {step.x.shape[1] for step in patches.lean.contractions} == {1, 2}
    assert residual.lean.lean is residual.lean


class Tokens(nn.Module):
    """Patches and a class token, with something that may tell patches apart."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embed = nn.Conv2d(1, 4, 2, stride=2, padding=1 if kind == "padded" else 0)
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.inner = nn.Linear(4, 4)
        self.across = nn.Linear(5, 5)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embed(x).flatten(2).transpose(1, 2)[:, :4]
        both = torch.cat([self.token, patches], 1)
        if self.kind == "masked":
            both = both * torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0])[:, None]
        both = both + self.inner(both).relu()
        if self.kind == "mixed":
            both = both + self.across(both.transpose(1, 2)).transpose(1, 2)
        if self.kind == "pooled":
            return self.head(both[:, 1:].mean(1))
        if self.kind == "rolled":
            both = both + self.inner(both.roll(1, 1)).relu()
        return self.head(both if self.kind == "all" else both[:, 0] + both.mean(1))


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("plain", 2),
        ("pooled", 2),
        ("masked", 4),  # token; first patch; two that are gone; the last
        ("all", 5),  # every token is an output
        ("mixed", 5),  # a weight for each token
        ("rolled", 5),  # neighbours lead into each other
        ("padded", 5),  # corners see less of the image
    ],
)
def test_positions_fold_only_where_nothing_tells_them_apart(kind: str, rows: int) -> None:
    torch.manual_seed(0)
    model, inputs = Tokens(kind).eval(), (torch.randn(1, 1, 4, 4),)
    net = trace(model, inputs)
    inner = next(s for s in net.lean.contractions if s.weight.name == "inner.weight")
    assert inner.x.shape[1] == rows
    kept = some(net, 0.4)
    found = liveness(net.lean, kept).live
    assert same(dict(found), live_by_autograd(model, inputs, kept, list(kept)))


def test_what_was_cut_apart_still_counts_all_uses() -> None:
    net, _ = traced("vit")
    assert net.uses > net.lean.uses
    assert net.total == net.lean.total == sum(math.prod(s) for s in net.connections.values())
