"""Connections that come back: those whose gradient says they would help most (as in RigL).

Evci et al., "Rigging the Lottery: Making All Tickets Winners" (2020). Here what comes back lies
on a path, too: its tail is reached and its head leads to an output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from ..graph.current import Current
from ..graph.steps import Contract
from ..graph.trellis import Trellis
from ..masks import Mask
from ..methods.complete_budget import complete
from ..methods.consistent import fill, prefix, reachable
from ..methods.method import Kept
from ..methods.options import Options
from ..methods.prune import Selector
from ..methods.ranking import Ranking, count
from ..paths.liveness import addable

# Choosing among the connections that are kept: what `trellis.prune` does, but changing nothing.
#
# Beside the choice itself this keeps a promise over time: whatever is chosen now still has a
# consistent network of the last, smallest budget inside. Nothing says so by itself: a network that
# reaches every output by paths that share no connection has no smaller one inside.


__all__ = ["Choice", "Chooser", "Kept", "plenty"]


@dataclass(frozen=True, eq=False)
class Choice:
    """What is ``kept``, and a consistent network of the last budget ``inside`` it: None where
    one is sure to be found."""

    kept: Kept
    inside: Kept | None


@dataclass(frozen=True, eq=False)
class Chooser:
    """Chooses on the weights as they are ``now``. ``target`` is the last budget, ``share`` the
    fraction kept that it was given as. ``fresh`` are about to come back (see `Selector`)."""

    net: Trellis
    now: Current
    options: Options
    target: int
    share: Fraction
    fresh: Kept | None = None

    @cached_property
    def selector(self) -> Selector:
        return Selector(self.net, self.now, self.options, self.fresh)

    def choose(self, able: Kept | None, budget: int) -> Kept:
        """``budget`` connections by the options' method, of those in ``able`` (None: of all)."""
        return self.selector.choose(able, budget, self.share if budget == self.target else None)

    def shrink(self, kept: Kept, inside: Kept | None, budget: int) -> Choice:
        """``budget`` of the ``kept`` connections, with a network of the target's size inside."""
        try:
            found = self.choose(kept, budget)
        except TrellisError:
            if inside is None or count(inside) > budget:
                raise
            return self._around(kept, inside, budget)
        if inside is None:
            return Choice(found, None)
        known = self._known(found, inside, budget)
        return self._around(kept, inside, budget) if known is None else Choice(found, known)

    def _around(self, kept: Kept, inside: Kept, budget: int) -> Choice:
        """The network ``inside``, and as much more of what is ``kept`` as the budget allows."""
        ranking = self.selector.ranking(kept, budget)
        filled = fill(self.net, ranking, prefix(self.net, ranking, budget, inside).live, budget)
        if count(filled) == budget:
            return Choice(filled, inside)
        wanted = reachable(self.net, ranking) if self.options.cover_outputs else None
        around = complete(self.net, ranking, filled, budget, wanted, inside)
        if count(around) == budget:
            return Choice(around, inside)
        found = complete(self.net, ranking, filled, budget, wanted)
        known = self._known(found, inside, budget)  # what was trimmed may have been of it
        return Choice(around, inside) if known is None else Choice(found, known)

    def _known(self, found: Kept, inside: Kept, budget: int) -> Kept | None:
        """A network of the target's size in what was found; None if none was seen there."""
        if budget <= self.target:
            return found
        if all(bool((found[name] | ~mask).all()) for name, mask in inside.items()):
            return inside
        try:
            return self.choose(found, self.target)
        except TrellisError:
            return None


def plenty(net: Trellis, options: Options) -> int | None:
    """A budget from which on every consistent network has one of that budget inside: a longest
    path for each output. None where signals gate each other and there is no such bound."""
    if not options.closes:
        return 0
    if net.gated:
        return None
    depth: dict[int, int] = {}
    for step in net.steps:
        before = max((depth.get(x.id, 0) for x in step.operands), default=0)
        depth[step.out.id] = before + isinstance(step, Contract)
    longest = max(depth.get(signal.id, 0) for signal in net.outputs)
    return longest * (net.output_units if options.cover_outputs else 1)


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
