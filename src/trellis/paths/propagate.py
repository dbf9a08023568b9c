"""Messages through a trellis: forward from the inputs, backward from the outputs.

Two bits per unit settle gates, constants and biases. Forward: *depends* (the input reaches it)
and *nonzero* (it is not identically zero). Backward: *changes* (a change here changes an
output) and *enables* (being non-zero here lets an input reach an output). In other algebras
the same formulas run with other values. ``wires=True`` treats a product of signals as two
wires instead, with one message each way: right for scores, which want plain path products.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..graph import steps
from ..graph.steps import Signal
from ..graph.trellis import Trellis
from .algebra import Algebra, Rows, contract, regroup
from .kernels import Edges, as_bytes

# The weight of a contraction, (B, N, K), in an algebra; None for all ones.
Weights = Callable[[steps.Contract], Tensor | Edges | None]
Message = Tensor | None


class Propagation:
    """Compute forward and backward messages of one trellis in one algebra.

    After `forward`, ``depends`` and ``nonzero`` hold a message per signal id; after
    `backward`, ``changes`` and ``enables``. Messages that are zero everywhere are absent.
    ``coarse`` lets zero padding keep positions uniform, which is an upper bound.
    """

    def __init__(
        self,
        net: Trellis,
        algebra: Algebra,
        weights: Weights,
        *,
        wires: bool = False,
        coarse: bool = False,
        device: torch.device | None = None,
    ) -> None:
        self.net, self.algebra, self.weights = net, algebra, weights
        self.wires = wires
        self.paired = net.gated and not wires
        self.coarse = coarse
        self.device = device or torch.device("cpu")
        self.rows = Rows()
        self.depends: dict[int, Tensor] = {}
        self.nonzero: dict[int, Tensor] = {}
        self.changes: dict[int, Tensor] = {}
        self.enables: dict[int, Tensor] = {}
        self.finite = True  # whether all forward messages of contractions are finite
        self.exponents: dict[int, int] = {}
        self.back_exponents: dict[int, int] = {}

    # -- forward ---------------------------------------------------------------------------

    def forward(self) -> Propagation:
        for step in self.net.steps:
            self.visit(step)
        return self

    def visit(self, step: steps.Step) -> None:
        """Compute the messages of ``step.out`` from those of its inputs."""
        d, n = self.depends, self.nonzero
        out = step.out.id
        if isinstance(step, steps.Source):
            self.source(step)
        elif isinstance(step, steps.Bias):
            _set(d, out, d.get(step.x.id))
            self.exponents[out] = self.exponents.get(step.x.id, 0)
            if self.paired:
                _set(n, out, self.plus(n.get(step.x.id), self.ones(step.nonzero, step.out)))
        elif isinstance(step, steps.Gate | steps.Product) and self.paired:
            dx, nx = d.get(step.x.id), n.get(step.x.id)
            dy, ny = d.get(step.y.id), n.get(step.y.id)
            _set(n, out, self.multiply(step, nx, ny))
            _set(d, out, self.plus(self.multiply(step, dx, ny), self.multiply(step, nx, dy)))
        else:
            _set(d, out, self.push(step, d))
            if self.paired:
                _set(n, out, self.push(step, n))

    def source(self, step: steps.Source) -> None:
        one = self.ones(step.nonzero, step.out)
        if step.depends or (step.lifts and self.wires):
            _set(self.depends, step.out.id, one)
        if self.paired:
            _set(self.nonzero, step.out.id, one)

    def ones(self, where: Tensor, signal: Signal) -> Message:
        if not bool(where.any()):
            return None
        where = self.net.on(where, self.device)
        where = where.reshape((1,) * (len(signal.shape) - where.ndim) + tuple(where.shape))
        return where.to(self.algebra.dtype)

    def plus(self, a: Message, b: Message) -> Message:
        if a is None or b is None:
            return a if b is None else b
        return self.algebra.join(a, b)

    def push(self, step: steps.Step, messages: dict[int, Tensor]) -> Message:
        """Compute the message of the output of a linear step from messages of its inputs."""
        algebra = self.algebra
        if isinstance(step, steps.Join):
            found = self.aligned(step, [messages.get(x.id) for x in step.xs])
            total: Message = None
            for part in found:
                total = self.plus(total, part)
            return total
        if isinstance(step, steps.Cat):
            return self.concatenate(step, self.aligned(step, [messages.get(x.id) for x in step.xs]))
        if isinstance(step, steps.Gate | steps.Product):  # as wires
            x, y = self.aligned(step, [messages.get(step.x.id), messages.get(step.y.id)])
            if isinstance(step, steps.Product):
                x = None if x is None else algebra.reduce(x, (2,), step.x.shape)
                y = None if y is None else algebra.reduce(y, (2,), step.y.shape).mT
            return self.plus(x, y)
        x = messages.get(step.x.id)  # type: ignore[attr-defined]
        if x is None:
            return None
        self.exponents[step.out.id] = self.exponents.get(step.x.id, 0)  # type: ignore[attr-defined]
        if isinstance(step, steps.Reshape):
            return regroup(x, step.x.shape, step.out.shape)
        if isinstance(step, steps.Permute):
            return x.permute(step.dims)
        if isinstance(step, steps.Expand | steps.Bias):
            return x
        if isinstance(step, steps.Gather):
            return self.read(step, x)
        if isinstance(step, steps.Reduce):
            return algebra.reduce(x, step.dims, step.x.shape).squeeze(step.dims)
        if isinstance(step, steps.Mix):
            return self.mixed(step, x)
        if isinstance(step, steps.Block):
            return algebra.times(x, self.net.on(step.keep, self.device).to(algebra.dtype))
        assert isinstance(step, steps.Contract | steps.Fixed)
        w = self.weight(step)
        if isinstance(w, Edges) and w.empty:
            return None
        return self.scaled(step.out.id, contract(algebra, x, w, step.x.shape[2], self.rows))

    def weight(self, step: steps.Contract | steps.Fixed) -> Tensor | Edges | None:
        if isinstance(step, steps.Contract):
            return self.weights(step)
        return self.net.on(step.matrix, self.device).to(self.algebra.dtype)

    def concatenate(self, step: steps.Cat, parts: list[Message]) -> Message:
        if all(part is None for part in parts):
            return None
        ndim = len(step.out.shape)
        sizes = [1] * ndim
        for part in parts:
            if part is not None:
                sizes = [max(a, b) for a, b in zip(sizes, part.shape, strict=True)]
        pieces = []
        for part, x in zip(parts, step.xs, strict=True):
            shape = [x.shape[d] if d == step.dim else sizes[d] for d in range(ndim)]
            if part is None:
                pieces.append(torch.zeros(shape, dtype=self.algebra.dtype, device=self.device))
            else:
                pieces.append(part.expand(shape))
        return torch.cat(pieces, step.dim)

    def read(self, step: steps.Gather, x: Tensor) -> Tensor:
        """Gather; the result is zero where the index is −1."""
        dim, index = step.dim, step.index
        tail = (1,) * (x.ndim - dim - 1)
        if x.shape[dim] == 1 and step.x.shape[dim] > 1:
            valid = self.taps(step) if self.coarse else self.valid(step)
            x = x.reshape(x.shape[:dim] + (1,) * index.ndim + x.shape[dim + 1 :])
            if valid is None:
                return x
            return self.algebra.times(x, valid.reshape(tuple(valid.shape) + tail))
        if step.window is not None and self.algebra.merges:
            return step.window.read(as_bytes(x)).view(x.dtype)
        valid = self.valid(step)
        places = self.net.on(index, self.device)
        flat = x.index_select(dim, places.reshape(-1).clamp(min=0))
        out = flat.reshape(x.shape[:dim] + tuple(index.shape) + x.shape[dim + 1 :])
        if valid is None:
            return out
        return self.algebra.times(out, valid.reshape(tuple(valid.shape) + tail))

    def valid(self, step: steps.Gather, inverse: bool = False) -> Tensor | None:
        """Return where an index is not −1, as a message; None if it is never −1."""
        key = ("valid", id(step), inverse, self.algebra.dtype, self.device)
        if key not in self.net.cache:
            mask = step.inverse >= 0 if inverse else step.inside
            whole = bool(mask.all())
            self.net.cache[key] = None if whole else mask.to(self.device, self.algebra.dtype)
        found: Tensor | None = self.net.cache[key]
        return found

    def taps(self, step: steps.Gather) -> Tensor | None:
        """Return where some place has an index, (1, taps) or (1,); None if it is never −1."""
        reached = step.reached
        if reached is None:
            return None
        return self.net.on(reached, self.device).to(self.algebra.dtype)

    def mixed(self, step: steps.Mix, x: Tensor) -> Tensor:
        """Let every unit lead to itself and, with a share, to all units that it is mixed with."""
        total = self.algebra.reduce(x, step.dims, step.x.shape)
        if self.algebra.dtype == torch.bool:
            return total
        return self.algebra.join(x, total * step.share)

    def multiply(self, step: steps.Gate | steps.Product, x: Message, y: Message) -> Message:
        if x is None or y is None:
            return None
        if isinstance(step, steps.Gate):
            return self.algebra.times(x, y)
        return self.bilinear(x, y)

    def bilinear(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply x (b, m, k) and y (b, n, k) to (b, m, n), joined over k; all may be uniform.

        Only idempotent algebras use this: they have two messages per unit.
        """
        algebra = self.algebra
        b = max(x.shape[0], y.shape[0])
        if x.shape[2] == 1 or y.shape[2] == 1:
            x, y = (algebra.reduce(t, (2,), t.shape) for t in (x, y))
            return algebra.times(x, y.mT)
        if not algebra.merges:
            return algebra.matmul(x.expand(b, -1, -1), y.expand(b, -1, -1))
        (x, in_x), (y, in_y) = self.rows.of(x), self.rows.of(y)
        out = algebra.matmul(x.expand(b, -1, -1), y.expand(b, -1, -1))
        out = out if in_x is None else out[:, in_x]
        return out if in_y is None else out[:, :, in_y]

    # -- scaling (exact: by powers of two) ----------------------------------------------------

    def scaled(self, out: int, message: Tensor) -> Tensor:
        """Scale a message into range, and store the exponent that was removed."""
        if self.paired or self.algebra.dtype in (torch.bool, torch.float64):
            return message
        top = float(message.amax()) if message.numel() else 0.0
        if top <= 0 or 2**-32 < top < 2**32:
            return message
        self.finite = self.finite and math.isfinite(top)
        shift = int(torch.frexp(torch.tensor(top, dtype=torch.float64)).exponent)
        self.exponents[out] = self.exponents.get(out, 0) + shift
        return torch.ldexp(message, torch.tensor(-shift, device=message.device))

    def aligned(self, step: steps.Step, parts: list[Message]) -> list[Message]:
        """Scale messages to one exponent, the largest."""
        ids = [x.id for x in getattr(step, "xs", ())] or [step.x.id, step.y.id]  # type: ignore[attr-defined]
        have = [self.exponents.get(i, 0) for i in ids]
        live = [e for e, p in zip(have, parts, strict=True) if p is not None]
        top = max(live, default=0)
        self.exponents[step.out.id] = top
        return [
            p if p is None or e == top else torch.ldexp(p, torch.tensor(e - top, device=p.device))
            for e, p in zip(have, parts, strict=True)
        ]


