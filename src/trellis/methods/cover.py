"""What a consistent network must cover, every output and every layer, and paths that cover it.

The best path to each output and through each layer is reserved before the rest is chosen. If the
budget is too small for these, a greedy search finds paths with fewer connections.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import TrellisError
from ..graph.steps import Contract
from ..graph.trellis import Trellis, names_in
from ..paths.kernels import CPU, TAKES_ALL, Places
from ..paths.kernels import count as count_units
from ..paths.liveness import Liveness, Witness, dense, liveness, propagate, reached
from ..paths.propagate import backward
from .budget import Ranking, count

Masks = Mapping[str, Tensor]


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


@dataclass(frozen=True, eq=False)
class Wanted:
    """What a consistent network must have.

    Args:
        outputs: The output units that it reaches, a mask for each output signal; None if any do.
        layers: The parameters that it has live connections in.
    """

    outputs: list[Tensor] | None
    layers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.outputs is not None or bool(self.layers)

    def __or__(self, other: Wanted) -> Wanted:
        outputs = other.outputs if self.outputs is None else self.outputs
        return Wanted(outputs, tuple(dict.fromkeys((*self.layers, *other.layers))))

    def lost(self, live: Masks) -> tuple[str, ...]:
        """Return the layers in which nothing is live."""
        gone = emptied(live) if self.layers else []
        return tuple(name for name in self.layers if name in gone)

    def misses_outputs(self, found: Liveness) -> bool:
        return self.outputs is not None and misses(found.outputs, self.outputs)

    def missed(self, found: Liveness) -> bool:
        """Return whether a network lacks any of it."""
        return self.misses_outputs(found) or bool(self.lost(found.live))


def emptied(live: Masks) -> list[str]:
    """Return the parameters of which nothing is kept."""
    if isinstance(live, Places):
        return [name for name, places in live.places.items() if not len(places)]
    return [name for name, mask in live.items() if not bool(mask.any())]


def wanted_layers(net: Trellis, ranking: Ranking) -> tuple[str, ...]:
    """Return the parameters that are live in the unpruned network."""
    live = all_live(net, ranking)
    gone = emptied(live)
    return tuple(name for name in live if name not in gone)


def reserve(net: Trellis, ranking: Ranking, budget: int, need: Wanted, every: Wanted) -> Masks:
    """Return connections that reach all outputs and layers in ``need``.

    These are the best path to each output, and through each layer. If that exceeds the budget, a
    greedy search finds fewer; it then covers ``every`` output and layer that may be needed.
    """
    covers = [covered(net, ranking, need)]
    if count(covers[0]) <= budget:
        return covers[0]
    for each in (need, every) if every.layers else (need,):
        covers.append(thrifty_cover(net, ranking, each))
        if count(covers[-1]) <= budget:
            return covers[-1]
    works = count(covers[-1]) if every.layers else min(count(c) for c in covers)
    goals, ways = [], []
    if every.outputs is not None:
        goals.append(f"reach all {sum(count_units(p) for p in every.outputs)} outputs")
        ways.append("cover_outputs=False")
    if every.layers:
        goals.append(f"keep all {len(every.layers)} layers alive")
        ways.append("cover_layers=False")
    raise TrellisError(
        f"a budget of {budget} is too small to {' and '.join(goals)}; keep={works} works, or "
        f"{' or '.join(ways)}"
    )


# Paths to every output, which are reserved before the rest is chosen.


STEP = 2.0**-8  # cost of a new connection, as a factor; one that is already kept costs nothing


def misses(outputs: list[Tensor], wanted: list[Tensor]) -> bool:
    """Return whether a wanted output unit is not reached. Masks are per output signal."""
    return any(bool((w & ~o).any()) for o, w in zip(outputs, wanted, strict=True))


def relative(ranking: Ranking) -> dict[str, Tensor]:
    """Return the saliency of each tensor relative to its largest, in (0, 1]; 0 if not allowed.

    Allowed connections are never 0: one without saliency may still be needed.
    """
    found = {}
    for name, saliency in ranking.saliency.items():
        w = saliency.to(torch.float64)
        if w.numel():
            w = w - w.min().clamp(max=0.0)  # from zero up
            top = w.max()
            w = (w / top if top > 0 else torch.ones_like(w)).clamp(min=1e-4)
        found[name] = w if ranking.allowed is None else w * ranking.allowed[name]
    return found


def best_cover(net: Trellis, ranking: Ranking, wanted: list[Tensor]) -> dict[str, Tensor]:
    """Return the best path to each wanted output unit."""
    device = ranking.device if net.uses <= TAKES_ALL else CPU
    witness = Witness(net, relative(ranking), device)
    return _as(ranking, witness.to_outputs([w.to(device) for w in wanted]))


def thrifty(ranking: Ranking, kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under which the best path has the fewest new connections.

    Ties are broken by saliency.
    """
    return {
        name: torch.where(
            kept[name].cpu(), (w.cpu() > 0).to(w.dtype), STEP * (1 + w.cpu()) / 2 * (w.cpu() > 0)
        )
        for name, w in relative(ranking).items()
    }


