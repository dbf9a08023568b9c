"""What is kept and live in a GCN, by its own form and by an audit of the traced model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

import trellis
from tests.report.networks import network, networks
from trellis.report.living import living
from trellis.skeleton import GCN


def audited(gcn: GCN) -> list[tuple[str, int, int, int]]:
    x = torch.zeros(1, gcn.sizes["nodes"], gcn.sizes["channels"])
    layers = trellis.audit(gcn, x).layers
    return [(layer.name, layer.total, layer.kept, layer.live) for layer in layers]


def found(gcn: GCN) -> list[tuple[str, int, int, int]]:
    return [(layer.name, layer.total, layer.kept, layer.live) for layer in living(gcn)]


@settings(max_examples=12, deadline=None)
@given(gcn=networks(blocks=3))
def test_it_is_what_an_audit_finds(gcn: GCN) -> None:
    assert found(gcn) == audited(gcn)


@pytest.mark.parametrize("options", [{}, {"bias": True, "blocks": 2}, {"shared": True}])
def test_a_mask_says_what_is_kept_even_where_the_weight_is_zero(options: dict[str, bool]) -> None:
    gcn = network(4, keep=1.0, **options)
    x = torch.zeros(1, 3, 6)
    trellis.prune(gcn, x, keep=14, method="magnitude")
    with torch.no_grad():
        dict(gcn.named_parameters())["dense.parametrizations.weight.original"].zero_()
    assert found(gcn) == audited(gcn)
    assert sum(kept for _, _, kept, _ in found(gcn)) == 14