def _set(messages: dict[int, Tensor], out: int, message: Message) -> None:
    if message is not None:
        messages[out] = message


# Messages backward: which units can still change an output.


Pulled = list[tuple[Signal, Message, Message]]  # signal, changes, enables


def backward(run: Propagation, seeds: dict[int, Tensor] | None = None) -> Propagation:
    """Fill ``run.changes`` and ``run.enables`` backward from the outputs.

    With ``seeds`` (a message per signal id) it starts from these. Only signals that are `useful`
    get messages. If the model multiplies signals, call ``run.forward()`` first.
    """
    g, e, useful = run.changes, run.enables, run.net.useful
    exponents: dict[int, int] = {}
    if seeds is None:
        for signal in run.net.outputs:
            shape = (1,) * len(signal.shape)
            g[signal.id] = torch.ones(shape, dtype=run.algebra.dtype, device=run.device)
    else:
        g.update(seeds)
    for step in reversed(run.net.steps):
        out = step.out.id
        behind = step.x.id if isinstance(step, steps.Contract) else out
        if behind not in useful or (out not in g and out not in e):
            continue
        exponent = exponents.get(out, 0)
        for signal, change, enable in pull(run, step, g.get(out), e.get(out)):
            if signal.id not in useful:
                continue
            if change is not None:
                power = exponent
                if isinstance(step, steps.Contract | steps.Fixed):  # others make nothing larger
                    change, power = scaled(run, change, exponent)
                add(run, g, exponents, signal.id, change, power)
            if enable is not None:
                e[signal.id] = run.algebra.join(e[signal.id], enable) if signal.id in e else enable
    run.back_exponents = exponents
    return run