def covered(net: Trellis, ranking: Ranking, wanted: Wanted) -> Masks:
    """Return the best path to each wanted output, and through each wanted layer that it misses."""
    kept: Masks = nothing(ranking)
    if wanted.outputs is not None:
        kept = best_cover(net, ranking, wanted.outputs)
    lost = wanted.lost(kept)
    if not lost:
        return kept
    device = ranking.device if net.uses <= TAKES_ALL else CPU
    found = _as(ranking, through_layers(net, Witness(net, relative(ranking), device), lost))
    return {name: kept[name] | found[name] for name in found}


def thrifty_cover(net: Trellis, ranking: Ranking, wanted: Wanted) -> Masks:
    """Return paths to wanted outputs and through wanted layers, with few new connections.

    Outputs or layers come first, whichever needs fewer connections.
    """
    kept: Masks = nothing(ranking)
    if wanted.outputs is not None:
        kept = _to_outputs(net, ranking, one_path(net, ranking), wanted.outputs)
    if not wanted.layers:
        return kept
    kept = _through_lost(net, ranking, kept, wanted, reward=1.0)
    other = _through_lost(net, ranking, nothing(ranking), wanted, reward=4 / STEP)
    if wanted.outputs is not None:
        other = _to_outputs(net, ranking, other, wanted.outputs)
    return min(kept, other, key=count)


def _to_outputs(net: Trellis, ranking: Ranking, kept: Masks, wanted: list[Tensor]) -> Masks:
    """Add paths to outputs, with few new connections."""
    witness = Witness(net, thrifty(ranking, kept))
    rest = _as(ranking, witness.to_outputs([w.cpu() for w in wanted]))
    return {name: kept[name] | rest[name] for name in rest}


def _through_lost(
    net: Trellis, ranking: Ranking, kept: Masks, wanted: Wanted, reward: float
) -> Masks:
    """Add a path through each layer that has no connection yet, one after another.

    ``reward`` above 1 prefers paths that pass several such layers.
    """
    for layer in wanted.layers:
        lost = wanted.lost(kept)
        if layer in lost:
            weights = thrifty(ranking, kept)
            weights |= {name: weights[name] * reward for name in lost}
            rest = _as(ranking, through_layers(net, Witness(net, weights), (layer,)))
            kept = {name: kept[name] | rest[name] for name in rest}
    return kept


@torch.enable_grad()
def through_layers(net: Trellis, witness: Witness, layers: Sequence[str]) -> Masks:
    """Return a best path through each layer, as masks.

    A layer's uses are compared by the best tail and head of each position. The path is the best one
    through the winning position.
    """
    backward(witness.run)
    total = torch.zeros((), dtype=torch.float64, device=witness.device)
    for name in layers:
        uses = [step for step in net.contractions if name in names_in(step.weight)]
        found = [value for use in uses if (value := _through(net, witness, use, name)) is not None]
        if found:
            total = total + torch.log(max(found, key=lambda value: float(value.detach())))
    return witness.mark(total)


def _through(net: Trellis, witness: Witness, step: Contract, name: str) -> Tensor | None:
    """Return the weight of a best path through one use of a parameter, or None."""
    run = witness.run
    pairs = ((run.depends, run.changes), (run.nonzero, run.enables))
    best: Tensor | None = None
    w = witness.drawn(step)  # (B, N, K)
    mine = torch.ones((), dtype=torch.bool, device=w.device)
    if len(names_in(step.weight)) > 1:
        places = net.on(step.weight.carrier, w.device) - step.weight.offsets[name]
        mine = (places >= 0) & (places < math.prod(net.connections[name]))
    for tails, heads in pairs:
        x, g = tails.get(step.x.id), heads.get(step.out.id)
        if x is None or g is None:
            continue
        rows = max(x.shape[1], g.shape[1])
        x, g = x.expand(len(w), rows, w.shape[2]), g.expand(len(w), rows, w.shape[1])
        level = (x.detach().amax(2) * g.detach().amax(2)).reshape(-1)
        for place in level.argsort(descending=True, stable=True).tolist():
            if not level[place] > 0 or (best is not None and level[place] <= best.detach()):
                break
            b, r = divmod(place, rows)
            uses = w[b].detach() * x[b, r].detach() * g[b, r].detach()[:, None]  # (N, K)
            uses = uses * (mine if mine.ndim == 0 else mine[b])
            n, k = divmod(int(uses.argmax()), w.shape[2])
            if uses[n, k] > 0:
                value = w[b, n, k] * x[b, r, k] * g[b, r, n]
                best = value if best is None or bool(value > best) else best
                break
    return best


def one_path(net: Trellis, ranking: Ranking) -> dict[str, Tensor]:
    """Return the path of fewest connections from an input to an output."""
    none = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in ranking.shapes.items()}
    witness = Witness(net, thrifty(ranking, none))
    values = witness.outputs()
    flat = torch.cat([v.detach().reshape(-1) for v in values])
    place = int(flat.argmax())
    wanted = []
    for value in values:
        mask = torch.zeros(value.numel(), dtype=torch.bool)
        if 0 <= place < value.numel():
            mask[place] = True
        place -= value.numel()
        wanted.append(mask.reshape(value.shape))
    return _as(ranking, witness.to_outputs(wanted))


def _as(ranking: Ranking, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: mask.to(ranking.device) for name, mask in masks.items()}
