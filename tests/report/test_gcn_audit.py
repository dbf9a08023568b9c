"""The audit of a GCN, by its own form and by that of the traced model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

import trellis
from tests.report.networks import network, networks
from trellis.report.audits import gcn_audit
from trellis.skeleton import GCN


def check_same(gcn: GCN) -> None:
    """Everything that an audit tells."""
    x = torch.zeros(1, gcn.sizes["nodes"], gcn.sizes["channels"])
    traced, found = trellis.audit(gcn, x), gcn_audit(gcn)
    assert found.to_dict() == traced.to_dict()
    assert found.live_masks.keys() == traced.live_masks.keys()
    for name, mask in traced.live_masks.items():
        torch.testing.assert_close(found.live_masks[name], mask)


@settings(max_examples=12, deadline=None)
@given(gcn=networks(blocks=3))
def test_it_is_what_an_audit_finds(gcn: GCN) -> None:
    check_same(gcn)


@pytest.mark.parametrize("options", [{}, {"bias": True, "blocks": 2}, {"shared": True}])
def test_a_mask_says_what_is_kept_even_where_the_weight_is_zero(options: dict[str, bool]) -> None:
    gcn = network(4, keep=1.0, **options)
    x = torch.zeros(1, 3, 6)
    trellis.prune(gcn, x, keep=14, method="magnitude")
    with torch.no_grad():
        dict(gcn.named_parameters())["dense.parametrizations.weight.original"].zero_()
    check_same(gcn)
    assert gcn_audit(gcn).kept == 14
