"""Sums of products: linear layers, matrix products, einsum.

Units that no input reaches are constant, so they add a constant to the result. Compaction removes
them from the product and adds the constant to a bias. If the constant varies between positions, it
becomes a tensor that is added to the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....graph.builder import _labels
from ....graph.export import aten
from ..program import Op, Ref, function, replaced
from ..reading import Network
from ..writing import AxisPlaces, Codes, Writer
from .relation import Aligned, Barrier, Relation, relation_for, uniform

GATHER = 7 / 8  # a gather must leave out at least an eighth to be worth its copy


@dataclass(frozen=True)
class Operand:
    name: str
    labels: tuple[str, ...]


class Contraction(Relation):
    """Multiply operands with labelled axes, and sum over labels that the result lacks.

    ``bias`` is added along axis ``channel`` of the result.
    """

    def __init__(
        self,
        op: Op,
        network: Network,
        operands: Sequence[Operand],
        out: Sequence[str],
        bias: str | None = None,
    ) -> None:
        super().__init__(op, network)
        self.operands, self.out, self.bias = list(operands), tuple(out), bias
        self.ends: dict[str, list[tuple[str, int]]] = {}
        for operand in self.operands:
            for axis, label in enumerate(operand.labels):
                if network.values[operand.name].shape[axis] > 1 or not self.thin(label):
                    self.ends.setdefault(label, []).append((operand.name, axis))
        self.signals = {o.name for o in self.operands if network.values[o.name].driven}

    def thin(self, label: str) -> bool:
        """Return whether an axis of size one is broadcast against a longer axis of this label."""
        sizes = [
            self.value(o.name).shape[o.labels.index(label)]
            for o in self.operands
            if label in o.labels
        ]
        return max(sizes) > 1

    def weights(self) -> list[str]:
        return [o.name for o in self.operands if o.name not in self.signals]

    # -- what stays ------------------------------------------------------------------------

    def close(self, kept: AxisPlaces) -> None:
        why = f"`{self.op.target.split('.')[1]}` ties it to live ones"
        for label, ends in self.ends.items():
            held = [end for end in ends if end[0] not in self.signals]
            if label in self.out:
                held = [*held, (self.op.name, self.out.index(label))]
            elif not any(self.value(name).weight for name, _ in held):
                held = ends  # only signals and constants carry this label
            kept.tie(held, why)
            for name, axis in ends:
                if (name, axis) not in held:
                    kept.add(name, axis, kept.code(*held[0]), why)
        if self.bias is not None:
            self.close_bias(kept, why)
        if not self.signals:
            return
        for name in self.signals:  # never select along the batch
            for axis in self.value(name).open:
                for other, place in self.ends.get(self.labels(name)[axis], []):
                    kept.fill(other, place, "it is one with the batch")

    def close_bias(self, kept: AxisPlaces, why: str) -> None:
        assert self.bias is not None
        shape, out = self.value(self.bias).shape, self.value(self.op.name).shape
        for axis, size in enumerate(shape):
            place = len(out) - len(shape) + axis
            if size == out[place]:
                kept.tie([(self.bias, axis), (self.op.name, place)], why)

    def labels(self, name: str) -> tuple[str, ...]:
        return next(o.labels for o in self.operands if o.name == name)

    def held_code(self, kept: AxisPlaces, label: str) -> Codes:
        """Return the places of a label that stay, read from the result, a weight or a signal."""
        ends = self.ends[label]
        held = [end for end in ends if end[0] not in self.signals]
        if label in self.out:
            held = [(self.op.name, self.out.index(label))]
        return kept.code(*(held or ends)[0])

    def settle(self, kept: AxisPlaces) -> None:
        for label, ends in self.ends.items():
            code = self.held_code(kept, label) > 0
            for name, axis in ends:
                have = kept.places(name, axis)
                if name in self.signals and have.sum() > code.sum() > GATHER * have.sum():
                    target = next(
                        (e for e in ends if e[0] not in self.signals),
                        (self.op.name, self.out.index(label)) if label in self.out else ends[0],
                    )
                    kept.add(*target, kept.code(name, axis), "leaving out so few gains nothing")

    # -- writing ---------------------------------------------------------------------------

    def write(self, writer: Writer) -> Any:
        given = [self.operand(writer, operand) for operand in self.operands]
        constant = self.folded(writer)
        return self.finish(writer, given, constant)

    def operand(self, writer: Writer, operand: Operand) -> Any:
        wanted: list[list[int] | None] = []
        for axis, label in enumerate(operand.labels):
            if (operand.name, axis) not in self.ends.get(label, ()):
                wanted.append(None)
            else:
                wanted.append(np.flatnonzero(self.held_code(writer.kept, label)).tolist())
        return writer.narrowed(operand.name, wanted)

    def finish(self, writer: Writer, given: list[Any], constant: Tensor | None) -> Any:
        """Write the operation over the places that stay, then add the constant."""
        out = writer.add(self.rewritten(writer, given))
        if constant is None:
            return out
        return writer.call(
            f"{self.op.name}_shifted", "aten.add.Tensor", out, self.shift(writer, constant)
        )

    def rewritten(self, writer: Writer, given: list[Any]) -> Op:
        stand = {o.name: g for o, g in zip(self.operands, given, strict=True)}

        def read(leaf: Any) -> Any:
            if not isinstance(leaf, Ref):
                return leaf
            return stand[leaf.name] if leaf.name in stand else writer.place(leaf.name)

        args, kwargs = replaced((self.op.args, dict(self.op.kwargs)), read)
        return Op(self.op.name, self.op.target, args, kwargs)

    def shift(self, writer: Writer, constant: Tensor) -> Any:
        """Return the constant as a trainable tensor, like a bias."""
        home = self.home(writer)
        return writer.constant(f"{home}.shift" if home else "shift", constant, learns=True)

    def home(self, writer: Writer) -> str:
        """Return the name of the module that owns the weight."""
        for name in self.weights():
            parameter = self.network.parameters.get(name)
            if parameter is not None and "." in parameter:
                return parameter.rpartition(".")[0]
        return self.network.places.get(self.op.name) or self.op.name

    # -- constants -------------------------------------------------------------------------

    def folded(self, writer: Writer) -> Tensor | None:
        """Return the constant that removed places contributed to the result; None if zero.

        It covers the places of the result that stay. Axes along which it does not vary are cut to
        size one.
        """
        out = self.value(self.op.name)
        if out.matters is None or not self.signals:
            return None
        old: dict[str, Tensor] = {}
        new: dict[str, Tensor] = {}
        for operand in self.operands:
            value = self.value(operand.name)
            whole = value.still() if operand.name in self.signals else value.tensor
            old[operand.name] = whole
            new[operand.name] = self.remaining(writer, operand, whole)
        total = self.difference(old, new)
        if total is None:
            return None
        total = torch.where(out.matters, total, torch.zeros_like(total))
        if not bool(total.any()):
            return None
        matters = writer.cut(self.op.name, out.matters)
        return uniform(writer.cut(self.op.name, total), matters)

    def difference(self, old: dict[str, Tensor], new: dict[str, Tensor]) -> Tensor | None:
        """Compute f(old) − f(new).

        The operands change one at a time, so that terms without a change cancel exactly.
        """
        total: Tensor | None = None
        for place, operand in enumerate(self.operands):
            change = old[operand.name] - new[operand.name]
            mixed = {
                o.name: new[o.name] if i < place else old[o.name]
                for i, o in enumerate(self.operands)
            } | {operand.name: change}
            if any(not bool(t.any()) for t in mixed.values()):
                continue
            part = self.evaluate(mixed)
            total = part if total is None else total + part
        return total

    def remaining(self, writer: Writer, operand: Operand, whole: Tensor) -> Tensor:
        """Return an operand of the new network: zero where places or connections are removed."""
        value = self.value(operand.name)
        if value.weight and self.is_pruned(writer, operand.name) and value.live is not None:
            whole = torch.where(value.live, whole, torch.zeros_like(whole))
        for axis, label in enumerate(operand.labels):
            if (operand.name, axis) not in self.ends.get(label, ()):
                continue
            stays = torch.from_numpy(self.held_code(writer.kept, label) > 0)
            if not bool(stays.all()):
                shape = [1] * whole.ndim
                shape[axis] = -1
                whole = torch.where(stays.reshape(shape), whole, torch.zeros_like(whole))
        return whole

    def is_pruned(self, writer: Writer, name: str) -> bool:
        return name in writer.pruned_values

    def evaluate(self, tensors: dict[str, Tensor]) -> Tensor:
        """Evaluate the product, without bias, on other operands."""

        def read(leaf: Any) -> Any:
            if not isinstance(leaf, Ref):
                return leaf
            return tensors[leaf.name]

        without = self.op
        if self.bias is not None:
            without = self.call.changed(self.op.name, bias=None)
        args, kwargs = replaced((without.args, dict(without.kwargs)), read)
        found: Tensor = function(without.target)(*args, **kwargs)
        return found


class Biased(Contraction):
    """A contraction whose operation has an argument ``bias``, which can take a constant."""

    channel = -1  # axis of the result

    def finish(self, writer: Writer, given: list[Any], constant: Tensor | None) -> Any:
        """Write the operation; add the constant to the bias if it is equal within each channel."""
        changes: dict[str, Any] = self.changes(writer, given)
        name = None if constant is None else self.own_bias(writer, constant)
        if name is not None and constant is not None:
            vector = constant.reshape(-1).expand(writer.kept.size(self.op.name)[self.channel])
            if self.bias is not None:
                vector = vector + writer.cut(self.bias, self.value(self.bias).tensor)
            changes["bias"] = writer.hold(name, vector, self.network.learns.get(name, True))
            constant = None
        else:
            changes["bias"] = None if self.bias is None else writer.place(self.bias)
        out = writer.add(self.call.changed(self.op.name, **changes))
        if constant is None:
            return out
        shift = self.shift(writer, constant)
        return writer.call(f"{self.op.name}_shifted", "aten.add.Tensor", out, shift)

    def changes(self, writer: Writer, given: list[Any]) -> dict[str, Any]:
        names = {ref.name: arg for arg, ref in self.call.arguments.items() if isinstance(ref, Ref)}
        return {names[o.name]: g for o, g in zip(self.operands, given, strict=True)}

    def own_bias(self, writer: Writer, constant: Tensor) -> str | None:
        """Return the name of the bias that takes the constant, or None.

        None means that the constant varies within a channel, or that other layers use the bias.
        """
        channel = self.channel % constant.ndim
        if any(n > 1 for axis, n in enumerate(constant.shape) if axis != channel):
            return None
        if self.bias is None:
            home = self.home(writer)
            return writer.fresh_tensor(f"{home}.bias" if home else "bias")
        parameter = self.network.parameters.get(self.bias)
        return parameter if parameter is not None and writer.uses[parameter] == 1 else None


def _distinct(names: Sequence[str]) -> bool:
    return len(set(names)) == len(names)


@relation_for(aten("linear"))
def linear(op: Op, network: Network) -> Relation | None:
    call = Barrier(op, network).call
    x, w = call["input"].name, call["weight"].name
    bias = call["bias"].name if isinstance(call["bias"], Ref) else None
    lead = tuple(f"a{i}" for i in range(len(network.values[x].shape) - 1))
    heads = ("n",) if len(network.values[w].shape) == 2 else ()
    if not heads or x == w:
        return None
    operands = [Operand(x, (*lead, "k")), Operand(w, (*heads, "k"))]
    return Biased(op, network, operands, (*lead, *heads), bias)


@relation_for(aten("einsum"))
def einsum(op: Op, network: Network) -> Relation | None:
    call = Barrier(op, network).call
    names = [ref.name for ref in call["tensors"]]
    ranks = [len(network.values[name].shape) for name in names]
    terms, out = _labels(call["equation"], ranks)
    if not _distinct(names) or any(not _distinct(term) for term in terms):
        return None
    operands = [Operand(n, tuple(t)) for n, t in zip(names, terms, strict=True)]
    return _product(op, network, operands, tuple(out))


@relation_for(aten("matmul mm bmm mv dot"))
def matmul(op: Op, network: Network) -> Relation | None:
    x, y = op.refs() if len(list(op.refs())) == 2 else ("", "")
    if x == y:
        return None
    return _product(op, network, *_matrix(network, x, y))


def _matrix(network: Network, x: str, y: str) -> tuple[list[Operand], tuple[str, ...]]:
    nx, ny = len(network.values[x].shape), len(network.values[y].shape)
    batch = tuple(f"b{i}" for i in range(max(nx, ny, 2) - 2))
    xl = (*batch[len(batch) - max(nx - 2, 0) :], *("i", "j")[-min(nx, 2) :])
    yl = (*batch[len(batch) - max(ny - 2, 0) :], *("j", "k")[: min(ny, 2)])
    out = (*batch, *(("i",) if nx > 1 else ()), *(("k",) if ny > 1 else ()))
    return [Operand(x, xl), Operand(y, yl)], out


def _product(
    op: Op, network: Network, operands: list[Operand], out: tuple[str, ...]
) -> Relation | None:
    if any(network.values[o.name].driven for o in operands):
        return Contraction(op, network, operands, out)
    # A product of weights alone is computed at every call, so that all of them stay trainable.
    labels: dict[str, tuple[str, ...]] = {o.name: o.labels for o in operands}
    return Aligned(op, network, labels | {op.name: out})


@relation_for(aten("addmm baddbmm addmv"))
def add_product(op: Op, network: Network) -> Relation | None:
    bias, x, y = list(op.refs()) if len(list(op.refs())) == 3 else ("", "", "")
    call = Barrier(op, network).call
    if not bias or len({bias, x, y}) != 3 or call["alpha"] != 1 or call["beta"] != 1:
        return None
    if network.values[bias].driven or not any(network.values[n].driven for n in (x, y)):
        return None
    operands, out = _matrix(network, x, y)
    return Added(op, network, operands, out, bias)


class Added(Contraction):
    """Compute bias + x · y."""

    def evaluate(self, tensors: dict[str, Tensor]) -> Tensor:
        x, y = (tensors[o.name] for o in self.operands)
        return torch.matmul(x, y)


# Scaled dot-product attention.


@relation_for(aten("scaled_dot_product_attention"))
def attention(op: Op, network: Network) -> Relation | None:
    call = Barrier(op, network).call
    names = [call[n].name for n in ("query", "key", "value")]
    ranks = {len(network.values[n].shape) for n in names}
    if call["enable_gqa"] or len(set(names)) != 3 or len(ranks) != 1:
        return None
    return Attention(op, network, names)


class Attention(Aligned):
    """Compact attention: q (..., L, D), k (..., S, D), v (..., S, E) to (..., L, E).

    All positions stay. Features of q and k are tied, and so are features of v and of the result.
    """

    def __init__(self, op: Op, network: Network, names: list[str]) -> None:
        rank = len(network.values[names[0]].shape)
        lead = [f"b{i}" for i in range(rank - 2)]
        q, k, v = names
        labels: dict[str, Any] = {
            q: [*lead, "l", "d"], k: [*lead, "s", "d"], v: [*lead, "s", "e"],
            op.name: [*lead, "l", "e"],
        }  # fmt: skip
        why = "attention reads every position"
        super().__init__(op, network, labels, {"l": why, "s": why})
        if isinstance(mask := self.call["attn_mask"], Ref):
            out = network.values[op.name].shape
            shape = network.values[mask.name].shape
            scores = [*out[:-1], network.values[k].shape[-2]]
            skip = rank - len(shape)
            for axis, size in enumerate(shape):
                place = skip + axis
                if size == scores[place] and place < rank - 2:
                    self.ends[lead[place]].append((mask.name, axis))
                else:
                    self.ends[f"mask{axis}"] = [(mask.name, axis)]
                    self.full[f"mask{axis}"] = why
        self.q, self.k = q, k

    def close(self, kept: AxisPlaces) -> None:
        super().close(kept)
        # If a feature is constant in both q and k, its product shifts the scores. Attention has no
        # bias that could hold this constant, so the feature stays.
        axis = len(self.value(self.q).shape) - 1
        gone = torch.from_numpy(~kept.places(self.q, axis))
        q, k = self.value(self.q), self.value(self.k)
        if q.matters is None or k.matters is None or not bool(gone.any()):
            return
        used = [
            torch.where(v.matters, v.still(), torch.zeros_like(v.still())).flatten(0, -2).any(0)
            for v in (q, k)
            if v.matters is not None
        ]
        both = (used[0] & used[1] & gone).numpy()
        kept.add(self.q, axis, both.astype("int32"), "it shifts the scores of attention")

    def write(self, writer: Writer) -> Any:
        read = {
            name: writer.read(self.call[name])
            for name in ("query", "key", "value", "attn_mask")
            if isinstance(self.call[name], Ref)
        }
        scale = self.call["scale"]
        if scale is None and not writer.kept.places(self.q, -1).all():
            scale = 1 / math.sqrt(self.value(self.q).shape[-1])
        return writer.add(self.call.changed(self.op.name, **read, scale=scale))
