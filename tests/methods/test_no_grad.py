"""Pruning is the same with gradients switched off, as they are in most evaluation code."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import trellis
from trellis.skeleton import GCN


@pytest.mark.parametrize("method", ["viterbi", "magnitude", "synflow", "random"])
@pytest.mark.parametrize("keep", [13, 15, 18, 24, 39, 50])
def test_the_same_masks_under_no_grad(method: str, keep: int) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        model = GCN(nodes=5, channels=6, classes=4, heads=3, filters=7)
        x = torch.zeros(1, 5, 6)
        options: Any = {"keep": keep, "method": method, "consistent": True}
        with_gradients = trellis.prune(copy.deepcopy(model), x, **options)
        with torch.no_grad():
            without = trellis.prune(copy.deepcopy(model), x, **options)
        assert with_gradients.keys() == without.keys()
        assert all(torch.equal(with_gradients[name], without[name]) for name in without)
        assert without.kept == keep