def scaled(run: Propagation, message: Tensor, exponent: int) -> tuple[Tensor, int]:
    if run.paired or run.algebra.dtype in (torch.bool, torch.float64):
        return message, exponent
    top = float(message.amax())
    if top <= 0 or 2**-32 < top < 2**32:
        return message, exponent
    shift = int(torch.frexp(torch.tensor(top, dtype=torch.float64)).exponent)
    return torch.ldexp(message, torch.tensor(-shift, device=message.device)), exponent + shift


def add(
    run: Propagation,
    into: dict[int, Tensor],
    exponents: dict[int, int],
    key: int,
    message: Tensor,
    exponent: int,
) -> None:
    """Join a message with those of other readers of the signal, at one exponent."""
    if key not in into:
        into[key] = message
        exponents[key] = exponent
        return
    old, have = into[key], exponents.get(key, 0)
    top = max(have, exponent)
    if have != top:
        old = torch.ldexp(old, torch.tensor(have - top, device=old.device))
    if exponent != top:
        message = torch.ldexp(message, torch.tensor(exponent - top, device=message.device))
    into[key] = run.algebra.join(old, message)
    exponents[key] = top


def pull(run: Propagation, step: steps.Step, g: Message, e: Message) -> Pulled:
    """Compute messages of the inputs of a step from messages of its output."""
    if isinstance(step, steps.Source):
        return []
    if isinstance(step, steps.Gate | steps.Product):
        return through_product(run, step, g, e)
    if isinstance(step, steps.Cat):
        cuts_g, cuts_e = cut(step, g), cut(step, e)
        return [(x, a, b) for x, a, b in zip(step.xs, cuts_g, cuts_e, strict=True)]
    if isinstance(step, steps.Join):
        return [(x, g, e) for x in step.xs]
    back_g = None if g is None else linear(run, step, g)
    back_e = None if e is None else linear(run, step, e)
    return [(step.x, back_g, back_e)]  # type: ignore[attr-defined]


