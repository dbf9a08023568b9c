"""Liveness: which kept connections are on a path from an input to an output, and best such paths.

Messages meet at the weight of a contraction; `spread` moves what they say to its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..graph.steps import Contract, Weight
from ..graph.trellis import Trellis, names_in
from .algebra import FEW, BestPath, Boolean, MaxTimes, outer, paired_rows
from .kernels import CPU, Edges, Places, at_once, count_all, is_cpu, matrix_layout, through_each
from .propagate import Propagation, backward

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
        how = matrix_layout(net, weight)
        if how is not None and is_cpu(kept.device):
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


BEST = MaxTimes(limit=1 << 62)


def draw(net: Trellis, weight: Weight, tensors: Mapping[str, Tensor]) -> Tensor:
    """Arrange entries of ``tensors`` (contiguous, in the parameters' shapes) as this weight does.

    The result is a view where possible. Places without a connection are zero.
    """
    if weight.is_view:
        assert weight.name is not None
        return _seen_as(weight, tensors[weight.name])
    out: Tensor | None = None
    for name in names_in(weight):
        source = tensors[name].reshape(-1)
        places = net.on(weight.carrier, source.device) - weight.offsets[name]
        mine = (places >= 0) & (places < source.numel())
        part = torch.where(mine, source[places.clamp(0, source.numel() - 1)], 0)
        out = (
            part.to(source.dtype) if out is None else torch.where(mine, part, out).to(source.dtype)
        )
    assert out is not None
    return out


def spread(
    net: Trellis, weight: Weight, w: Tensor, x: Tensor, g: Tensor, into: dict[str, Tensor]
) -> None:
    """Join max over r of x[b, r, k] · g[b, r, n] · w[b, n, k] into parameter-shaped tensors.

    If the weight is a whole parameter, the result is written in place, in pieces.
    """
    name = weight.name
    whole = (
        weight.is_view
        and 0 not in _strides(weight)
        and name is not None
        and (w.numel() == math.prod(net.connections[name]))
    )
    many = w.dtype == torch.bool and x.shape[1] > FEW
    if not whole or (many and (is_cpu(w) or not at_once(x.shape[1], w))):
        factor = outer(BOOLEAN if w.dtype == torch.bool else BEST, x, g, x.shape[1])
        values = (w & factor) if w.dtype == torch.bool else (w * factor).abs_()
        give(
            net,
            weight,
            values,
            into,
            torch.maximum if w.is_floating_point() else torch.logical_or,
            "amax",
        )
        return
    assert name is not None
    join = name in into
    if not join:
        into[name] = torch.empty(net.connections[name], dtype=w.dtype, device=w.device)
    target = _seen_as(weight, into[name])
    b, n, k = w.shape
    x, g = x.expand(b, -1, k), g.expand(b, -1, n)
    through_each(x, g, w, target, join)


def give(
    net: Trellis,
    weight: Weight,
    values: Tensor,
    into: dict[str, Tensor],
    join: Callable[[Tensor, Tensor], Tensor],
    reduce: str,
) -> None:
    """Join ``values`` (broadcastable to (B, N, K)) into parameter-shaped tensors.

    Names absent from ``into`` are written; ``reduce`` is the name that
    `Tensor.scatter_reduce_` has for the same join.
    """
    if weight.is_view and 0 not in _strides(weight):
        assert weight.name is not None
        shape = net.connections[weight.name]
        full = math.prod(weight.shape) == math.prod(shape)
        first = weight.name not in into
        if first:
            make = torch.empty if full else torch.zeros
            into[weight.name] = make(shape, dtype=values.dtype, device=values.device)
        target = _seen_as(weight, into[weight.name])
        target.copy_(values if first else join(target, values.expand(target.shape)))
        return
    flat = values.expand(weight.shape).reshape(-1)
    positions = net.on(weight.positions(), values.device).reshape(-1)
    for name in names_in(weight):
        size = math.prod(net.connections[name])
        if name not in into:
            into[name] = torch.zeros(
                net.connections[name], dtype=values.dtype, device=values.device
            )
        places = positions - weight.offsets[name]
        mine = (places >= 0) & (places < size)
        target = into[name].view(-1)
        if target.dtype == torch.bool:
            counts = torch.zeros(size, dtype=torch.int32, device=target.device)
            counts.index_add_(0, places[mine], flat[mine].to(torch.int32))
            target |= counts > 0
        else:
            target.scatter_reduce_(0, places[mine], flat[mine], reduce, include_self=True)


def _strides(weight: Weight) -> list[int]:
    view = weight.carrier
    return [s for s, n in zip(view.stride(), view.shape, strict=True) if n > 1]


def _seen_as(weight: Weight, tensor: Tensor) -> Tensor:
    """View a parameter-shaped, contiguous tensor as the weight does.

    The tensor may begin anywhere in its storage: parameters are often views of one long vector.
    """
    view = weight.carrier
    place = int(tensor.storage_offset()) + int(view.storage_offset())
    return tensor.as_strided(view.shape, view.stride(), place)


# Witnesses: best paths, which show that a set of connections reaches the outputs.


class Witness:
    """Find best paths under positive ``weights`` (float64, zero where nothing may be kept).

    Of several equally good paths, every device finds the same one: the first.
    """

    def __init__(
        self, net: Trellis, weights: Mapping[str, Tensor], device: torch.device = CPU
    ) -> None:
        self.net, self.device = net, device
        self.leaves = {
            name: w.detach().to(device, torch.float64).requires_grad_()
            for name, w in weights.items()
        }

        def drawn(step: Contract) -> Tensor:
            return draw(net, step.weight, self.leaves)

        self.drawn = drawn
        with torch.enable_grad():
            self.run = Propagation(net, BestPath(), drawn, device=device).forward()

    def outputs(self) -> list[Tensor]:
        """Return the weight of the best path to each output unit."""
        none = torch.zeros((), dtype=torch.float64, device=self.device)
        return [self.run.depends.get(s.id, none).expand(s.shape) for s in self.net.outputs]

    def mark(self, value: Tensor) -> dict[str, Tensor]:
        """Return the connections that determine ``value``, a sum of messages."""
        if not value.requires_grad:
            return {n: torch.zeros_like(w, dtype=torch.bool) for n, w in self.leaves.items()}
        names = list(self.leaves)
        grads = torch.autograd.grad(
            value, [self.leaves[n] for n in names], retain_graph=True, allow_unused=True
        )
        return {
            n: torch.zeros_like(self.leaves[n], dtype=torch.bool) if g is None else g != 0
            for n, g in zip(names, grads, strict=True)
        }

    @torch.enable_grad()
    def to_outputs(self, wanted: list[Tensor]) -> dict[str, Tensor]:
        """Return the best paths to the output units in ``wanted`` (bool, for each output)."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for value, mask in zip(self.outputs(), wanted, strict=True):
            total = total + torch.log(value[mask & (value > 0)]).sum()
        return self.mark(total)

    def through(self) -> list[tuple[Contract, Tensor]]:
        """Return, for each contraction, the best weight through each connection (B, N, K).

        The weight of the connection itself is left out.
        """
        with torch.enable_grad():
            backward(self.run)
            found = []
            for step in self.net.contractions:
                total: Tensor | None = None
                for tail, head in (
                    (self.run.depends, self.run.changes),
                    (self.run.nonzero, self.run.enables),
                ):
                    x, g = tail.get(step.x.id), head.get(step.out.id)
                    if x is None or g is None:
                        continue
                    x, g = (t.expand(step.x.shape[0], step.x.shape[1], -1) for t in (x, g))
                    part = (g[:, :, :, None] * x[:, :, None, :]).max(1).values
                    total = part if total is None else torch.where(total >= part, total, part)
                if total is not None:
                    found.append((step, total.expand(step.weight.shape)))
            return found
