"""Heads that share a tensor and little else, each on its own.

A graph network's heads are one product, ``bukc,kcf->bukf``: a block of weights for each head k.
What stays of a tensor is a rectangle, so a channel that lives in one head would stay in all. Where
heads use different channels and filters, as they do in sparse networks, the product is written head
by head, and every head keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...graph.builder import _labels
from ...graph.steps import leaves
from .program import Call, Op, Ref
from .reading import Network, Value

# Replace operations that return more than is used by their plain forms.
#
# Where a model computes in place, `torch.export` rewrites it, and norms and pools come out of that
# in forms that also return statistics and indices, for a backward pass that is not run here.


Plain = Callable[[Call], tuple[str, tuple[Any, ...]]]


def _batch_norm(call: Call) -> tuple[str, tuple[Any, ...]]:
    names = ("input", "weight", "bias", "running_mean", "running_var")
    return "aten.batch_norm.default", (
        *(call[name] for name in names), False, call["momentum"], call["eps"], False
    )  # fmt: skip


def _layer_norm(call: Call) -> tuple[str, tuple[Any, ...]]:
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    return "aten.layer_norm.default", (*(call[name] for name in names), False)


def _group_norm(call: Call) -> tuple[str, tuple[Any, ...]]:
    names = ("input", "group", "weight", "bias", "eps")
    return "aten.group_norm.default", (*(call[name] for name in names), False)


def _rms_norm(call: Call) -> tuple[str, tuple[Any, ...]]:
    names = ("input", "normalized_shape", "weight", "eps")
    return "aten.rms_norm.default", tuple(call[name] for name in names)


def _max_pool(call: Call) -> tuple[str, tuple[Any, ...]]:
    name = call.op.target.split(".")[1].removesuffix("_with_indices")
    return f"aten.{name}.default", tuple(call.arguments.values())


_PLAIN: dict[str, Plain] = {
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_fused_rms_norm": _rms_norm,
    "max_pool2d_with_indices": _max_pool,
    "max_pool3d_with_indices": _max_pool,
}


def with_single_results(network: Network) -> None:
    """Replace operations of which only the first result is read."""
    readers = network.readers()
    ops: list[Op] = []
    plain: dict[str, Op] = {}  # by the name of the operation that returns several
    for op in network.ops:
        source = op.args[0].name if op.target == "operator.getitem" else ""
        if source in plain:
            target, args = _PLAIN[plain[source].target.split(".")[1]](Call(plain[source]))
            ops.append(Op(op.name, target, args))
            network.places[op.name] = network.places.get(source, "")
            continue
        known = len(op.target.split(".")) == 3 and op.target.split(".")[1] in _PLAIN
        used = readers.get(op.name, [])
        if known and len(used) == 1 and used[0].args[1:] == (0,):
            plain[op.name] = op
            continue
        ops.append(op)
    network.ops = ops


# Batch norms in eval mode are a scale and a shift, which fold into the layer before.


LAYERS = ("linear", "conv1d", "conv2d", "conv3d", "convolution",
          "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")  # fmt: skip


def fold_batch_norms(network: Network) -> list[str]:
    """Fold batch norms; return those that stay as a scale and a shift."""
    stay = []
    for op in list(network.ops):
        if not op.target.startswith("aten.batch_norm."):
            continue
        call = Call(op)
        if call["running_mean"] is None or call["running_var"] is None or call["training"]:
            continue
        scale, shift = _affine(network, call)
        if not _into_layer(network, op, call, scale, shift):
            _apart(network, op, call, scale, shift)
            stay.append(network.places.get(op.name) or op.name)
    return stay


def _affine(network: Network, call: Call) -> tuple[Tensor, Tensor]:
    def tensor(name: str) -> Tensor | None:
        ref = call[name]
        return network.values[ref.name].tensor.double() if isinstance(ref, Ref) else None

    mean, variance = tensor("running_mean"), tensor("running_var")
    assert mean is not None and variance is not None
    scale = 1 / torch.sqrt(variance + call["eps"])
    weight, bias = tensor("weight"), tensor("bias")
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return scale, shift


def _into_layer(network: Network, op: Op, call: Call, scale: Tensor, shift: Tensor) -> bool:
    """Fold into the layer before, if only the norm reads it and its tensors are not shared."""
    x = call["input"].name
    place = next((i for i, other in enumerate(network.ops) if other.name == x), None)
    if place is None:
        return False
    layer = network.ops[place]
    kind = layer.target.split(".")[1]
    readers = network.readers()
    if kind not in LAYERS or len(readers[x]) != 1 or _returned(network, x):
        return False
    own = Call(layer)
    w, b = own["weight"], own["bias"]
    for ref in (w, b):
        if isinstance(ref, Ref) and not _alone(network, readers, ref.name):
            return False
    if kind == "linear" and len(network.values[x].shape) != 2:
        return False
    weight = network.values[w.name]
    transposed = "transpose" in kind or bool(own.arguments.get("transposed", False))
    weight.tensor = _scaled(weight.tensor, scale, transposed, int(own.arguments.get("groups", 1)))
    if b is None:
        name = f"{op.name}_bias"
        home = network.parameters[w.name].rpartition(".")[0]
        network.parameters[name] = f"{home}.bias" if home else "bias"
        network.values[name] = Value(name, shift.to(weight.tensor), weight=True, computed=True)
        b = Ref(name)
    else:
        bias = network.values[b.name]
        bias.tensor = (bias.tensor.double() * scale + shift).to(bias.tensor)
    network.ops = [other for other in network.ops if other.name != x]
    place = next(i for i, other in enumerate(network.ops) if other.name == op.name)
    network.ops[place] = own.changed(op.name, bias=b)
    network.places[op.name] = network.places.get(x, "")
    del network.values[x]
    return True


def _scaled(weight: Tensor, scale: Tensor, transposed: bool, groups: int) -> Tensor:
    if not transposed:
        return (weight.double() * scale.reshape(-1, *[1] * (weight.ndim - 1))).to(weight)
    wide = weight.reshape(groups, -1, *weight.shape[1:])  # (groups, tails, heads, *taps)
    per = scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
    return (wide.double() * per).reshape(weight.shape).to(weight)


def _apart(network: Network, op: Op, call: Call, scale: Tensor, shift: Tensor) -> None:
    """Write x · scale + shift, for a norm that cannot be folded."""
    x, out = network.values[call["input"].name], network.values[op.name]
    shape = [-1] + [1] * (len(out.shape) - 2)
    readers = network.readers()
    names = []
    for part, tensor in (("weight", scale), ("bias", shift)):
        name = f"{op.name}_{part}"
        network.parameters[name] = _named(network, readers, op, call[part], part)
        value = Value(name, tensor.reshape(shape).to(x.tensor), weight=True, computed=True)
        network.values[name] = value
        names.append(name)
    middle = f"{op.name}_scaled"
    network.values[middle] = Value(
        middle, x.tensor * network.values[names[0]].tensor, out.open, x.depends, out.matters,
        out.live, driven=True, computed=True,
    )  # fmt: skip
    place = network.ops.index(op)
    network.ops[place : place + 1] = [
        Op(middle, "aten.mul.Tensor", (Ref(x.name), Ref(names[0]))),
        Op(op.name, "aten.add.Tensor", (Ref(middle), Ref(names[1]))),
    ]
    network.places[middle] = network.places.get(op.name, "")


def _named(network: Network, readers: dict[str, list[Op]], op: Op, given: object, part: str) -> str:
    """Return the name of the norm's parameter, to be replaced, or a new name."""
    if isinstance(given, Ref) and _alone(network, readers, given.name):
        return network.parameters.pop(given.name)
    name = f"{network.places.get(op.name) or op.name}.{part}"
    return f"{name}_folded" if name in network.parameters.values() else name


