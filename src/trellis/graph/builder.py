"""The builder, with which rules write operations as steps, einsum included.

A rule gets the builder and the arguments of the operation (signals, weights, tensors, numbers) and
returns signals. Algebras, masks and gradients do not appear in rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from ..errors import TrellisError
from . import steps
from .differences import Differences, Digits, Sums, digits_of, same, varying
from .steps import Signal, Value, Weight, Window

S = TypeVar("S", bound=steps.Step)
TRUE = torch.ones((), dtype=torch.bool)


def invert(index: Tensor, size: int) -> Tensor:
    """Return the flat places of ``index`` that hold each value 0..size−1, padded with −1.

    The result is (size, fan).

    >>> invert(torch.tensor([1, -1, 1, 0]), 2)
    tensor([[ 3, -1],
            [ 0,  2]])
    """
    flat = index.reshape(-1)
    places = torch.nonzero(flat >= 0)[:, 0]
    values = flat[places]
    order = torch.sort(values, stable=True).indices
    values, places = values[order], places[order]
    counts = torch.bincount(values, minlength=size)
    fan = int(counts.max()) if len(values) else 1
    starts = torch.cumsum(counts, 0) - counts
    inverse = torch.full((size, max(fan, 1)), -1, dtype=torch.int64)
    inverse[values, torch.arange(len(values)) - starts[values]] = places
    return inverse


class Builder:
    """Append steps to a trellis; each method returns the signal that it made."""

    def __init__(self) -> None:
        self.steps: list[steps.Step] = []
        self.driven: set[int] = set()  # signals that come from an input of the model
        self.even_handed: set[int] = set()  # mixes in which equal entries stay equal
        # Products Σ p v with Σ p = 1: what differs between all v, and whether v comes first.
        self.averages: dict[int, tuple[Signal | None, bool]] = {}
        # Inputs that are looked up in a table, and how many rows it has. See `token_by_token`.
        self.vocabularies: dict[int, int] = {}
        self.hides = False  # whether a mask that is data may hide all that a softmax normalises
        self.one_row = False  # whether a token is the one row that the example says, or any

    @cached_property
    def differences(self) -> Differences:
        return Differences(self)

    @cached_property
    def sums(self) -> Sums:
        return Sums(self)

    def signal(
        self, shape: Sequence[int], blocked: Tensor | None = None, example: Tensor | None = None
    ) -> Signal:
        return Signal(len(self.steps), tuple(int(n) for n in shape), blocked, example)

    def add(self, step: S) -> Signal:
        self.steps.append(step)
        from_input = isinstance(step, steps.Source) and step.depends
        if from_input or any(x.id in self.driven for x in step.operands):
            self.driven.add(step.out.id)
        return step.out

    # -- sources ---------------------------------------------------------------------------

    def input(self, shape: Sequence[int], example: Tensor | None = None) -> Signal:
        return self.add(steps.Source(self.signal(shape, example=example), True, TRUE))

    def constant(self, value: Tensor) -> Signal:
        """Turn a constant tensor into a signal that no input reaches."""
        value = value.cpu()
        out = self.signal(value.shape, minus_infinity(value))
        varies = tuple(varying(value, value.ndim))
        return self.add(steps.Source(out, False, value != 0, varies=varies))

    def nothing(self, shape: Sequence[int]) -> Signal:
        """Make a signal that is zero everywhere."""
        return self.add(steps.Source(self.signal(shape), False, ~TRUE))

    def parameter(self, weight: Weight) -> Signal:
        """Turn a parameter that is only added or normalised into a non-zero constant."""
        varies = _wide(weight.shape)
        return self.add(steps.Source(self.signal(weight.shape), False, TRUE, varies=varies))

    def lift(self, weight: Weight) -> Signal:
        """Turn a parameter into a signal: the constant 1 times each entry."""
        n = math.prod(weight.shape)
        one = self.add(steps.Source(self.signal((n, 1, 1)), False, TRUE, lifts=True))
        flat = weight.moved(lambda t: t.reshape(n, 1, 1))
        return self.reshape(
            self.add(steps.Contract(self.signal((n, 1, 1)), one, flat)), weight.shape
        )

    # -- wires -----------------------------------------------------------------------------

    def reshape(self, x: Signal, shape: Sequence[int]) -> Signal:
        if tuple(shape) == x.shape:
            return x
        blocked = None if x.blocked is None else x.blocked.expand(x.shape).reshape(tuple(shape))
        return self.add(steps.Reshape(self.signal(shape, blocked), x))

    def permute(self, x: Signal, dims: Sequence[int]) -> Signal:
        dims = tuple(d % x.ndim for d in dims)
        if dims == tuple(range(x.ndim)):
            return x
        blocked = None if x.blocked is None else x.blocked.expand(x.shape).permute(dims)
        shape = [x.shape[d] for d in dims]
        return self.add(steps.Permute(self.signal(shape, blocked), x, dims))

    def expand(self, x: Signal, shape: Sequence[int]) -> Signal:
        """Broadcast to ``shape``, with new dimensions in front, as torch does."""
        shape = tuple(shape)
        x = self.reshape(x, (1,) * (len(shape) - x.ndim) + x.shape)
        full = tuple(
            have if want == -1 else want for have, want in zip(x.shape, shape, strict=True)
        )
        if full == x.shape:
            return x
        return self.add(steps.Expand(self.signal(full, x.blocked), x))

    def gather(self, x: Signal, dim: int, index: Tensor, window: Window | None = None) -> Signal:
        """Read the places ``index`` along ``dim`` (1-D or 2-D; −1 reads nothing)."""
        dim %= x.ndim
        index = index.cpu().to(torch.int64)
        blocked = None
        if x.blocked is not None:
            flat = x.blocked.expand(x.shape).index_select(dim, index.reshape(-1).clamp(min=0))
            blocked = flat.reshape(x.shape[:dim] + tuple(index.shape) + x.shape[dim + 1 :])
        shape = x.shape[:dim] + tuple(index.shape) + x.shape[dim + 1 :]
        out = self.signal(shape, blocked)
        return self.add(steps.Gather(out, x, dim, index, invert(index, x.shape[dim]), window))

    def cat(self, xs: Sequence[Signal], dim: int) -> Signal:
        dim %= xs[0].ndim
        xs = [x for x in xs if x.shape[dim]] or xs[:1]  # an empty slice adds nothing
        shape = list(xs[0].shape)
        shape[dim] = sum(x.shape[dim] for x in xs)
        blocked = None
        if any(x.blocked is not None for x in xs):
            none = torch.zeros((), dtype=torch.bool)
            parts = [(none if x.blocked is None else x.blocked).expand(x.shape) for x in xs]
            blocked = torch.cat(parts, dim)
        return self.add(steps.Cat(self.signal(shape, blocked), tuple(xs), dim))

    def join(self, *xs: Signal) -> Signal:
        """Add signals elementwise, with broadcasting."""
        shape = torch.broadcast_shapes(*(x.shape for x in xs))
        parts = tuple(self.expand(x, shape) for x in xs)
        blocked = None
        for x in parts:
            if x.blocked is not None:
                blocked = x.blocked if blocked is None else blocked | x.blocked
        return self.add(steps.Join(self.signal(shape, blocked), parts))

    def reduce(self, x: Signal, dims: Sequence[int], keepdim: bool = False) -> Signal:
        dims = tuple(sorted({d % x.ndim for d in dims})) if x.ndim else ()
        if not dims:
            return x
        shape = [n for d, n in enumerate(x.shape) if d not in dims]
        out = self.add(steps.Reduce(self.signal(shape), x, dims))
        kept = [1 if d in dims else n for d, n in enumerate(x.shape)]
        return self.reshape(out, kept) if keepdim else out

    def mix(self, x: Signal, dims: Sequence[int]) -> Signal:
        dims = tuple(sorted({d % x.ndim for d in dims}))
        share = 1.0
        for d in dims:
            share /= x.shape[d]
        return self.add(steps.Mix(self.signal(x.shape), x, dims, share))

    # -- constants and products ------------------------------------------------------------

    def bias(self, x: Signal, nonzero: Tensor = TRUE) -> Signal:
        """Add a constant that is not zero where ``nonzero`` is true.

        It differs along the dimensions in which ``nonzero`` has more than one entry.
        """
        shape = torch.broadcast_shapes(x.shape, nonzero.shape)
        x = self.expand(x, shape)
        varies = tuple(len(shape) - nonzero.ndim + d for d in _wide(nonzero.shape))
        nonzero = TRUE if bool(nonzero.all()) else nonzero.cpu()
        return self.add(steps.Bias(self.signal(shape, x.blocked), x, nonzero, varies))

    def scale(self, x: Signal, shape: Sequence[int]) -> Signal:
        """Multiply by a factor of ``shape`` (broadcast) that is never zero.

        The factor holds no connections. It differs along the dimensions of ``shape`` larger than 1.
        """
        full = torch.broadcast_shapes(x.shape, tuple(shape))
        x = self.expand(x, full)
        varies = tuple(len(full) - len(shape) + d for d in _wide(shape))
        if not varies:
            return x
        return self.add(steps.Scale(self.signal(full, x.blocked), x, varies))

    # -- what normalisations remove ----------------------------------------------------------

    def centre(self, x: Signal, dims: Sequence[int], seen: Tensor | None = None) -> Signal:
        """Return the part of ``x`` that differs along ``dims``; a softmax or norm passes only that.

        ``seen`` (bool, in the shape of x) is true where the score is not −∞.
        """
        rest = self.differences.of(x, digits_of(x.shape, [d % x.ndim for d in dims]))
        if rest is not None and seen is not None:
            several = seen
            for d in dims:
                several = several.sum(d, keepdim=True) > 1
            rest = self.block(rest, several)
        return x if same(rest, x) else self.either(x, rest)

    def either(self, x: Signal, rest: Signal | None) -> Signal:
        return self.add(steps.Either(self.signal(x.shape, x.blocked), x, rest))

    def sums_to_one(self, x: Signal, dim: int, seen: Tensor | None = None) -> Signal:
        """Note that ``x`` is a softmax along ``dim`` over the entries in ``seen``."""
        if self.hides:  # of a row that is hidden throughout, nothing is known
            return x
        nonzero = TRUE if seen is None else seen
        varies = () if seen is None else tuple(varying(seen, x.ndim))
        even = self.add(steps.Source(self.signal(x.shape), False, nonzero, varies=varies))
        self.sums.facts[x.id] = digits_of(x.shape, [dim % x.ndim]), even
        return x

    def normalised(self, x: Signal, dims: Sequence[int]) -> Signal:
        """(x − mean) / deviation over ``dims``: sums to zero, and passes on what differs."""
        dims = sorted({d % x.ndim for d in dims})
        out = self.even_mix(self.centre(x, dims), dims)
        self.sums.facts[out.id] = digits_of(x.shape, dims), None
        return out

    def even_mix(self, x: Signal, dims: Sequence[int]) -> Signal:
        """As `mix`, where entries of ``x`` that are equal stay equal."""
        out = self.mix(x, dims)
        self.even_handed.add(out.id)
        return out

    def block(self, x: Signal, keep: Tensor) -> Signal:
        """Multiply by a constant that is not zero where ``keep`` is true."""
        shape = torch.broadcast_shapes(x.shape, keep.shape)
        x = self.expand(x, shape)
        if bool(keep.all()):
            return x
        return self.add(steps.Block(self.signal(shape, x.blocked), x, keep.cpu()))

    def gate(self, x: Signal, y: Signal) -> Signal:
        shape = torch.broadcast_shapes(x.shape, y.shape)
        x, y = self.expand(x, shape), self.expand(y, shape)
        return self.add(steps.Gate(self.signal(shape), x, y))

    def contract(self, x: Signal, weight: Weight) -> Signal:
        """Multiply x (B, M, K) and weight (B, N, K) to (B, M, N); this holds the connections."""
        b, m, k = x.shape
        if weight.shape[0] != b or weight.shape[2] != k:
            raise ValueError(f"contract: signal {x.shape} does not fit weight {weight.shape}")
        out = self.signal((b, m, weight.shape[1]))
        return self.add(steps.Contract(out, x, weight))

    def fixed(self, x: Signal, matrix: Tensor) -> Signal:
        """Multiply x (B, M, K) and a constant (B, N, K) to (B, M, N)."""
        out = self.signal((*x.shape[:2], matrix.shape[1]))
        return self.add(steps.Fixed(out, x, matrix.detach().cpu().to(torch.float32).abs()))

    def product(self, x: Signal, y: Signal) -> Signal:
        """Multiply x (B, M, K) and y (B, N, K) to (B, M, N)."""
        plain = self._product(x, y)
        for weights, values, flip in ((x, y, False), (y, x, True)):
            even = self.sums.of(weights, digits_of(weights.shape, [2]))
            if same(even, weights):
                continue
            # Σ p v with Σ p = 1: what all v have in common passes whatever p is.
            along = digits_of(values.shape, [2])
            rest = self.differences.of(values, along)
            if same(rest, values):
                return plain
            made = []
            common = self.common(even, values, digits_of(even.shape, [2]), along) if even else None
            if even is not None and common is not None:
                made.append(self._product(*_pair(even, common, flip)))
                if same(common, values) and self.is_share(even):
                    self.averages[made[0].id] = rest, flip
            if rest is not None:
                made.append(self._product(*_pair(weights, rest, flip)))
            return self.either(plain, self.join(*made) if made else None)
        return plain

    def common(
        self, even: Signal, values: Signal, of_even: Digits, of_values: Digits
    ) -> Signal | None:
        """``values`` in Σ even · values: if ``even`` is the same for all, only their sum counts."""
        same_for_all = self.differences.of(even, of_even) is None
        return self.sums.of(values, of_values) if same_for_all else values

    def is_share(self, x: Signal) -> bool:
        """Whether ``x`` is the constant of a softmax, rearranged: every sum of it is one."""
        step = self.steps[x.id]
        while not isinstance(step, steps.Source):
            rearranged = isinstance(step, steps.Reshape | steps.Permute | steps.Expand)
            if isinstance(step, steps.Gather):
                rearranged = not bool((step.index < 0).any())
            if not rearranged or isinstance(step, steps.Scale):
                return False
            step = self.steps[step.operands[0].id]
        return not step.depends

    def _product(self, x: Signal, y: Signal) -> Signal:
        return self.add(steps.Product(self.signal((*x.shape[:2], y.shape[1])), x, y))

    def total(self, x: Signal, dims: Sequence[int], keepdim: bool = False) -> Signal:
        """A sum or mean over ``dims``; as `reduce`, which is also for maxima."""
        plain = self.reduce(x, dims, keepdim)
        dims = sorted({d % x.ndim for d in dims}) if x.ndim else []
        along = digits_of(x.shape, dims)
        known = self.sums.of(x, along)
        if not same(known, x):
            return self.either(plain, known and self.reduce(known, dims, keepdim))
        step = self.steps[x.id]
        if not isinstance(step, steps.Gate) or x.bent:
            return plain
        for weights, values in ((step.x, step.y), (step.y, step.x)):
            even = self.sums.of(weights, along)
            if same(even, weights):
                continue
            rest = self.differences.of(values, along)
            if same(rest, values):
                return plain
            parts = []
            common = self.common(even, values, along, along) if even else None
            if even is not None and common is not None:
                parts.append((even, common))
            if rest is not None:
                parts.append((weights, rest))
            made = [self.reduce(self.gate(*pair), dims, keepdim) for pair in parts]
            return self.either(plain, self.join(*made) if made else None)
        return plain

    def blocked(self, x: Signal, where: Tensor) -> Signal:
        """The same signal, −∞ where ``where`` (bool) is true."""
        shape = torch.broadcast_shapes(x.shape, where.shape)
        x = self.expand(x, shape)
        both = where if x.blocked is None else where | x.blocked
        out = self.signal(shape, both.cpu())
        return self.add(steps.Reshape(out, x))


def _pair(x: Signal, y: Signal, flip: bool) -> tuple[Signal, Signal]:
    return (y, x) if flip else (x, y)


def _wide(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(d for d, n in enumerate(shape) if n > 1)


def minus_infinity(value: Tensor) -> Tensor | None:
    """Where a constant added to attention scores means "never": −∞, or so far down (−10,000
    or less, as many models write it) that its exponential is zero in float32."""
    if not value.is_floating_point():
        return None
    never = value <= -1e4
    return never.cpu() if bool(never.any()) else None


def einsum(build: Builder, equation: str, operands: Sequence[Value]) -> Signal:
    """``torch.einsum`` with at least one signal among the operands."""
    inputs, output = _labels(equation, [len(o.shape) for o in operands])
    parts = list(zip(inputs, operands, strict=True))
    # Signals first: weights multiply them one by one, never each other.
    parts.sort(key=lambda part: not isinstance(part[1], Signal))
    labels, value = parts[0]
    assert isinstance(value, Signal)
    labels, value = _diagonal_free(build, equation, labels, value)
    for place, (other_labels, other) in enumerate(parts[1:], start=2):
        later = output + "".join(rest for rest, _ in parts[place:])
        wanted = [c for c in dict.fromkeys(labels + other_labels) if c in later]
        result = "".join(wanted)
        value = contract_labels(build, labels, value, other_labels, other, result)
        labels = result
    gone = [d for d, c in enumerate(labels) if c not in output]
    value = build.reduce(value, gone)
    labels = "".join(c for c in labels if c in output)
    return build.permute(value, [labels.index(c) for c in output])


def contract_labels(build: Builder, xl: str, x: Signal, yl: str, y: Value, result: str) -> Signal:
    """Multiply x (labels ``xl``) by y (labels ``yl``), summing what ``result`` leaves out."""
    if len(set(yl)) != len(yl):
        raise TrellisError(f"einsum: a label repeated within one operand ({yl!r}) is not traced")
    sizes = dict(zip(yl, y.shape, strict=True))
    for label, size in zip(xl, x.shape, strict=True):
        sizes[label] = max(size, sizes.get(label, 1))
    x = build.expand(x, [sizes[c] for c in xl])
    # A dimension of size one in y that x has longer is broadcast: y does not vary along it.
    thin = [c for c, n in zip(yl, y.shape, strict=True) if n == 1 and sizes[c] > 1]
    if isinstance(y, Signal):
        y = build.expand(y, [sizes[c] for c in yl])
    elif thin:
        y = _moved(y, yl, "".join(c for c in yl if c not in thin))
        yl = "".join(c for c in yl if c not in thin)
    summed = [d for d, c in enumerate(xl) if c not in yl and c not in result]
    x = build.reduce(x, summed)
    xl = "".join(c for d, c in enumerate(xl) if d not in summed)
    both = [c for c in xl if c in yl and c in result]
    inner = [c for c in xl if c in yl and c not in result]
    outer = [c for c in xl if c not in yl]
    heads = [c for c in yl if c not in xl]
    shape = [math.prod(sizes[c] for c in group) for group in (both, outer, inner, heads)]
    b, m, k, n = shape
    x = build.reshape(build.permute(x, [xl.index(c) for c in both + outer + inner]), (b, m, k))
    order = [yl.index(c) for c in both + heads + inner]
    if isinstance(y, Weight):
        out = build.contract(x, y.moved(lambda t: t.permute(order).reshape(b, n, k)))
    elif isinstance(y, Signal):
        out = build.product(x, build.reshape(build.permute(y, order), (b, n, k)))
    else:
        out = build.fixed(x, y.permute(order).reshape(b, n, k))
    labels = both + outer + heads
    out = build.reshape(out, [sizes[c] for c in labels])
    out = build.reduce(out, [d for d, c in enumerate(labels) if c not in result])
    labels = [c for c in labels if c in result]
    return build.permute(out, [labels.index(c) for c in result])


def _moved(y: Weight | Tensor, labels: str, kept: str) -> Weight | Tensor:
    def squeeze(t: Tensor) -> Tensor:
        return t[tuple(slice(None) if c in kept else 0 for c in labels)]

    return y.moved(squeeze) if isinstance(y, Weight) else squeeze(y)


def _diagonal_free(build: Builder, equation: str, labels: str, x: Signal) -> tuple[str, Signal]:
    if len(set(labels)) != len(labels):
        raise TrellisError(
            f"einsum {equation!r}: a label repeated within one operand is not traced"
        )
    return labels, x


def _labels(equation: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """Operand labels and output labels, the ellipsis spelt out."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation]
    widest = max(
        (n - len(t.replace("...", "")) for t, n in zip(terms, ndims, strict=True) if "..." in t),
        default=0,
    )
    dots = "".join(spare[:widest])
    terms = [
        t.replace("...", dots[widest - (n - len(t.replace("...", ""))) :])
        for t, n in zip(terms, ndims, strict=True)
    ]
    if not arrow:
        once = sorted(c for c in set("".join(terms)) if "".join(terms).count(c) == 1)
        right = dots + "".join(c for c in once if c not in dots)
    return terms, right.replace("...", dots)


def matmul(build: Builder, x: Value, y: Value) -> Signal:
    """``torch.matmul`` with at least one signal."""
    nx, ny = len(x.shape), len(y.shape)
    batch = "abcdefgh"[: max(nx, ny, 2) - 2]
    xl = (batch[len(batch) - (nx - 2) :] if nx > 2 else "") + ("ij"[-min(nx, 2) :])
    yl = (batch[len(batch) - (ny - 2) :] if ny > 2 else "") + ("jk"[: min(ny, 2)])
    out = batch if max(nx, ny) > 2 else ""
    out += ("i" if nx > 1 else "") + ("k" if ny > 1 else "")
    return einsum(build, f"{xl},{yl}->{out}", [x, y])


def as_shape(sizes: Sequence[int], numel: int) -> tuple[int, ...]:
    """Resolve a −1 in a shape.

    >>> as_shape([2, -1], 6)
    (2, 3)
    """
    known = math.prod(n for n in sizes if n != -1)
    return tuple(int(n) if n != -1 else numel // max(known, 1) for n in sizes)
