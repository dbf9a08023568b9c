"""Liveness: which kept connections are on a path from an input to an output, unit by unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..graph.steps import Contract, Weight
from ..graph.trellis import Trellis
from .algebra import Boolean, outer, paired_rows
from .kernels import count_all, on_cpu
from .propagate import Propagation, backward
from .scatter import draw, give, spread
from .sparse import Edges, Places, layout

BOOLEAN = Boolean()
Masks = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Liveness:
    """Hold the result of `liveness`.

    ``live`` has a boolean tensor in the shape of each parameter: kept, and on a path. ``outputs``
    says for each output signal which of its units an input reaches. ``run`` has the messages.
    """

    live: Mapping[str, Tensor]
    outputs: list[Tensor]
    run: Propagation

    @cached_property
    def count(self) -> int:
        if isinstance(self.live, Places):
            return self.live.count
        return count_all(self.live.values())

    @property
    def outputs_reached(self) -> int:
        return count_all(self.outputs)


def propagate(net: Trellis, kept: Mapping[str, Tensor] | None) -> Propagation:
    """Propagate boolean messages forward and backward; ``kept`` None means that all are kept."""
    device = torch.device("cpu") if kept is None else _device(kept)
    known: dict[int, Tensor | Edges] = {}

    def weights(step: Contract) -> Tensor | Edges | None:
        if kept is None:
            if step.weight.is_view:
                return None
            return (step.weight.carrier >= 0).to(device)
        if step.out.id not in known:
            known[step.out.id] = _drawn(net, step.weight, kept)
        return known[step.out.id]

    return backward(Propagation(net, BOOLEAN, weights, device=device).forward())


def _device(kept: Mapping[str, Tensor]) -> torch.device:
    return kept.device if isinstance(kept, Places) else next(iter(kept.values())).device


def _drawn(net: Trellis, weight: Weight, kept: Mapping[str, Tensor]) -> Tensor | Edges:
    """Return the kept connections as a list if their places are known, else as a mask."""
    if isinstance(kept, Places):
        how = layout(net, weight)
        if how is not None and on_cpu(kept.device):
            return Edges.of(how, kept.places[str(weight.name)])
    return draw(net, weight, kept)


def reached(net: Trellis, run: Propagation) -> list[Tensor]:
    none = torch.zeros((), dtype=torch.bool, device=run.device)
    return [run.depends.get(signal.id, none).expand(signal.shape) for signal in net.outputs]


def live_factors(run: Propagation, step: Contract) -> list[tuple[Tensor, Tensor]]:
    """Return pairs of messages, of tails (b, m, k) and heads (b, m, n), that make a use live.

    The pairs are depends with changes, and nonzero with enables.
    """
    x, out = step.x.id, step.out.id
    pairs = ((run.depends.get(x), run.changes.get(out)), (run.nonzero.get(x), run.enables.get(out)))
    return [(tail, head) for tail, head in pairs if tail is not None and head is not None]


def liveness(net: Trellis, kept: Mapping[str, Tensor]) -> Liveness:
    """Find the live part of kept connections (bool tensors in the parameters' shapes)."""
    run = propagate(net, kept)
    live: Masks = {}
    marks: Masks = {}  # which places are live, for weights whose connections are listed
    for step in net.contractions:
        w = run.weight(step)
        for tail, head in live_factors(run, step):
            x, g = paired_rows(BOOLEAN, tail, head, step.x.shape[1], run.rows)
            if isinstance(w, Edges):
                name, here = str(step.weight.name), w.between(x, g)
                marks[name] = marks[name] | here if name in marks else here
            elif w is not None:
                spread(net, step.weight, w, x, g, live)
    if isinstance(kept, Places):
        return Liveness(kept.among(live, marks), reached(net, run), run)
    return Liveness(_complete(net, live, run.device), reached(net, run), run)


def ends(net: Trellis, kept: Mapping[str, Tensor], run: Propagation) -> tuple[Masks, Masks]:
    """Return the kept connections that an input reaches, and those that lead to an output."""
    accessible: Masks = {}
    coaccessible: Masks = {}
    for step in net.contractions:
        w = draw(net, step.weight, kept)
        tail, head = run.depends.get(step.x.id), run.changes.get(step.out.id)
        n, e = run.nonzero.get(step.x.id), run.enables.get(step.out.id)
        one = torch.ones((1, 1, 1), dtype=torch.bool, device=run.device)
        if tail is not None:
            spread(net, step.weight, w, BOOLEAN.reduce(tail, (1,), ()), one, accessible)
        if head is not None:
            spread(net, step.weight, w, one, BOOLEAN.reduce(head, (1,), ()), coaccessible)
        if n is not None and e is not None:
            x, g = paired_rows(BOOLEAN, n, e, step.x.shape[1], run.rows)
            spread(net, step.weight, w, x, g, accessible)
            spread(net, step.weight, w, one, BOOLEAN.reduce(e, (1,), ()), coaccessible)
    return _complete(net, accessible, run.device), _complete(net, coaccessible, run.device)


def dense(net: Trellis) -> Masks:
    """Return what is live if everything is kept; kernel entries that see only padding are not."""
    return _everywhere(net, propagate(net, None))


def addable(net: Trellis, kept: Mapping[str, Tensor]) -> Masks:
    """Return the connections, kept or not, that would be live if kept, without another change.

    Their tail is reached by an input, and their head leads to an output.
    """
    return _everywhere(net, propagate(net, kept))


def _everywhere(net: Trellis, run: Propagation) -> Masks:
    found: Masks = {}
    for step in net.contractions:
        for tail, head in live_factors(run, step):
            live = outer(BOOLEAN, tail, head, step.x.shape[1], run.rows)
            if not step.weight.is_view:
                live = live & (step.weight.carrier >= 0).to(run.device)
            give(net, step.weight, live, found, torch.logical_or, "amax")
    return _complete(net, found, run.device)


def _complete(net: Trellis, masks: Masks, device: torch.device) -> Masks:
    """Add an all-false mask for each parameter that no message reached."""
    for name, shape in net.connections.items():
        if name not in masks:
            masks[name] = torch.zeros(shape, dtype=torch.bool, device=device)
    return masks