def _alone(network: Network, readers: dict[str, list[Op]], name: str) -> bool:
    """Return whether a value is a parameter that exactly one operation reads."""
    parameter = network.parameters.get(name)
    if parameter is None or len(readers.get(name, [])) != 1:
        return False
    same = [n for n, p in network.parameters.items() if p == parameter]
    return sum(len(readers.get(n, [])) for n in same) == 1


def _returned(network: Network, name: str) -> bool:
    return any(isinstance(leaf, Ref) and leaf.name == name for leaf in leaves(network.result))


GAIN = 2  # how many times fewer connections it must come to, to be worth that many operations


@dataclass(frozen=True)
class Product:
    """An einsum of a signal and a weight."""

    op: Op
    signal: str
    weight: str
    labels: dict[str, str]  # of both, and of the result

    def without(self, label: str) -> str:
        """Return the equation for one place of a label."""
        x, w, out = (
            self.labels[name].replace(label, "")
            for name in (self.signal, self.weight, self.op.name)
        )
        return f"{x},{w}->{out}"


def unroll_heads(network: Network) -> None:
    """Write products of heads one by one, if that leaves fewer connections."""
    for op in list(network.ops):
        product = _product(network, op)
        if product is not None and op in network.ops:
            _unroll(network, product)


def _product(network: Network, op: Op) -> Product | None:
    if not op.target.startswith("aten.einsum"):
        return None
    call = Call(op)
    names = [ref.name for ref in call["tensors"]]
    if len(names) != 2 or len(set(names)) != 2:
        return None
    terms, out = _labels(call["equation"], [len(network.values[n].shape) for n in names])
    if any(len(set(term)) != len(term) for term in [*terms, out]):
        return None
    labels = dict(zip(names, terms, strict=True)) | {op.name: out}
    signals = [name for name in names if network.values[name].driven]
    weights = [name for name in names if network.values[name].weight]
    if len(signals) != 1 or len(weights) != 1:
        return None
    return Product(op, signals[0], weights[0], labels)


