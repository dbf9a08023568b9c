"""Heads that share a tensor and little else, each on its own.

A graph network's heads are one product, ``bukc,kcf->bukf``: a block of weights for each head k.
What stays of a tensor is a rectangle, so a channel that lives in one head would stay in all. Where
heads use different channels and filters, as they do in sparse networks, the product is written head
by head, and every head keeps its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...trace.einsum import _labels
from ...trace.values import leaves
from .calls import Call
from .program import Op, Ref
from .reading import Network, Value

GAIN = 2  # how many times fewer connections it must come to, to be worth that many operations


@dataclass(frozen=True)
class Product:
    """An einsum of a signal by a weight."""

    op: Op
    signal: str
    weight: str
    labels: dict[str, str]  # of both, and of the result

    def without(self, label: str) -> str:
        """The equation for one place of a label."""
        x, w, out = (
            self.labels[name].replace(label, "")
            for name in (self.signal, self.weight, self.op.name)
        )
        return f"{x},{w}->{out}"


def unroll_heads(network: Network) -> None:
    """Write products of heads one by one, where that leaves fewer connections."""
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
    if len(joined) != 1 or len(shared) != 1 or _returned(network, last.op.name):
        return
    if not _alone(network, readers, last.weight):
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
    """Whether heads keep so little in common that each does better alone."""
    if weight.live is None or not bool(weight.live.any()):
        return False
    axis = product.labels[product.weight].index(head)
    blocks = [weight.live.select(axis, i) for i in range(weight.live.shape[axis])]
    alone = sum(_rectangle(block) for block in blocks)
    together = _rectangle(weight.live)
    return GAIN * alone <= together


def _rectangle(live: Tensor) -> int:
    """How large the smallest rectangle around live connections is."""
    size = 1
    for axis in range(live.ndim):
        others = [a for a in range(live.ndim) if a != axis]
        size *= int((live.any(dim=tuple(others)) if others else live).sum())
    return size


def _before(
    network: Network, last: Product, head: str, readers: dict[str, list[Op]]
) -> Product | None:
    """The product that makes the heads' signals, if it too has a block for each."""
    op = next((op for op in network.ops if op.name == last.signal), None)
    product = None if op is None else _product(network, op)
    if product is None or len(readers[last.signal]) != 1 or _returned(network, last.signal):
        return None
    own = product.labels[product.op.name][last.labels[last.signal].index(head)]
    blocks = own in product.labels[product.weight] and _alone(network, readers, product.weight)
    return product if blocks else None


def _source(
    network: Network, last: Product, first: Product | None, head: str, number: int, ops: list[Op]
) -> str:
    """One head's signal: computed by itself, or read from the signal of all."""
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
    """One head's block of a weight, as a parameter of its own."""
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


def _alone(network: Network, readers: dict[str, list[Op]], weight: str) -> bool:
    """Whether this is the one use of a weight, and of the parameter it is a view of."""
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
    """The parameter that a weight is a view of."""
    by_name = {op.name: op for op in network.ops}
    while name not in network.parameters:
        name = next(n for n in by_name[name].refs() if network.values[n].weight)
    return network.parameters[name]


def _value(network: Network, name: str, of: str, axis: int, number: int) -> None:
    """One place of an axis of a value, as a value."""
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


def _returned(network: Network, name: str) -> bool:
    return any(isinstance(leaf, Ref) and leaf.name == name for leaf in leaves(network.result))
