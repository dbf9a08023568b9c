"""Which of the kept connections are live: the exact, per-unit answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..trace.steps import Contract
from ..trace.trellis import Trellis
from .algebra import Boolean, outer
from .backward import backward
from .propagate import Propagation
from .scatter import draw, give

BOOLEAN = Boolean()


@dataclass(frozen=True, eq=False)
class Liveness:
    """``live``: kept and on a path; ``accessible``: an input reaches the tail;
    ``coaccessible``: the head leads to an output. Boolean, in the parameters' shapes.
    ``outputs``: for each output signal, which of its units an input reaches."""

    live: dict[str, Tensor]
    accessible: dict[str, Tensor]
    coaccessible: dict[str, Tensor]
    outputs: list[Tensor]

    @cached_property
    def count(self) -> int:
        return sum(int(torch.count_nonzero(mask)) for mask in self.live.values())

    @property
    def outputs_reached(self) -> int:
        return sum(int(torch.count_nonzero(mask)) for mask in self.outputs)


def propagate(net: Trellis, kept: Mapping[str, Tensor] | None) -> Propagation:
    """Boolean messages both ways. ``kept`` None: everything is."""
    device = torch.device("cpu") if kept is None else next(iter(kept.values())).device

    def weights(step: Contract) -> Tensor | None:
        if kept is None:
            if step.weight.is_view:  # type: ignore[union-attr]
                return None
            return (step.weight.carrier >= 0).to(device)  # type: ignore[union-attr]
        return draw(net, step.weight, kept)  # type: ignore[arg-type]

    return backward(Propagation(net, BOOLEAN, weights, device=device).forward())


def reached(net: Trellis, run: Propagation) -> list[Tensor]:
    none = torch.zeros((), dtype=torch.bool, device=run.device)
    return [run.depends.get(signal.id, none).expand(signal.shape) for signal in net.outputs]


def factors(run: Propagation, step: Contract) -> tuple[Tensor, Tensor, Tensor]:
    """For one contraction, broadcastable to (B, N, K): on a path by some use; tail reached;
    head leading to an output."""
    x, out, positions = step.x.id, step.out.id, step.x.shape[1]
    d, n = run.depends.get(x), run.nonzero.get(x)
    g, e = run.changes.get(out), run.enables.get(out)
    none = torch.zeros((1, 1, 1), dtype=torch.bool, device=run.device)
    live = accessible = coaccessible = none
    if d is not None:
        accessible = d.any(1, keepdim=True)
    if g is not None:
        coaccessible = g.any(1, keepdim=True).mT
    if d is not None and g is not None:
        live = outer(BOOLEAN, d, g, positions)
    if n is not None and e is not None:
        enabling = outer(BOOLEAN, n, e, positions)
        live, accessible = live | enabling, accessible | enabling
        coaccessible = coaccessible | e.any(1, keepdim=True).mT
    return live, accessible, coaccessible


def liveness(net: Trellis, kept: Mapping[str, Tensor]) -> Liveness:
    """Audit a set of kept connections (bool tensors in the parameters' shapes)."""
    run = propagate(net, kept)
    found: list[dict[str, Tensor]] = [{}, {}, {}]
    for step in net.contractions:
        w = draw(net, step.weight, kept)  # type: ignore[arg-type]
        for target, factor in zip(found, factors(run, step), strict=True):
            give(net, step.weight, w & factor, target, torch.logical_or, "amax")  # type: ignore[arg-type]
    for target in found:
        for name, shape in net.connections.items():
            if name not in target:
                target[name] = torch.zeros(shape, dtype=torch.bool, device=run.device)
    return Liveness(found[0], found[1], found[2], reached(net, run))


def dense(net: Trellis) -> dict[str, Tensor]:
    """What lives when everything is kept (taps that only see padding do not)."""
    return _everywhere(net, propagate(net, None))


def addable(net: Trellis, kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Connections, kept or not, whose tail is reached and whose head leads to an output, so
    that each could be kept and be live with no other change."""
    return _everywhere(net, propagate(net, kept))


def _everywhere(net: Trellis, run: Propagation) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for step in net.contractions:
        live = factors(run, step)[0]
        if not step.weight.is_view:  # type: ignore[union-attr]
            live = live & (step.weight.carrier >= 0).to(run.device)  # type: ignore[union-attr]
        give(net, step.weight, live, found, torch.logical_or, "amax")  # type: ignore[arg-type]
    return found
