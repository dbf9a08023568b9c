"""From a ranking to a consistent network of exactly the budget.

The live part of the best m connections is consistent for every m, and grows with m. Three steps
follow from this. First, find the largest m whose live part fits the budget. Second, add single
connections between live units. Third, if none is left, add the shortest completing path and trim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from ..errors import TrellisError
from ..graph.trellis import Trellis
from ..paths.kernels import count as count_units
from ..paths.liveness import Liveness, dense, liveness, propagate, reached
from .complete_budget import best_cover, complete, misses, smallest, thrifty_cover, with_singles
from .ranking import Ranking, count

Masks = Mapping[str, Tensor]


def closed(net: Trellis, ranking: Ranking, budget: int, *, cover: bool) -> Masks:
    """Return the best consistent network of ``budget`` connections under a ranking."""

    def start(reserved: Masks | None) -> Liveness:
        return prefix(net, ranking, budget, reserved)

    return _assembled(net, ranking, budget, start, cover)


def finished(
    net: Trellis, ranking: Ranking, budget: int, walk: Callable[[int], Masks], *, cover: bool
) -> Masks:
    """Return a consistent network: ``walk(m)`` of at most m connections, filled by ranking."""

    def start(reserved: Masks | None) -> Liveness:
        left = budget - (0 if reserved is None else count(reserved))
        found = walk(left) if left > 0 else nothing(ranking)
        if reserved is not None:
            found = {n: f | reserved[n] for n, f in found.items()}
        return liveness(net, found)

    return _assembled(net, ranking, budget, start, cover)


def _assembled(
    net: Trellis,
    ranking: Ranking,
    budget: int,
    start: Callable[[Masks | None], Liveness],
    cover: bool,
) -> Masks:
    """Start, cover the outputs, fill, complete.

    The result is audited. It has fewer connections than the budget only if no consistent network
    of exactly that size was found.
    """
    if 2 * budget >= ranking.size and budget >= most(net, ranking) > 0:
        return all_live(net, ranking)
    found = start(None)
    if found.count == budget and all(bool(mask.all()) for mask in found.outputs):
        return found.live
    possible = reachable(net, ranking)
    if not any(bool(mask.any()) for mask in possible):
        raise TrellisError(
            "no output can be reached from any input: the network is disconnected. Is all of a "
            "layer zero (an ignored head that is initialised to zero)? Give it values first"
        )
    if cover and misses(found.outputs, possible):
        found = start(reserve(net, ranking, budget, possible))
    if found.count == budget:
        return found.live
    kept = fill(net, ranking, found.live, budget)
    if count(kept) < budget:
        kept = complete(net, ranking, kept, budget, possible if cover else None)
    if count(kept) == 0:
        raise TrellisError(
            f"a budget of {budget} is too small for a path from an input to an output; "
            f"keep={count(smallest(net, ranking))} works"
        )
    final = liveness(net, kept)
    if count(kept) != final.count or (cover and misses(final.outputs, possible)):
        raise AssertionError("the audit disagrees with the selection; please report this")
    return kept


def nothing(ranking: Ranking) -> Masks:
    """Return masks that keep nothing."""
    return ranking.top(0)


def all_live(net: Trellis, ranking: Ranking) -> Masks:
    """Return what is live if nothing is pruned. Computed once per trellis."""
    if ranking.allowed is not None:
        return liveness(net, ranking.allowed).live
    if "all live" not in net.cache:
        net.cache["all live"] = dense(net)
    found: Masks = net.cache["all live"]
    return {n: found[n].to(ranking.device) for n in ranking.shapes}


def most(net: Trellis, ranking: Ranking) -> int:
    """Return how many connections can be live at once."""
    if ranking.allowed is not None:
        return count(all_live(net, ranking))
    if "most" not in net.cache:
        net.cache["most"] = count(all_live(net, ranking))
    found: int = net.cache["most"]
    return found


def reachable(net: Trellis, ranking: Ranking) -> list[Tensor]:
    """Return the output units that the unpruned network reaches. Computed once per trellis."""
    if ranking.allowed is not None:
        return reached(net, propagate(net, ranking.allowed))
    if "reachable" not in net.cache:
        net.cache["reachable"] = reached(net, propagate(net, None))
    found: list[Tensor] = net.cache["reachable"]
    return [mask.to(ranking.device) for mask in found]


def prefix(net: Trellis, ranking: Ranking, budget: int, reserved: Masks | None) -> Liveness:
    """Return the live part of the largest top-m, with ``reserved``, that fits the budget.

    Live counts are monotone in m, so a bracket search finds it. The search stops early if less than
    0.2 % is missing. Single connections fill that just as well.
    """
    sliver = budget // 500

    def audit(m: int) -> Liveness:
        kept = ranking.top(m)
        if reserved is not None:
            kept = {n: k | reserved[n] for n, k in kept.items()}
        return liveness(net, kept)

    low = budget if reserved is None else max(budget - count(reserved), 0)
    high = ranking.size + 1
    best = audit(low)
    have = best.count
    guess = low
    for _ in range(64):
        short = budget - have
        if short <= sliver or high - low <= 1:
            break
        # First by steps in proportion to what is missing, then by halving the bracket.
        guess = low + 2 * short + low if high > ranking.size else (low + high) // 2
        guess = min(guess, high - 1)
        if guess <= low:
            break
        found = audit(guess)
        if found.count <= budget:
            low, best, have = guess, found, found.count
        else:
            high = guess
    return best


def fill(net: Trellis, ranking: Ranking, live: Masks, budget: int) -> Masks:
    """Add the best single connections, repeatedly: each round can allow others."""
    kept: Masks = dict(live)
    while (short := budget - count(kept)) > 0:
        grown = with_singles(net, ranking, kept, short)
        if grown is kept:
            break
        kept = grown
    return kept


def reserve(net: Trellis, ranking: Ranking, budget: int, possible: list[Tensor]) -> Masks:
    """Return connections that reach every output.

    These are the best path to each. If that exceeds the budget, a greedy search finds fewer.
    """
    covers = []
    for cover in (best_cover, thrifty_cover):
        covers.append(cover(net, ranking, possible))
        if count(covers[-1]) <= budget:
            return covers[-1]
    outputs = sum(count_units(p) for p in possible)
    raise TrellisError(
        f"a budget of {budget} is too small to reach all {outputs} outputs; "
        f"keep={min(count(c) for c in covers)} works, or cover_outputs=False"
    )
