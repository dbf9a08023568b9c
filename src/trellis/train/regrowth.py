"""Connections that come back: those whose gradient says they would help most (as in RigL).

Evci et al., "Rigging the Lottery: Making All Tickets Winners" (2020). Here what comes back lies
on a path, too: its tail is reached and its head leads to an output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from ..masks import Mask
from ..paths.liveness import addable
from ..select.ranking import Ranking
from ..trace.trellis import Trellis
from .choosing import Kept


class ProbedMask(Mask):
    """A mask that can tell the gradient of pruned connections, too.

    While the probe is open, zeros are added to the masked weight. They change nothing that is
    computed, and what backward passes leave at them is the gradient of the whole weight,
    summed over all passes; the weight's own gradient stays zero where it is pruned.

    >>> mask = ProbedMask(torch.tensor([True, False]))
    >>> weight = torch.tensor([2.0, 3.0], requires_grad=True)
    >>> mask.open(weight)
    >>> (mask(weight) * torch.tensor([5.0, 7.0])).sum().backward()
    >>> weight.grad, mask.close()
    (tensor([5., 0.]), tensor([5., 7.]))
    """

    probe: Tensor | None

    def __init__(self, mask: Tensor) -> None:
        super().__init__(mask)
        self.probe = None

    def forward(self, weight: Tensor) -> Tensor:
        kept = super().forward(weight)
        if self.probe is None or not torch.is_grad_enabled():
            return kept
        return kept + self.probe

    def open(self, weight: Tensor) -> None:
        """Begin to collect, for a weight of this type and device, from nothing."""
        with torch.inference_mode(False):  # who evaluates at the moment will train on
            self.probe = torch.zeros_like(weight, requires_grad=True)

    def close(self) -> Tensor | None:
        """Stop; what was collected, None if no gradient came by."""
        probe, self.probe = self.probe, None
        collected = None if probe is None else probe.grad
        return None if collected is None else collected.detach()  # `create_graph` leaves a graph

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ProbedMask:
        # Neither parameter nor buffer: optimizers and files should not see it, but `to` must.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.probe is not None:
            self.probe = fn(self.probe.detach()).requires_grad_()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ProbedMask:
        # A copy has no pruner that would read its probe.
        copied = ProbedMask(deepcopy(self.mask, memo))
        copied.training = self.training
        memo[id(self)] = copied
        return copied


def returning(
    net: Trellis, kept: Kept, gradients: Mapping[str, Tensor], most: int, *, consistent: bool
) -> Kept:
    """The ``most`` pruned connections of largest gradient.

    Fewer, where fewer have a gradient that is finite and not zero and, if ``consistent``, are
    live beside what is ``kept`` with no other change. Almost all that have a gradient are: it is
    the product of what arrives at the tail and what a change at the head does to the loss.
    """
    worth = {
        name: gradients[name].float().abs().nan_to_num(0.0, 0.0, 0.0)
        if name in gradients
        else torch.zeros(mask.shape, device=mask.device)
        for name, mask in kept.items()
    }
    able = {name: ~kept[name] & (value > 0) for name, value in worth.items()}
    if consistent:
        fits = addable(net, kept)
        able = {name: mask & fits[name] for name, mask in able.items()}
    return Ranking(worth, worth, able).top(most)
