"""Create our own tensors on the CPU, whatever default device or mode of torch is active."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

import torch

_ASKED: ContextVar[torch.device | None] = ContextVar("asked", default=None)


@contextmanager
def on_cpu() -> Iterator[None]:
    """Create tensors on the CPU by default, outside of `torch.inference_mode`.

    Random numbers are drawn and graphs of units are kept on the CPU. Tensors that are made in
    inference mode could never be trained. Use it as a context or as a decorator.

    >>> with torch.device("meta"), on_cpu():
    ...     torch.zeros(2)
    tensor([0., 0.])
    """
    usual = torch.get_default_device()
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if usual.type != "cpu":  # an active mode slows down every call of torch
            stack.callback(_ASKED.reset, _ASKED.set(usual))
            stack.enter_context(torch.device("cpu"))
        yield


@contextmanager
def as_asked() -> Iterator[None]:
    """Restore, inside `on_cpu`, the default device from outside: to run a user's model.

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