def linear(run: Propagation, step: steps.Step, g: Tensor) -> Message:
    """Apply the transpose of a linear step."""
    algebra = run.algebra
    if isinstance(step, steps.Reshape):
        return regroup(g, step.out.shape, step.x.shape)
    if isinstance(step, steps.Permute):
        order = [step.dims.index(d) for d in range(len(step.dims))]
        return g.permute(order)
    if isinstance(step, steps.Expand):
        dims = [
            d for d, (a, b) in enumerate(zip(step.x.shape, step.out.shape, strict=True)) if a != b
        ]
        return algebra.reduce(g, dims, step.out.shape)
    if isinstance(step, steps.Gather):
        return returned(run, step, g)
    if isinstance(step, steps.Reduce):
        for d in step.dims:
            g = g.unsqueeze(d)
        return g
    if isinstance(step, steps.Mix):
        return run.mixed(step, g)
    if isinstance(step, steps.Block):
        return algebra.times(g, run.net.on(step.keep, run.device).to(algebra.dtype))
    if isinstance(step, steps.Bias):
        return g
    assert isinstance(step, steps.Contract | steps.Fixed)
    w = run.weight(step)
    if isinstance(w, Edges) and w.empty:
        return None
    return contract(algebra, g, None if w is None else w.mT, step.out.shape[2], run.rows)


