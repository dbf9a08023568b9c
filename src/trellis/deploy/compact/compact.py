"""`trellis.compact`: the same function, dead connections and dead units gone."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...devices import on_cpu
from ...errors import TrellisError
from ...finite import check_model, check_outputs
from ...graph.export import without_cache
from ...graph.steps import leaves
from ...graph.trellis import Trellis, trace, unwrapped
from ...masks import Masks, plain
from .axis_places import AxisPlaces
from .module import Compacted
from .program import NoOperation, Program, Ref
from .reading import Network, read
from .relations import Barrier, Recurrent, Relation, relation_of
from .report import Report, Stay, measured
from .rewrites import fold_batch_norms, unroll_heads, with_single_results
from .writing import Writer

# The last word: both networks are run and compared.


# How far outputs may differ, as a part of the largest: rounding, and no more.
NEAR = {torch.float64: 1e-8, torch.float32: 1e-3}


def check(network: Network, small: Compacted) -> None:
    """Run both: a compacted network that computes something else is never handed out."""
    args, kwargs = pytree.tree_unflatten(network.probes, network.nesting)
    with plain(network.model) as model, without_cache(model), torch.no_grad():
        expected = _tensors(model(*args, **kwargs))
        check_outputs(expected, "look for a division by zero or an overflow before compacting")
        found = _tensors(small(*args, **kwargs))
    for want, have in zip(expected, found, strict=True):
        if want.shape != have.shape:
            raise _fault(f"shapes {tuple(have.shape)}, not {tuple(want.shape)}")
        if not want.is_floating_point() or torch.equal(want, have):
            continue
        if not bool(want.isfinite().all()):
            same = want.isfinite() == have.isfinite()
            if not bool(same.all()):
                raise _fault("outputs are infinite in other places")
            want, have = want[want.isfinite()], have[have.isfinite()]
        far = float((want - have).abs().max()) if want.numel() else 0.0
        top = float(want.abs().max()) if want.numel() else 0.0
        if far > NEAR.get(want.dtype, 5e-2) * max(top, 1e-3):
            raise _fault(f"outputs differ by {far:.3g}, the largest is {top:.3g}")


def _fault(what: str) -> TrellisError:
    return TrellisError(
        f"compaction would change what this model computes ({what}), and was given up. This is a "
        "fault of Trellis: please report it with the model"
    )


def _tensors(result: Any) -> list[Tensor]:
    return [y.detach() for y in pytree.tree_leaves(result) if isinstance(y, Tensor)]


# What stays though nothing lives in it, in words.


def left_alone(network: Network, kept: AxisPlaces, relations: dict[str, Relation]) -> list[str]:
    """Layers out of whose weights not all is taken that could be, with the operation that is in
    the way."""
    found: dict[str, None] = {}
    for op in network.ops:
        relation = relations.get(op.name)
        weights = [n for n in op.refs() if n in network.values and network.values[n].weight]
        holds = any(network.parameters.get(name) in network.kept for name in weights)
        name, place = op.target.split(".")[-2], network.places.get(op.name) or op.name
        if isinstance(relation, Barrier) and holds:
            found[f"{place}: left as it is, compaction does not reach into `{name}`"] = None
        elif isinstance(relation, Recurrent) and (dead := relation.dead(kept)):
            found[f"{place}: {dead:,} dead connections between units that stay are left"] = None
    return list(found)


def stays(network: Network, kept: AxisPlaces, relations: dict[str, Relation]) -> list[Stay]:
    """Units of layers that stay though nothing lives in them, counted by reason."""
    found: dict[tuple[str, str], int] = {}
    for name, relation in relations.items():
        value = network.values.get(name)
        if value is None or value.constant or not relation.weights() or value.live is None:
            continue
        sizes = kept.size(name)
        for axis in range(len(value.shape)):
            code = kept.code(name, axis)
            others = math.prod(n for a, n in enumerate(sizes) if a != axis)
            for reason in sorted(set(code[code > 1].tolist())):
                key = (network.places.get(name) or name, kept.reasons[reason])
                found[key] = found.get(key, 0) + int((code == reason).sum()) * others
    return [Stay(layer, units, why) for (layer, why), units in found.items()]


# Running the relations until nothing changes: the least that can stay.


def closed(network: Network, relations: Mapping[str, Relation], whole: str | None) -> AxisPlaces:
    """What stays of every axis of every value. ``whole``: a reason for everything to."""
    kept = AxisPlaces(network)
    for name in network.inputs:
        if name in network.values:
            for axis in range(len(network.values[name].shape)):
                kept.fill(name, axis, "the model takes it")
    for leaf in leaves(network.result):
        if isinstance(leaf, Ref) and leaf.name in network.values:
            for axis in range(len(network.values[leaf.name].shape)):
                kept.fill(leaf.name, axis, "the model returns it")
    if whole is not None:
        for name, value in network.values.items():
            for axis in range(len(value.shape)):
                kept.fill(name, axis, whole)
        return kept
    for name, value in network.values.items():
        for axis in value.open:
            kept.fill(name, axis, "it is one with the batch")
    tied = _tied(network)
    while True:
        _close(kept, relations, tied)
        kept.changed.clear()
        kept.complete()
        if kept.changed:
            continue
        for relation in relations.values():
            relation.settle(kept)
        if not kept.changed:
            return kept


def _tied(network: Network) -> list[list[str]]:
    """Values that are one parameter under several names."""
    groups: dict[str, list[str]] = {}
    for value, parameter in network.parameters.items():
        groups.setdefault(parameter, []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def _close(kept: AxisPlaces, relations: Mapping[str, Relation], tied: list[list[str]]) -> None:
    readers: dict[str, list[Relation]] = {}
    for relation in relations.values():
        for name in relation.touched():
            readers.setdefault(name, []).append(relation)
    waiting = list(relations.values())
    while waiting:
        kept.changed.clear()
        for relation in waiting:
            relation.close(kept)
        for group in tied:
            for axis in range(len(kept.codes[group[0]])):
                kept.tie([(name, axis) for name in group], "its weight is tied to another")
        again = {id(r): r for name in kept.changed for r in readers.get(name, ())}
        waiting = list(again.values())


@on_cpu()
def compact(model: nn.Module | Trellis, example_inputs: Any = None) -> Compacted:
    """The same function with dead connections and dead units physically gone.

    ``example_inputs`` as for `trellis.audit`. The model is read in eval mode and not changed. A
    unit that no input reaches is a constant: its value goes into the next bias, so outputs are
    equal to float rounding, biases and norms included. Units that carry nothing and yet must stay
    (a layer norm's statistics, sums that need the width) stay, and printing the result says so.

    >>> import trellis
    >>> model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    >>> masks = trellis.prune(model, torch.zeros(1, 8), sparsity=0.9)
    >>> small = compact(model, torch.zeros(1, 8))
    >>> x = torch.randn(5, 8)
    >>> torch.allclose(small(x), model(x), atol=1e-6)
    True
    >>> small.report.after.units < small.report.before.units
    True
    """
    if isinstance(model, Trellis):
        if example_inputs is None:
            example_inputs = model.example_inputs
        model = model.model
    if isinstance(model, nn.Module):
        model = unwrapped(model)
        check_model(model, "repair it before compacting")
    devices = {p.device for p in model.parameters()} if isinstance(model, nn.Module) else set()
    if any(device.type != "cpu" for device in devices):
        small = compact(copy.deepcopy(model).cpu(), example_inputs)
        return small.to(next(iter(devices)))
    try:
        return _compacted(read(model, example_inputs))
    except NoOperation:  # something is counted out from the batch's size: fix it
        return _compacted(read(model, example_inputs, batched=False))


def _compacted(network: Network) -> Compacted:
    before = measured(network.model, network.net)
    _only_needed(network)
    with_single_results(network)
    notes = [
        f"{place}: a batch norm stays as a scale and a shift, since what it reads comes from "
        "no layer of its own"
        for place in fold_batch_norms(network)
    ]
    if not network.fixed:
        unroll_heads(network)
        _only_needed(network)
    relations = {op.name: relation_of(op, network) for op in network.ops if _runs(network, op.name)}
    whole = None
    if network.fixed:
        whole = "integer inputs decide who sends to whom"
        notes.append(
            f"all units stay: an integer input acts as structure at {network.fixed[0]}, so what is "
            "dead for these inputs may live for others. Make it a buffer of the model to compact"
        )
    kept = closed(network, relations, whole)
    if not network.batched:
        notes.append(f"takes inputs of the example's shapes only: {network.net.example}")
    notes += left_alone(network, kept, relations)
    small = _written(network, kept, relations)
    check(network, small)
    small.report = Report(
        before, measured(small, trace(small, tuple(network.probes))),
        tuple(stays(network, kept, relations)), tuple(notes),
    )  # fmt: skip
    return small


def _runs(network: Network, name: str) -> bool:
    """Whether an operation's result is more than a constant that can be kept as it is."""
    value = network.values.get(name)
    return value is None or value.computed or bool(value.open)


def _only_needed(network: Network) -> None:
    program = Program(tuple(network.inputs), tuple(network.ops), network.result).needed()
    network.ops = list(program.ops)


def _written(network: Network, kept: AxisPlaces, relations: dict[str, Relation]) -> Compacted:
    pruned = set() if network.fixed else _pruned(network, relations)
    writer = Writer(network, kept, pruned)
    for name in network.inputs:
        writer.places[name] = Ref(name)
    for op in network.ops:
        value = network.values.get(op.name)
        settled = value is not None and value.driven and value.constant and value.batch
        if op.name in relations and not settled:
            writer.places[op.name] = relations[op.name].write(writer)
    result = writer.read(network.result)
    program = Program(tuple(network.inputs), tuple(writer.ops), result).needed()
    held = {name: writer.held[name] for name in program.held()}
    small = Compacted(
        program,
        {n: nn.Parameter(t.tensor, t.learns) for n, t in held.items() if t.parameter},
        {n: t.tensor for n, t in held.items() if not t.parameter},
        _NONE,
        network.net.specs,
    )
    masks = {n: t.mask for n, t in held.items() if t.mask is not None and not bool(t.mask.all())}
    return Masks(masks).apply(small) if masks else small


def _pruned(network: Network, relations: dict[str, Relation]) -> set[str]:
    """Parameters of which every use is a product: their dead connections can become zero."""
    readers = network.readers()

    def only_multiplied(name: str) -> bool:
        for op in readers.get(name, ()):
            value = network.values.get(op.name)
            parts = isinstance(network.results.get(op.name), list | tuple)
            if parts or (value is not None and value.weight):
                if not only_multiplied(op.name):
                    return False
            elif op.name not in relations or name not in relations[op.name].weights():
                return False
        return not any(isinstance(x, Ref) and x.name == name for x in leaves(network.result))

    found = set(network.kept)
    for value, parameter in network.parameters.items():
        if not only_multiplied(value):
            found.discard(parameter)
    return found


_NO_SIZE = dict.fromkeys(("units", "connections", "kept", "dense", "sparse", "bytes"), 0)
_NONE = Report.from_dict({"before": _NO_SIZE, "after": _NO_SIZE, "stays": [], "notes": []})
