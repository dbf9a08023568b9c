"""Matrix products (linear, matmul, einsum), softmax and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....errors import TrellisError
from ..form import Activation
from ..network import (
    Ids,
    Network,
    PlaneBlock,
    PlaneNetwork,
    Signal,
    add_planes,
    flat,
    full,
    lowers,
    owner_of,
    planes_of,
)
from .elementwise import add, amax, expanded, mul, reduced, sub


def contract(net: Network, weight: Tensor, letters: str, x: Signal, own: str, out: str) -> Signal:
    """Compute einsum(f"{letters},{own}->{out}", weight, x) of a constant and a signal.

    Only non-zero entries of the weight get terms, one for each position along the dimensions that
    only x has. Neither ``letters`` nor ``own`` may repeat a letter.
    """
    sizes = dict(zip(own, x.shape, strict=True)) | dict(zip(letters, weight.shape, strict=True))
    free = [letter for letter in own if letter not in letters]
    entries = torch.nonzero(weight)  # (entries, letters)
    values = weight[tuple(entries.T)].double().numpy()
    many = math.prod(sizes[letter] for letter in free)
    net_terms = len(values) * many
    place: dict[str, Ids] = {
        letter: entries[:, i].numpy()[:, None] for i, letter in enumerate(letters)
    }
    grid = np.unravel_index(np.arange(many), [sizes[letter] for letter in free]) if free else ()
    place |= {letter: index[None, :] for letter, index in zip(free, grid, strict=True)}
    full = (len(values), many)
    reads = flat(x)[_flat(place, own, sizes, full)]
    rows = _flat(place, out, sizes, full)
    weights = np.broadcast_to(values[:, None], full).reshape(-1)
    assert len(reads) == net_terms
    return net.sums(tuple(sizes[letter] for letter in out), rows, reads, weights)


def _flat(place: dict[str, Ids], letters: str, sizes: dict[str, int], full: tuple[int, int]) -> Ids:
    index = np.zeros((1, 1), np.int64)
    for letter in letters:
        index = index * sizes[letter] + place[letter]
    return np.broadcast_to(index, full).reshape(-1)


def multiply(net: Network, x: Signal, own: str, y: Signal, other: str, out: str) -> Signal:
    """Compute the einsum of two signals: sums of products of units."""
    sizes = dict(zip(own, x.shape, strict=True)) | dict(zip(other, y.shape, strict=True))
    letters = list(dict.fromkeys(own + other))
    many = math.prod(sizes[letter] for letter in letters)
    grid = np.unravel_index(np.arange(many), [sizes[letter] for letter in letters])
    place = {letter: index[None, :] for letter, index in zip(letters, grid, strict=True)}
    full = (1, many)
    return net.dots(
        tuple(sizes[letter] for letter in out), _flat(place, out, sizes, full),
        flat(x)[_flat(place, own, sizes, full)], flat(y)[_flat(place, other, sizes, full)],
    )  # fmt: skip


@lowers("linear")
def linear(net: Network, x: Signal, weight: Any, bias: Any = None) -> Signal:
    if isinstance(weight, Signal) or isinstance(bias, Signal):
        raise TrellisError("a linear layer whose weights are computed from the input")
    if isinstance(x, Signal) and len(x.shape) == 2 and isinstance(net, PlaneNetwork):
        looped = _looped(net, x, weight, bias)
        if looped is not None:
            return looped
    own = _letters(len(x.shape) - 1) + "i"
    y = contract(net, weight, "oi", x, own, own[:-1] + "o") if isinstance(x, Signal) else x
    return y if bias is None else net.each(y, shift=bias.double().numpy())


def _looped(net: Network, x: Signal, weight: Tensor, bias: Any) -> Signal | None:
    """A linear layer as a convolution of one position, or None where its input is not planes."""
    planes = planes_of(x)
    if planes is None:
        return None
    units = planes.reshape(-1)
    owner = owner_of(net, int(units[0]))
    if isinstance(owner, PlaneBlock) and owner.units == len(units):
        whole = owner.first + np.arange(len(units)).reshape(owner.grid)
        planes = whole if (whole.reshape(-1) == units).all() else planes
    elif owner is None and (np.diff(units) == 1).all():
        planes = planes.reshape(1, 1, -1)
    if not (owner is None or full(net, planes)):
        return None
    entries = torch.nonzero(weight)
    row, column = entries.T.numpy()
    made = PlaneBlock(
        "conv", net.units, (len(weight), 1, 1), planes, (1, 1), planes.shape[1:], column,
        np.searchsorted(row, np.arange(len(weight) + 1)).astype(np.int64),
        weight[tuple(entries.T)].double().numpy(),
        bias=np.zeros(0) if bias is None else bias.double().numpy().copy(),
    )  # fmt: skip
    return add_planes(net, made, (1, len(weight)))


@lowers("addmm")
def addmm(net: Network, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Signal:
    if isinstance(bias, Signal):
        raise TrellisError("addmm whose bias is computed from the input")
    return net.each(matmul(net, a, b), alpha, (beta * bias).double().numpy())


@lowers("matmul mm bmm mv dot")
def matmul(net: Network, a: Any, b: Any) -> Signal:
    left, right = len(a.shape), len(b.shape)
    batch = max(left, right) - 2
    names = _letters(max(batch, 0))
    own = ("" if left == 1 else names[len(names) - (left - 2) :] + "x") + "y"
    other = (names[len(names) - (right - 2) :] if right > 2 else "") + ("yz" if right > 1 else "y")
    out = names + ("x" if left > 1 else "") + ("z" if right > 1 else "")
    return einsum(net, f"{own},{other}->{out}", [a, b])


@lowers("einsum")
def einsum(net: Network, equation: str, operands: Sequence[Any], path: Any = None) -> Signal:
    equation = equation.replace(" ", "")
    if "." in equation:
        raise TrellisError(f"einsum {equation!r}: write the letters in place of the dots")
    left, arrow, out = equation.partition("->")
    names = left.split(",")
    if not arrow:
        every = "".join(names)
        out = "".join(sorted(letter for letter in set(every) if every.count(letter) == 1))
    parts: list[tuple[str, Any]] = []
    for name, value in zip(names, operands, strict=True):
        if len(set(name)) < len(name):
            raise TrellisError(f"einsum {equation!r}: a letter twice in one operand")
        parts.append(_broadcast(name, value, names, operands))
    parts.sort(key=lambda part: not isinstance(part[1], Signal))  # signals first
    own, x = parts.pop(0)
    while parts:
        # Start with the constant that shares most letters with the signal: this keeps intermediate
        # results small.
        parts.sort(key=lambda part: -len(set(part[0]) & set(own)))
        letters, value = parts.pop(0)
        rest = set(out).union(*(name for name, _ in parts)) if parts else set(out)
        kept = [c for c in dict.fromkeys(out + own + letters) if c in rest and c in own + letters]
        after = "".join(kept)
        if isinstance(value, Signal):
            x = multiply(net, x, own, value, letters, after)
        else:
            x = contract(net, value, letters, x, own, after)
        own = after
    if own != out:
        gone = "".join(letter for letter in own if letter not in out)
        ones = torch.ones([x.shape[own.index(letter)] for letter in gone])
        x = contract(net, ones, gone, x, own, out)
    assert isinstance(x, Signal)
    return x


def _broadcast(name: str, value: Any, names: list[str], operands: Sequence[Any]) -> tuple[str, Any]:
    """Drop dimensions of size one that are larger in another operand."""
    larger = {
        letter
        for other, operand in zip(names, operands, strict=True)
        for letter, size in zip(other, operand.shape, strict=True)
        if size > 1
    }
    drop = [i for i, c in enumerate(name) if value.shape[i] == 1 and c in larger]
    for i in reversed(drop):
        value = Signal(value.ids.squeeze(i)) if isinstance(value, Signal) else value.squeeze(i)
        name = name[:i] + name[i + 1 :]
    return name, value


def _letters(n: int) -> str:
    return "abcdefgh"[:n]


# Softmax and attention, built from maxima, exponentials and sums of products.


def _exponentials(net: Network, x: Signal, dim: int) -> tuple[Signal, Signal, Signal]:
    """Return x minus its maximum, the exponentials of that, and their sums."""
    shifted = sub(net, x, expanded(amax(net, x, dim, keepdim=True), x.shape))
    powers = net.each(shifted, act=Activation("exp"))
    return shifted, powers, reduced(net, powers, dim, True, mean=False)


@lowers("softmax _softmax")
def softmax(net: Network, x: Signal, dim: int, *_: Any) -> Signal:
    _shifted, powers, sums = _exponentials(net, x, dim)
    return mul(net, powers, expanded(net.each(sums, act=Activation("reciprocal")), x.shape))


@lowers("log_softmax _log_softmax")
def log_softmax(net: Network, x: Signal, dim: int, *_: Any) -> Signal:
    shifted, _powers, sums = _exponentials(net, x, dim)
    return sub(net, shifted, expanded(net.each(sums, act=Activation("log")), x.shape))


@lowers("scaled_dot_product_attention")
def attention(
    net: Network, query: Signal, key: Signal, value: Signal, attn_mask: Any = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None,
    enable_gqa: bool = False,
) -> Signal:  # fmt: skip
    if enable_gqa or isinstance(attn_mask, Signal):
        raise TrellisError("attention with grouped queries or a mask computed from the input")
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    scores = matmul(net, query, Signal(key.ids.transpose(-2, -1)))
    scores = net.each(scores, factor)
    if is_causal:
        n, m = scores.shape[-2:]
        attn_mask = torch.ones(n, m, dtype=torch.bool).tril()
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, -1e30)
        scores = add(net, scores, attn_mask.clamp(min=-1e30))
    return matmul(net, softmax(net, scores, -1), value)
