"""Regrowth of pruned connections with large gradients, and selection among kept ones.

Regrowth follows RigL (Evci et al., "Rigging the Lottery: Making All Tickets Winners", 2020). Here,
regrown connections lie on a path as well: an input reaches their tail, and their head reaches an
output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from ..errors import TrellisError
from ..graph.steps import Contract, Source
from ..graph.trellis import Current, Trellis, names_in
from ..masks import Mask
from ..methods.budget import Ranking, count
from ..methods.consistent import complete, fill, prefix
from ..methods.cover import Wanted, reachable, wanted_layers
from ..methods.method import Kept
from ..methods.prune import Options, Selector
from ..paths.liveness import addable

# Selection as in `trellis.prune`, without changing the model. It also guarantees that a consistent
# network of the last budget exists inside every selection. This does not hold by itself: a network
# whose paths to the outputs share no connection contains no smaller network that reaches all of
# them.


__all__ = ["Choice", "Chooser", "Kept", "plenty"]


@dataclass(frozen=True, eq=False)
class Choice:
    """The masks ``kept``, and masks of a network with the last budget ``inside`` them.

    ``inside`` is None if such a network is known to exist.
    """

    kept: Kept
    inside: Kept | None


@dataclass(frozen=True, eq=False)
class Chooser:
    """Select connections by the present weights.

    Args:
        net: The trellis of the model.
        now: Its present weights.
        options: Options of `trellis.prune`.
        target: The last budget.
        share: The fraction kept at the end, as given.
        fresh: Connections about to be regrown (see `Selector`).
    """

    net: Trellis
    now: Current
    options: Options
    target: int
    share: Fraction
    fresh: Kept | None = None

    @cached_property
    def selector(self) -> Selector:
        """The selector of the options' method."""
        return Selector(self.net, self.now, self.options, self.fresh)

    def choose(self, able: Kept | None, budget: int) -> Kept:
        """Return ``budget`` connections of those in ``able`` (None: of all)."""
        return self.selector.choose(able, budget, self.share if budget == self.target else None)

    def shrink(self, kept: Kept, inside: Kept | None, budget: int) -> Choice:
        """Return ``budget`` of the ``kept`` connections, around a network of the last budget."""
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
        """Return the network ``inside``, filled with ``kept`` connections up to the budget."""
        ranking = self.selector.ranking(kept, budget)
        filled = fill(self.net, ranking, prefix(self.net, ranking, budget, inside).live, budget)
        if count(filled) == budget:
            return Choice(filled, inside)
        options = self.options
        wanted = Wanted(
            reachable(self.net, ranking) if options.cover_outputs else None,
            wanted_layers(self.net, ranking) if options.cover_layers else (),
        )
        around = complete(self.net, ranking, filled, budget, wanted, inside)
        if count(around) == budget:
            return Choice(around, inside)
        found = complete(self.net, ranking, filled, budget, wanted)
        known = self._known(found, inside, budget)  # `complete` may have removed parts of it
        return Choice(around, inside) if known is None else Choice(found, known)

    def _known(self, found: Kept, inside: Kept, budget: int) -> Kept | None:
        """Return a network of the last budget inside ``found``; None if none was found."""
        if budget <= self.target:
            return found
        if all(bool((found[name] | ~mask).all()) for name, mask in inside.items()):
            return inside
        try:
            return self.choose(found, self.target)
        except TrellisError:
            return None


def plenty(net: Trellis, options: Options) -> int | None:
    """Return a budget such that every larger consistent network contains one of that budget.

    It is the length of the longest path times the number of outputs and of layers. If signals gate
    each other, the bound is unknown, and the result is None.
    """
    if not options.closes:
        return 0
    if net.gated:
        return None
    depth: dict[int, int] = {}
    for step in net.steps:
        before = max((depth.get(x.id, 0) for x in step.operands), default=0)
        depth[step.out.id] = before + isinstance(step, Contract)
    longest = max(depth.get(signal.id, 0) for signal in net.outputs)
    units = net.output_units if options.cover_outputs else 0
    layers = _avoidable(net) if options.cover_layers else 0
    return longest * max(units + layers, 1)


def _avoidable(net: Trellis) -> int:
    """Return how many parameters some path goes around; the others need no path of their own."""
    passed: dict[int, frozenset[str] | None] = {}  # parameters on all paths; None without a path
    for step in net.steps:
        reached = isinstance(step, Source) and step.depends
        before = [frozenset[str]()] if reached else [passed.get(x.id) for x in step.operands]
        sets = [found for found in before if found is not None]
        own = names_in(step.weight) if isinstance(step, Contract) else []
        common = frozenset.intersection(*sets) if sets else None
        passed[step.out.id] = common if common is None or len(own) != 1 else common | set(own)
    ends = [found for out in net.outputs if (found := passed.get(out.id)) is not None]
    return len(set(net.connections) - (frozenset.intersection(*ends) if ends else frozenset()))


class ProbedMask(Mask):
    """A mask that records the gradient of pruned connections.

    While the probe is open, zeros are added to the masked weight. The output does not change, and
    the gradient of the zeros is that of the whole weight, summed over all backward passes. The
    gradient of the weight itself stays 0 where it is pruned.

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
        """Return the masked weight."""
        kept = super().forward(weight)
        if self.probe is None or not torch.is_grad_enabled():
            return kept
        return kept + self.probe

    def open(self, weight: Tensor) -> None:
        """Start to record, for a weight of this type and device."""
        with torch.inference_mode(False):  # an inference tensor could not record gradients later
            self.probe = torch.zeros_like(weight, requires_grad=True)

    def close(self) -> Tensor | None:
        """Stop to record, and return the gradient; None if there was no backward pass."""
        probe, self.probe = self.probe, None
        collected = None if probe is None else probe.grad
        return None if collected is None else collected.detach()  # `create_graph` leaves a graph

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ProbedMask:
        # Neither parameter nor buffer: optimizers and files should not see it, but `to` must.
        super()._apply(fn, recurse)
        if self.probe is not None:
            self.probe = fn(self.probe.detach()).requires_grad_()
        return self


def returning(
    net: Trellis, kept: Kept, gradients: Mapping[str, Tensor], most: int, *, consistent: bool
) -> Kept:
    """Return the ``most`` pruned connections with the largest gradients.

    Only connections with a finite gradient other than 0 are considered. If ``consistent``, they
    must also be live when added alone to the ``kept`` ones.
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
