"""Tracing from several threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import trellis


def live(width: int) -> int:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
    return trellis.audit(model, torch.zeros(1, 4)).live


def test_threads_do_not_disturb_each_other() -> None:
    widths = list(range(3, 15))
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(live, widths)) == [6 * width for width in widths]
