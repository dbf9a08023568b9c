"""Where the work is done, and in how large steps.

A CPU goes through large weights in pieces that stay in its cache. A GPU takes as long to be told
of a step as to work through a million elements, so it gets few large steps, cut only where memory
demands it, and is asked for numbers rarely: an answer waits for all that was told before. Both
multiply and compare the same numbers, so that both keep the same connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

CPU = torch.device("cpu")
LARGE = 1 << 26  # elements of a step on a GPU
TAKES_ALL = 1 << 24  # elements up to which a GPU works through all, where a CPU would look closer

_pretended = ContextVar("pretended", default=False)


def on_cpu(where: Tensor | torch.device) -> bool:
    """Whether to work as a CPU does, on a tensor or a device."""
    cpu = where.is_cpu if isinstance(where, Tensor) else where.type == "cpu"
    return cpu and not _pretended.get()


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Inside, CPUs work as GPUs do, step by step: to compare, and to count the steps.

    >>> with as_on_gpu():
    ...     on_cpu(torch.zeros(1))
    False
    >>> on_cpu(torch.zeros(1))
    True
    """
    before = _pretended.set(True)
    try:
        yield
    finally:
        _pretended.reset(before)
