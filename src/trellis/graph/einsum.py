"""Products of several operands, written in labels, as contractions.

``contract_labels(build, "bvd", x, "kuv", A, "bkud")`` multiplies a signal by a weight (or a
signal) whatever the order of the dimensions, by bringing both to (B, M, K) and (B, N, K).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from ..errors import TrellisError
from .builder import Builder
from .steps import Signal, Value, Weight


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
