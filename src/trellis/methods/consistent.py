"""From a ranking to a consistent network of exactly the budget.

The live part of the best m connections is consistent for every m, and grows with m. Three steps
follow from this. First, find the largest m whose live part fits the budget. Second, add single
connections between live units. Third, if none is left, add the shortest completing path and trim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from ..errors import TrellisError
from ..graph.steps import Contract
from ..graph.trellis import Trellis, names_in
from ..paths.liveness import Liveness, Witness, addable, give, liveness
from ..paths.scores import BestPaths
from .budget import Ranking, count, zeros
from .cover import (
    STEP,
    Wanted,
    all_live,
    emptied,
    most,
    nothing,
    one_path,
    reachable,
    reserve,
    thrifty,
    thrifty_cover,
    wanted_layers,
)
from .layers import Floats, Layered

Masks = Mapping[str, Tensor]


def closed(
    net: Trellis, ranking: Ranking, budget: int, *, cover: bool, layers: bool = False
) -> Masks:
    """Return the best consistent network of ``budget`` connections under a ranking.

    With ``cover``, it reaches every output that the unpruned network reaches. With ``layers``, it
    has live connections in every parameter that is live there.
    """
    ranking = _with_untrained(net, ranking)

    def start(reserved: Masks | None) -> Liveness:
        return prefix(net, ranking, budget, reserved)

    return _assembled(net, ranking, budget, start, cover, layers)


def _with_untrained(net: Trellis, ranking: Ranking) -> Ranking:
    """Rank parameters without any score first, if every path leads through one of them.

    Such as a head that is initialised to zero. Ranked last, it would leave the choice of all other
    connections to chance, and the search would take dozens of audits.
    """
    if isinstance(ranking.scores, BestPaths):
        return ranking
    empty = {name for name, score in ranking.scores.items() if zeros(score) == 1}
    top = max((float(s.max()) for s in ranking.scores.values() if s.numel()), default=0.0)
    if not empty or top <= 0:
        return ranking
    scored = {name: score > 0 for name, score in ranking.scores.items()}
    if liveness(net, scored).count:
        return ranking
    scores = {n: torch.full_like(s, top) if n in empty else s for n, s in ranking.scores.items()}
    return Ranking(scores, ranking.saliency, ranking.allowed)


def finished(
    net: Trellis,
    ranking: Ranking,
    budget: int,
    walk: Callable[[int], Masks],
    *,
    cover: bool,
    layers: bool = False,
) -> Masks:
    """Return a consistent network: ``walk(m)`` of at most m connections, filled by ranking."""

    def start(reserved: Masks | None) -> Liveness:
        left = budget - (0 if reserved is None else count(reserved))
        found = walk(left) if left > 0 else nothing(ranking)
        if reserved is not None:
            found = {n: f | reserved[n] for n, f in found.items()}
        return liveness(net, found)

    return _assembled(net, ranking, budget, start, cover, layers)


def _assembled(
    net: Trellis,
    ranking: Ranking,
    budget: int,
    start: Callable[[Masks | None], Liveness],
    cover: bool,
    layers: bool,
) -> Masks:
    """Start, cover outputs and layers, fill, complete.

    The result is audited. It has fewer connections than the budget only if no consistent network
    of exactly that size was found.
    """
    if 2 * budget >= ranking.size and budget >= most(net, ranking) > 0:
        return all_live(net, ranking)
    found = start(None)
    empty = layers and bool(emptied(found.live))
    if found.count == budget and not empty and all(bool(mask.all()) for mask in found.outputs):
        return found.live
    possible = reachable(net, ranking)
    if not any(bool(mask.any()) for mask in possible):
        raise TrellisError(
            "no output can be reached from any input: the network is disconnected. Is all of a "
            "layer zero (an ignored head that is initialised to zero)? Give it values first"
        )
    every = Wanted(possible if cover else None, wanted_layers(net, ranking) if layers else ())
    need = Wanted(None)  # what is reserved: only what the best connections miss
    for turn in range(len(ranking.shapes) + 2):
        missed = every.outputs if every.misses_outputs(found) else None
        lost = Wanted(missed, every.lost(found.live))
        if not lost:
            break
        need = every if turn > 2 else need | lost
        found = start(reserve(net, ranking, budget, need, every))
    if found.count == budget:
        return found.live
    kept = fill(net, ranking, found.live, budget)
    wanted = Wanted(every.outputs, tuple(set(kept) - set(emptied(kept))) if layers else ())
    if count(kept) < budget:
        kept = complete(net, ranking, kept, budget, wanted)
    if count(kept) == 0:
        raise TrellisError(
            f"a budget of {budget} is too small for a path from an input to an output; "
            f"keep={count(smallest(net, ranking))} works"
        )
    final = liveness(net, kept)
    if count(kept) != final.count or wanted.missed(final) or every.missed(final):
        raise AssertionError("the audit disagrees with the selection; please report this")
    return kept


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


# Single connections between units that are already live.


def wires_taken(net: Layered, names: Mapping[str, Tensor]) -> bytearray:
    """Return flags of taken connections: those of wires, parameters that are not in ``names``."""
    taken = bytearray(net.total)
    for name, start in net.starts.items():
        if name not in names:
            size = math.prod(net.shapes[name])
            taken[start : start + size] = b"\1" * size
    return taken


def split(net: Layered, taken: bytearray, names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the taken connections as masks in the parameters' shapes."""
    flat = torch.frombuffer(taken, dtype=torch.uint8).bool()
    return {
        name: flat[start : start + math.prod(net.shapes[name])].reshape(net.shapes[name]).clone()
        for name, start in net.starts.items()
        if name in names
    }