def _unroll(network: Network, last: Product) -> None:
    readers = network.readers()
    joined = readers.get(last.op.name, [])
    weight = network.values[last.weight]
    out = last.labels[last.op.name]
    shared = [c for c in out if c in last.labels[last.signal] and c in last.labels[last.weight]]
    if len(joined) != 1 or len(shared) != 1 or _heads_returned(network, last.op.name):
        return
    if not _heads_alone(network, readers, last.weight):
        return
    head, place = shared[0], out.index(shared[0])
    shape, merged = network.values[last.op.name].shape, network.values[joined[0].name].shape
    # The next axis is what each head makes, and what follows lines them up one after another.
    if place + 1 == len(out) or out[place + 1] not in last.labels[last.weight]:
        return
    lined = (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])
    known = joined[0].target.split(".")[1] in ("flatten", "reshape", "view", "_unsafe_view")
    if not known or merged != lined or shape[place] < 2 or not _is_sparse(weight, last, head):
        return
    first = _before(network, last, head, readers)
    ops: list[Op] = []
    parts: list[Ref] = []
    for number in range(shape[place]):
        source = _source(network, last, first, head, number, ops)
        name = f"{last.op.name}_head{number}"
        own = _weight(network, last.weight, last.labels[last.weight].index(head), number)
        _value(network, name, last.op.name, place, number)
        order = [Ref(source if n == last.signal else own) for n in (last.signal, last.weight)]
        ops.append(Op(name, "aten.einsum.default", (last.without(head), order)))
        network.places[name] = network.places.get(last.op.name, "")
        parts.append(Ref(name))
    ops.append(Op(joined[0].name, "aten.cat.default", (parts, place)))
    gone = {last.op.name} | ({first.op.name} if first is not None else set())
    kept = [op for op in network.ops if op.name not in gone]
    at = kept.index(joined[0])
    network.ops = [*kept[:at], *ops, *kept[at + 1 :]]
    for name in gone:
        del network.values[name]


def _is_sparse(weight: Value, product: Product, head: str) -> bool:
    """Return whether separate heads would hold fewer connections."""
    if weight.live is None or not bool(weight.live.any()):
        return False
    axis = product.labels[product.weight].index(head)
    blocks = [weight.live.select(axis, i) for i in range(weight.live.shape[axis])]
    alone = sum(_rectangle(block) for block in blocks)
    together = _rectangle(weight.live)
    return GAIN * alone <= together


