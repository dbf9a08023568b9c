"""Scores: how much weight runs through each connection."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..trace.steps import Contract
from ..trace.trellis import Trellis
from .algebra import CHUNK, MaxTimes, SumTimes, outer
from .backward import backward
from .propagate import Propagation
from .scatter import draw, give

# Beyond this many uses per connection, positions at padded borders are told apart no more.
COARSE = 32


def best_path(net: Trellis, saliency: Mapping[str, Tensor], *, exact: bool = False) -> dict[str, Tensor]:
    """For each connection, the largest product of ``saliency`` along a path through it.

    ``saliency`` is float32, not negative, in the parameters' shapes. Scores are scaled by one
    power of two for the whole network, so that the best is near one. In networks whose weights
    are used in very many places (images of full size) borders are treated like the interior
    unless ``exact``: then scores are upper bounds.
    """
    device = next(iter(saliency.values())).device
    algebra = MaxTimes(limit=1 << 62) if exact else MaxTimes()
    coarse = not exact and net.uses > COARSE * net.total and net.uses > 1 << 24

    def weights(step: Contract) -> Tensor:
        return draw(net, step.weight, saliency)  # type: ignore[arg-type]

    run = Propagation(net, algebra, weights, wires=True, coarse=coarse, device=device)
    backward(run.forward())
    parts = []
    for step in net.contractions:
        x, g = run.depends.get(step.x.id), run.changes.get(step.out.id)
        if x is None or g is None:
            continue
        power = run.exponents.get(step.x.id, 0) + run.back_exponents.get(step.out.id, 0)
        parts.append((step, outer_parts(algebra, x, g, step.x.shape[1]), power))
    top = max((power for _, _, power in parts), default=0)
    scores: dict[str, Tensor] = {}
    for step, (tails, heads, whole), power in parts:
        scale = 2.0 ** max(power - top, -1000)
        w = weights(step)
        write(net, step, w, tails, heads, whole, scale, scores)
    for name, shape in net.connections.items():
        scores.setdefault(name, torch.zeros(shape, device=device))
    return scores


def outer_parts(
    algebra: MaxTimes, x: Tensor, g: Tensor, positions: int
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The factor of each connection: as tails (b, 1, k) and heads (b, n, 1) where positions are
    uniform, else as a whole (B, N, K)."""
    if x.shape[1] == 1 and g.shape[1] == 1:
        return x, g.mT, None
    return None, None, outer(algebra, x, g, positions)


def write(
    net: Trellis, step: Contract, w: Tensor, tails: Tensor | None, heads: Tensor | None,
    whole: Tensor | None, scale: float, into: dict[str, Tensor],
) -> None:
    """Score = factor · saliency, joined over the uses of each connection."""
    weight = step.weight
    if whole is not None:
        values = whole * w
        values *= scale
        give(net, weight, values, into, torch.maximum, "amax")  # type: ignore[arg-type]
        return
    assert tails is not None and heads is not None
    heads = heads * scale
    name = weight.name  # type: ignore[union-attr]
    alone = weight.is_view and name not in into and w.numel() == _size(net, name)  # type: ignore[union-attr]
    if not alone or w.numel() <= CHUNK or w.shape[0] > 1:
        give(net, weight, w * tails * heads, into, torch.maximum, "amax")  # type: ignore[arg-type]
        return
    # Large and used once: in pieces that stay in cache, along the dimension furthest apart.
    out = torch.empty(net.connections[name], device=w.device, dtype=w.dtype)
    into[name] = out
    view = weight.carrier  # type: ignore[union-attr]
    target = out.as_strided(view.shape, view.stride(), int(view.storage_offset()))[0]
    w, tails, heads = w[0], tails[0].expand(1, w.shape[2]), heads[0].expand(w.shape[1], 1)
    if w.stride(0) < w.stride(1):
        w, target, tails, heads = w.mT, target.mT, heads.mT, tails.mT
    size = max((CHUNK if w.device.type == "cpu" else CHUNK << 6) // w.shape[1], 1)
    for a in range(0, w.shape[0], size):
        piece = target[a : a + size]
        torch.mul(w[a : a + size], tails, out=piece)
        piece.mul_(heads[a : a + size])


def _size(net: Trellis, name: str) -> int:
    size = 1
    for n in net.connections[name]:
        size *= n
    return size


def path_sum(net: Trellis, saliency: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """For each connection, the summed product of ``saliency`` over all paths through it.

    SynFlow's score, in float64 on the CPU, rounded to float32 so that the order in which sums
    are taken leaves no trace.
    """
    double = {name: s.detach().cpu().to(torch.float64) for name, s in saliency.items()}
    algebra = SumTimes()

    def weights(step: Contract) -> Tensor:
        return draw(net, step.weight, double)  # type: ignore[arg-type]

    run = backward(Propagation(net, algebra, weights, wires=True).forward())
    scores: dict[str, Tensor] = {}
    for step in net.contractions:
        x, g = run.depends.get(step.x.id), run.changes.get(step.out.id)
        if x is None or g is None:
            continue
        values = outer(algebra, x, g, step.x.shape[1]) * weights(step)
        give(net, step.weight, values, scores, torch.add, "sum")  # type: ignore[arg-type]
    top = max((float(s.max()) for s in scores.values()), default=1.0) or 1.0
    return {
        name: (scores[name] / top).to(torch.float32)
        if name in scores
        else torch.zeros(shape)
        for name, shape in net.connections.items()
    }