def add_singles(
    trellis: Trellis, net: Layered, taken: bytearray, magnitudes: Floats, room: int
) -> int:
    """Take up to ``room`` more connections that are live without other changes.

    The largest magnitudes come first, ties in order. The tail of each is reached and its head leads
    to an output already, so all of them can be added at once.

    Returns:
        The number of connections left to take.
    """
    while room and any(taken):
        kept = split(net, taken, dict.fromkeys(net.starts, torch.empty(0)))
        free = addable(trellis, kept)
        flat = np.zeros(net.total, bool)
        for name, start in net.starts.items():
            mask = free[name].cpu().reshape(-1).numpy()
            flat[start : start + len(mask)] = mask
        flat &= np.frombuffer(taken, np.uint8) == 0
        found = np.flatnonzero(flat)
        if not len(found):
            break
        best = found[np.argsort(-magnitudes[found], kind="stable")][:room]
        for connection in best.tolist():
            taken[connection] = 1
        room -= len(best)
    return room


ATTEMPTS = 6  # pieces of each size
LEVELS = 6  # sizes
NODES = 60  # of the search in small networks
LARGEST = 1 << 24  # uses; larger networks miss a negligible part of the budget
SMALL = 1 << 14  # uses; larger networks never run out of single connections


def complete(
    net: Trellis,
    ranking: Ranking,
    kept: Masks,
    budget: int,
    wanted: Wanted,
    inside: Masks | None = None,
) -> Masks:
    """Bring ``kept`` to exactly ``budget`` connections by adding pieces and trimming.

    If that fails, return the largest network found below the budget. What is ``wanted`` stays.
    The consistent network ``inside``, if given, is kept whole.
    """
    best = kept
    while count(best) < budget and net.uses <= LARGEST:
        found = _one_more(net, ranking, best, budget, wanted, inside)
        if found is None:
            break
        best = with_singles(net, ranking, found, budget - count(found))  # new units are live
    if budget - count(best) > 0 and net.uses <= SMALL:
        base = inside
        if base is None:
            base = thrifty_cover(net, ranking, wanted) if wanted else _nothing(best)
        found = _assemble(net, ranking, base, budget, [NODES])
        if found is not None and _sound(net, found, wanted):
            return found
    return best


def smallest(net: Trellis, ranking: Ranking) -> Masks:
    """Return the smallest consistent network, of at least one connection, that a search finds.

    If a bare wire leads from input to output, the shortest path has no connection. The shortest
    completing piece is returned then.
    """
    path = one_path(net, ranking)
    if count(path) or net.uses > LARGEST:
        return path
    return next(_pieces(net, ranking, path), path)


def _assemble(
    net: Trellis, ranking: Ranking, kept: Masks, budget: int, nodes: list[int]
) -> Masks | None:
    """Build exactly ``budget`` connections from pieces, by a search over their sizes.

    For small networks, if no piece has the number of connections that is left.
    """
    rest = budget - count(kept)
    if rest == 0:
        return kept
    if nodes[0] <= 0 or rest < 0:
        return None
    sizes: dict[int, int] = {}
    pieces = _distinct(_pieces(net, ranking, kept))
    new = [count({n: p[n] & ~kept[n] for n in p}) for p in pieces]
    # A piece that ends the search first, then large ones: small ones are easy to add later.
    for i in sorted(range(len(pieces)), key=lambda i: (new[i] != rest, -new[i])):
        if new[i] > rest or new[i] == 0 or sizes.get(new[i], 0) >= 2:
            continue
        sizes[new[i]] = sizes.get(new[i], 0) + 1
        nodes[0] -= 1
        grown = {n: kept[n] | pieces[i][n] for n in kept}
        found = _assemble(net, ranking, grown, budget, nodes)
        if found is not None:
            return found
    return None


def _distinct(pieces: Iterator[Masks]) -> list[Masks]:
    """Return pieces without repetitions: connections may have the same best path."""
    found: list[Masks] = []
    for piece in pieces:
        if not any(all(torch.equal(piece[n], known[n]) for n in piece) for known in found):
            found.append(piece)
    return found