def _rectangle(live: Tensor) -> int:
    """Return the size of the smallest rectangle around live connections."""
    size = 1
    for axis in range(live.ndim):
        others = [a for a in range(live.ndim) if a != axis]
        size *= int((live.any(dim=tuple(others)) if others else live).sum())
    return size


def _before(
    network: Network, last: Product, head: str, readers: dict[str, list[Op]]
) -> Product | None:
    """Return the product that makes the heads' signals, if it too has one block per head."""
    op = next((op for op in network.ops if op.name == last.signal), None)
    product = None if op is None else _product(network, op)
    if product is None or len(readers[last.signal]) != 1 or _heads_returned(network, last.signal):
        return None
    own = product.labels[product.op.name][last.labels[last.signal].index(head)]
    blocks = own in product.labels[product.weight] and _heads_alone(
        network, readers, product.weight
    )
    return product if blocks else None


def _source(
    network: Network, last: Product, first: Product | None, head: str, number: int, ops: list[Op]
) -> str:
    """Return one head's signal: computed alone, or read from the signal of all."""
    axis = last.labels[last.signal].index(head)
    name = f"{last.signal}_head{number}"
    _value(network, name, last.signal, axis, number)
    network.places[name] = network.places.get(last.signal, "")
    if first is None:
        ops.append(Op(name, "aten.select.int", (Ref(last.signal), axis, number)))
        return name
    label = first.labels[first.op.name][axis]
    own = _weight(network, first.weight, first.labels[first.weight].index(label), number)
    signal = first.signal
    if label in first.labels[signal]:
        signal = f"{first.signal}_head{number}"
        axis = first.labels[first.signal].index(label)
        _value(network, signal, first.signal, axis, number)
        ops.append(Op(signal, "aten.select.int", (Ref(first.signal), axis, number)))
    ops.append(Op(name, "aten.einsum.default", (first.without(label), [Ref(signal), Ref(own)])))
    return name


def _weight(network: Network, name: str, axis: int, number: int) -> str:
    """Return one head's block of a weight, as a separate parameter."""
    own = f"{name}_head{number}"
    _value(network, own, name, axis, number)
    parameter = _origin(network, name)
    plain = f"{parameter}_head{number}"
    network.parameters[own] = plain
    network.learns[plain] = network.learns.get(parameter, True)
    value = network.values[own]
    assert value.live is not None
    network.kept[plain] = value.live | (value.tensor != 0)
    network.lives[plain] = value.live
    return own


def _heads_alone(network: Network, readers: dict[str, list[Op]], weight: str) -> bool:
    """Return whether this is the only use of a weight and of its parameter."""
    by_name = {op.name: op for op in network.ops}
    while True:
        if len(readers.get(weight, [])) != 1:
            return False
        if weight in network.parameters:
            same = [n for n, p in network.parameters.items() if p == network.parameters[weight]]
            return len(same) == 1
        sources = [n for n in by_name[weight].refs() if network.values[n].weight]
        if len(sources) != 1:
            return False
        weight = sources[0]


def _origin(network: Network, name: str) -> str:
    """Return the parameter that a weight is a view of."""
    by_name = {op.name: op for op in network.ops}
    while name not in network.parameters:
        name = next(n for n in by_name[name].refs() if network.values[n].weight)
    return network.parameters[name]


def _value(network: Network, name: str, of: str, axis: int, number: int) -> None:
    """Return one place of an axis of a value, as a value."""
    whole = network.values[of]

    def part(bits: Tensor | None) -> Tensor | None:
        return None if bits is None else bits.select(axis, number)

    network.values[name] = Value(
        name,
        whole.tensor.select(axis, number),
        tuple(a - (a > axis) for a in whole.open if a != axis),
        part(whole.depends),
        part(whole.matters),
        part(whole.live),
        whole.weight,
        whole.batch,
        whole.driven,
        whole.computed,
    )


def _heads_returned(network: Network, name: str) -> bool:
    return any(isinstance(leaf, Ref) and leaf.name == name for leaf in leaves(network.result))
