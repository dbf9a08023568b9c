"""Tensors of our own are made on the CPU, whatever `torch.set_default_device` says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_ASKED: ContextVar[torch.device | None] = ContextVar("asked", default=None)


@contextmanager
def on_cpu() -> Iterator[None]:
    """What is made meanwhile lies on the CPU, unless it says where: there random numbers come
    from, and graphs of units are kept. For functions, too, as a decorator.

    >>> with torch.device("meta"), on_cpu():
    ...     torch.zeros(2)
    tensor([0., 0.])
    """
    usual = torch.get_default_device()
    if usual.type == "cpu":  # a mode in force would slow down every call of torch
        yield
        return
    before = _ASKED.set(usual)
    try:
        with torch.device("cpu"):
            yield
    finally:
        _ASKED.reset(before)


@contextmanager
def as_asked() -> Iterator[None]:
    """Inside `on_cpu`, as it was outside: for what runs somebody's model.

    >>> with torch.device("meta"), on_cpu(), as_asked():
    ...     torch.zeros(2).device
    device(type='meta')
    """
    usual = _ASKED.get()
    if usual is None:
        yield
        return
    with torch.device(usual):
        yield