def cut(step: steps.Cat, g: Message) -> list[Message]:
    if g is None:
        return [None] * len(step.xs)
    if g.shape[step.dim] == 1 and step.out.shape[step.dim] > 1:
        return [g] * len(step.xs)
    sizes = [x.shape[step.dim] for x in step.xs]
    return list(g.split(sizes, step.dim))


def returned(run: Propagation, step: steps.Gather, g: Tensor) -> Tensor:
    """Apply the transpose of a gather: each entry receives from every place that read it."""
    dim, ndim = step.dim, step.index.ndim
    lead, tail = g.shape[:dim], g.shape[dim + ndim :]
    algebra = run.algebra
    uniform = all(n == 1 for n in g.shape[dim : dim + ndim])
    if run.coarse and algebra.idempotent and g.shape[dim] == 1 and step.index.shape[0] > 1:
        if not uniform:  # taps differ, places do not
            taps = run.taps(step)
            if taps is not None:
                g = algebra.times(g, taps.reshape(tuple(taps.shape) + (1,) * len(tail)))
            g = algebra.reduce(g, (dim + 1,), g.shape)
        return g.reshape((*lead, 1, *tail))
    size, fan = step.inverse.shape
    read = run.valid(step, inverse=True)
    if uniform and algebra.idempotent:
        g = g.reshape((*lead, 1, *tail))
        if read is None or bool(step.inverse[:, 0].min() >= 0):
            return g
        return algebra.times(g, read[:, 0].reshape((size,) + (1,) * len(tail)))
    g = g.expand((*lead, *step.index.shape, *tail))
    if step.window is not None and algebra.merges:
        return step.window.write(as_bytes(g)).view(g.dtype)
    g = g.reshape((*lead, -1, *tail))
    places = run.net.on(step.inverse, run.device).reshape(-1).clamp(min=0)
    found = g.index_select(dim, places).reshape((*lead, size, fan, *tail))
    if read is not None:
        found = algebra.times(found, read.reshape((size, fan) + (1,) * len(tail)))
    return algebra.reduce(found, (dim + 1,), found.shape).squeeze(dim + 1)


def through_product(
    run: Propagation, step: steps.Gate | steps.Product, g: Message, e: Message
) -> Pulled:
    """Propagate backward through x·y.

    A change of x passes where y is not zero. Where x is not zero, it enables what passes through y.
    """
    if not run.paired:
        if isinstance(step, steps.Gate) or g is None:
            return [(step.x, g, None), (step.y, g, None)]
        gx = run.algebra.reduce(g, (2,), step.out.shape)
        gy = run.algebra.reduce(g, (1,), step.out.shape).mT
        return [(step.x, gx, None), (step.y, gy, None)]
    result: Pulled = []
    for mine, other, flip in ((step.x, step.y, False), (step.y, step.x, True)):
        d, n = run.depends.get(other.id), run.nonzero.get(other.id)
        change = back(run, step, g, n, flip)
        enable = run.plus(back(run, step, e, n, flip), back(run, step, g, d, flip))
        result.append((mine, change, enable))
    return result


def back(
    run: Propagation, step: steps.Gate | steps.Product, g: Message, other: Message, flip: bool
) -> Message:
    """Compute the message of one factor: g times the other factor, joined over the sum."""
    if g is None or other is None:
        return None
    if isinstance(step, steps.Gate):
        return run.algebra.times(g, other)
    # x (b, m, k) = ⊕ over n of g[m, n] y[n, k];  y (b, n, k) = ⊕ over m of g[m, n] x[m, k]
    return run.bilinear(g.mT if flip else g, other.mT)
