"""Tensors of our own are ordinary ones on the CPU, whatever modes of torch's are in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

import torch

_ASKED: ContextVar[torch.device | None] = ContextVar("asked", default=None)


@contextmanager
def on_cpu() -> Iterator[None]:
    """What is made meanwhile lies on the CPU, unless it says where: there random numbers come
    from, and graphs of units are kept. Nor does `torch.inference_mode` make it what can never be
    trained. For functions, too, as a decorator.

    >>> with torch.device("meta"), on_cpu():
    ...     torch.zeros(2)
    tensor([0., 0.])
    """
    usual = torch.get_default_device()
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if usual.type != "cpu":  # a mode in force would slow down every call of torch
            stack.callback(_ASKED.reset, _ASKED.set(usual))
            stack.enter_context(torch.device("cpu"))
        yield


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
