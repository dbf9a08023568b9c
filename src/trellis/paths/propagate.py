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

from ..trace import steps
from ..trace.trellis import Trellis
from ..trace.values import Signal
from .algebra import Algebra, Rows, contract
from .edges import Edges
from .kernels import as_bytes
from .messages import regroup

# The weight of a contraction, (B, N, K), in an algebra; None for all ones.
Weights = Callable[[steps.Contract], Tensor | Edges | None]
Message = Tensor | None


class Propagation:
    """Forward and backward messages of one trellis in one algebra.

    After `forward`, ``depends`` and ``nonzero`` hold a message per signal id; after
    `backward`, ``changes`` and ``enables``. Messages that are nothing everywhere are absent.
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
        self.finite = True  # whether all that came out of contractions was, on the way forward
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
        """The linear steps: from messages of the inputs to a message of the output."""
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
        """A gather: nothing where the index is −1."""
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
        """Where an index is not −1, as a message; None where it never is."""
        key = ("valid", id(step), inverse, self.algebra.dtype, self.device)
        if key not in self.net.cache:
            mask = step.inverse >= 0 if inverse else step.inside
            whole = bool(mask.all())
            self.net.cache[key] = None if whole else mask.to(self.device, self.algebra.dtype)
        found: Tensor | None = self.net.cache[key]
        return found

    def taps(self, step: steps.Gather) -> Tensor | None:
        """(1, taps), or (1,): where an index is not −1 in some place; None where it never is."""
        reached = step.reached
        if reached is None:
            return None
        return self.net.on(reached, self.device).to(self.algebra.dtype)

    def mixed(self, step: steps.Mix, x: Tensor) -> Tensor:
        """Every unit leads to itself, and with a share to all it is mixed with."""
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
        """x (b, m, k), y (b, n, k) to (b, m, n), joined over k; all possibly uniform.

        For idempotent algebras: only they run with two messages per unit.
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
        """Keep products within range; what was taken out is remembered as an exponent."""
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
        """Bring messages to one exponent, the largest."""
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