def _one_more(
    net: Trellis,
    ranking: Ranking,
    kept: Masks,
    budget: int,
    wanted: Wanted,
    inside: Masks | None,
) -> Masks | None:
    """Return a consistent network closer to the budget than ``kept``, or None."""
    have = count(kept)
    for piece in _pieces(net, ranking, kept):
        grown: Masks = {n: kept[n] | piece[n] for n in kept}
        extra = count(grown) - budget
        if extra > 0:
            trimmed = trim(net, ranking, grown, extra, wanted, piece, inside)
            if trimmed is None:
                continue
            grown = trimmed
        if have < count(grown) <= budget and _sound(net, grown, wanted):
            return grown
    return None


def _pieces(net: Trellis, ranking: Ranking, kept: Masks) -> Iterator[Masks]:
    """Yield completing pieces, shortest first: the most salient few of each size."""
    device = next(iter(kept.values())).device
    witness = Witness(net, thrifty(ranking, kept))
    through = witness.through()
    totals: dict[str, Tensor] = {}
    for step, value in through:
        own = witness.drawn(step)
        give(net, step.weight, (value * own).detach(), totals, torch.maximum, "amax")
    ranked: dict[int, list[tuple[float, str, int]]] = {}
    for name, total in totals.items():
        flat = torch.where(kept[name].cpu(), torch.zeros_like(total), total).reshape(-1)
        size = torch.ceil(torch.log(flat) / math.log(STEP) - 1e-9)
        for level in torch.unique(size[flat > 0]).tolist():
            mine = torch.where(size == level, flat, torch.zeros_like(flat))
            top = torch.topk(mine, min(ATTEMPTS, flat.numel()))
            found = [(-float(v), name, int(i)) for v, i in zip(*top, strict=True) if v > 0]
            ranked.setdefault(int(level), []).extend(found)
    for level in sorted(ranked)[:LEVELS]:
        for _, name, place in sorted(ranked[level])[:ATTEMPTS]:
            piece = _piece(net, witness, through, name, place)
            if ranking.allowed is not None:
                piece = {n: m & ranking.allowed[n].cpu() for n, m in piece.items()}
            yield {n: m.to(device) for n, m in piece.items()}


@torch.enable_grad()
def _piece(
    net: Trellis, witness: Witness, through: list[tuple[Contract, Tensor]], name: str, place: int
) -> Masks:
    """Return the best path through one connection, as masks."""
    best: Tensor | None = None
    for step, value in through:
        if name not in names_in(step.weight):
            continue
        positions = step.weight.positions() - net.offsets[name]
        here = torch.where(positions == place, value, torch.zeros_like(value)).max()
        best = here if best is None or bool(here > best) else best
    assert best is not None
    marks = witness.mark(torch.log(best))
    marks[name].view(-1)[place] = True
    return marks


def _nothing(masks: Masks) -> Masks:
    return {n: torch.zeros_like(m) for n, m in masks.items()}


def trim(
    net: Trellis,
    ranking: Ranking,
    kept: Masks,
    extra: int,
    wanted: Wanted,
    spare: Masks,
    inside: Masks | None = None,
) -> Masks | None:
    """Remove ``extra`` connections that nothing else depends on, worst first.

    Connections in ``spare`` go last, those ``inside`` never.
    """
    now = {n: k.clone() for n, k in kept.items()}
    able = now if inside is None else {n: k & ~inside[n] for n, k in now.items()}
    order = _worst_first(ranking, {n: k & ~spare[n] for n, k in able.items()})
    order += _worst_first(ranking, {n: k & spare[n] for n, k in able.items()})
    for name, place in order[: 64 * (extra + 4)]:
        if extra == 0:
            break
        now[name].view(-1)[place] = False
        if _sound(net, now, wanted):
            extra -= 1
        else:
            now[name].view(-1)[place] = True
    return now if extra == 0 else None


def _worst_first(ranking: Ranking, kept: Masks) -> list[tuple[str, int]]:
    found: list[tuple[float, str, int]] = []
    for name, mask in kept.items():
        places = torch.nonzero(mask.reshape(-1))[:, 0]
        values = ranking.scores[name].reshape(-1)[places]
        found += [(float(v), name, int(p)) for v, p in zip(values, places, strict=True)]
    found.sort(key=lambda item: item[0])
    return [(name, place) for _, name, place in found]


def with_singles(net: Trellis, ranking: Ranking, kept: Masks, short: int) -> Masks:
    """Add up to ``short`` of the best connections that are live without other changes.

    Returns:
        The grown masks, or ``kept`` itself if nothing can be added.
    """
    if short <= 0:
        return kept
    fresh = {n: able & ~kept[n] for n, able in addable(net, kept).items()}
    if ranking.allowed is not None:
        fresh = {n: f & ranking.allowed[n] for n, f in fresh.items()}
    if count(fresh) == 0:
        return kept
    chosen = ranking.top(short, among=fresh)
    return {n: kept[n] | chosen[n] for n in kept}


def _sound(net: Trellis, kept: Masks, wanted: Wanted) -> bool:
    """Return whether the network is consistent and has what is wanted."""
    found = liveness(net, kept)
    if found.count != count(kept):
        return False
    return not wanted.missed(found)
