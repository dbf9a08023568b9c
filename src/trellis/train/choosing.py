"""Choosing among the connections that are kept: what `trellis.prune` does, but changing nothing.

Beside the choice itself this keeps a promise over time: whatever is chosen now still has a
consistent network of the last, smallest budget inside. Nothing says so by itself: a network that
reaches every output by paths that share no connection has no smaller one inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from ..errors import TrellisError
from ..select.consistent import fill, prefix, reachable
from ..select.method import Kept, Method
from ..select.options import Options
from ..select.pieces import complete
from ..select.ranking import count
from ..trace.current import Current
from ..trace.steps import Contract
from ..trace.trellis import Trellis

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
    fraction kept that it was given as. ``fresh`` are about to come back (see `Method`)."""

    net: Trellis
    now: Current
    options: Options
    target: int
    share: Fraction
    fresh: Kept | None = None

    @cached_property
    def method(self) -> Method:
        return Method(self.net, self.now, self.options, self.fresh)

    def choose(self, able: Kept | None, budget: int) -> Kept:
        """``budget`` connections by the options' method, of those in ``able`` (None: of all)."""
        return self.method.choose(able, budget, self.share if budget == self.target else None)

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
        ranking = self.method.ranking(kept, budget)
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
