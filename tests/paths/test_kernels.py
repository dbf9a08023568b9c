"""The inner loops give what their plain definitions do."""

from __future__ import annotations

import math

import pytest
import torch

from trellis.paths import kernels
from trellis.paths.kernels import max_product, where


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.02, 0.09, 0.11, 0.5, 1.0])
@pytest.mark.parametrize("size", [0, 1, 9, 4095, 4096, 30_007])
def test_where_finds_all_that_is_true_in_order(size: int, share: float) -> None:
    mask = torch.rand(size, generator=torch.Generator().manual_seed(size)) < share
    assert torch.equal(where(mask), torch.nonzero(mask)[:, 0])


def test_where_takes_masks_of_any_layout() -> None:
    mask = torch.rand(120, 131, generator=torch.Generator().manual_seed(0)) < 0.03
    for view in (mask, mask.T, mask[:, 3:], mask[:, ::2], mask[1:], mask.view(-1)[5:]):
        assert torch.equal(where(view), torch.nonzero(view.reshape(-1))[:, 0])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_largest_product_is_that_of_all(
    rows: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.rand(1, rows, 40, generator=generator)
    w = torch.randn(1, 40, 30, generator=generator).mT
    w = w if transposed else w.contiguous()
    expected = (x[:, :, None] * w.abs()[:, None]).amax(-1)
    monkeypatch.setattr(kernels, "CHUNK", 64)  # so that it is made in pieces
    assert torch.equal(max_product(x, w), expected)


@pytest.mark.parametrize("tail", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_not_finite_shows_also_where_nothing_comes(
    rows: int, transposed: bool, bad: float, tail: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(1, rows, 40)
    x[:, :, 7] = tail
    w = torch.ones(1, 40, 30)
    w[0, 7, 11] = bad
    w = w.mT if transposed else w.mT.contiguous()
    monkeypatch.setattr(kernels, "CHUNK", 64)
    shown = ~torch.isfinite(max_product(x, w))
    assert shown[:, :, 11].all() and shown.sum() == rows
