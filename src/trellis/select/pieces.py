"""The last few connections, where no single one can be added.

A piece is a whole path through units that nothing reaches yet. It may overshoot the budget;
then connections that nothing depends on are trimmed elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ..paths.liveness import addable, liveness
from ..paths.scatter import give
from ..paths.witness import Witness
from ..trace.steps import Contract
from ..trace.trellis import Trellis, names_in
from .cover import STEP, misses, one_path, thrifty, thrifty_cover
from .ranking import Ranking, count

Masks = Mapping[str, Tensor]
ATTEMPTS = 6  # pieces of each size
LEVELS = 6  # sizes
NODES = 60  # of the search in small networks
LARGEST = 1 << 22  # uses; beyond, what is missing is a sliver of a sliver
SMALL = 1 << 14  # uses; beyond, single connections never run out


def complete(
    net: Trellis,
    ranking: Ranking,
    kept: Masks,
    budget: int,
    wanted: list[Tensor] | None,
    inside: Masks | None = None,
) -> Masks:
    """Bring ``kept`` to exactly ``budget`` connections if pieces and trims can; otherwise
    return the most that was found below it. ``wanted`` outputs stay reached, and the consistent
    network ``inside``, if one is named, stays whole."""
    best = kept
    while count(best) < budget and net.uses <= LARGEST:
        found = _one_more(net, ranking, best, budget, wanted, inside)
        if found is None:
            break
        best = with_singles(net, ranking, found, budget - count(found))  # new units are live
    if budget - count(best) > 0 and net.uses <= SMALL:
        base = inside
        if base is None:
            base = _nothing(best) if wanted is None else thrifty_cover(net, ranking, wanted)
        found = _assemble(net, ranking, base, budget, [NODES])
        if found is not None and _sound(net, found, wanted):
            return found
    return best


def smallest(net: Trellis, ranking: Ranking) -> Masks:
    """The consistent network of fewest connections, at least one, that a search finds.

    Beside a bare wire from input to output the shortest path has no connection at all; then the
    shortest completing piece is meant.
    """
    path = one_path(net, ranking)
    if count(path) or net.uses > LARGEST:
        return path
    return next(iter(_pieces(net, ranking, path)), path)


def _assemble(
    net: Trellis, ranking: Ranking, kept: Masks, budget: int, nodes: list[int]
) -> Masks | None:
    """Build up to exactly ``budget`` from pieces, trying other sizes where one leads nowhere.

    For small networks, where the best choice so far left a number that no piece has.
    """
    rest = budget - count(kept)
    if rest == 0:
        return kept
    if nodes[0] <= 0 or rest < 0:
        return None
    sizes: dict[int, int] = {}
    pieces = _pieces(net, ranking, kept)
    new = [count({n: p[n] & ~kept[n] for n in p}) for p in pieces]
    # A piece that ends it first, then large ones: small ones are easy to add later.
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


def _one_more(
    net: Trellis,
    ranking: Ranking,
    kept: Masks,
    budget: int,
    wanted: list[Tensor] | None,
    inside: Masks | None,
) -> Masks | None:
    """A consistent network closer to the budget than ``kept``, or None."""
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


def _pieces(net: Trellis, ranking: Ranking, kept: Masks) -> list[Masks]:
    """Completing pieces, shortest first: a few of each size, the most salient ones."""
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
    pieces: list[Masks] = []
    for level in sorted(ranked)[:LEVELS]:
        for _, name, place in sorted(ranked[level])[:ATTEMPTS]:
            piece = _piece(net, witness, through, name, place)
            if ranking.allowed is not None:
                piece = {n: m & ranking.allowed[n].cpu() for n, m in piece.items()}
            pieces.append({n: m.to(device) for n, m in piece.items()})
    return pieces


@torch.enable_grad()
def _piece(
    net: Trellis, witness: Witness, through: list[tuple[Contract, Tensor]], name: str, place: int
) -> Masks:
    """The best path through one connection, as masks."""
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
    wanted: list[Tensor] | None,
    spare: Masks,
    inside: Masks | None = None,
) -> Masks | None:
    """Take away ``extra`` connections that nothing else depends on, worst first, and ``spare``
    ones last; none of those ``inside``."""
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
    """``kept`` and up to ``short`` more, the best of those that are live with no other change:
    their tails are reached and their heads lead on. ``kept`` itself where there are none."""
    if short <= 0:
        return kept
    fresh = {n: able & ~kept[n] for n, able in addable(net, kept).items()}
    if ranking.allowed is not None:
        fresh = {n: f & ranking.allowed[n] for n, f in fresh.items()}
    if count(fresh) == 0:
        return kept
    chosen = ranking.top(short, among=fresh)
    return {n: kept[n] | chosen[n] for n in kept}


def _sound(net: Trellis, kept: Masks, wanted: list[Tensor] | None) -> bool:
    """Consistent, and reaching what it must."""
    found = liveness(net, kept)
    if found.count != count(kept):
        return False
    return wanted is None or not misses(found.outputs, wanted)
