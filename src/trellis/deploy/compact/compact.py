"""`trellis.compact`: remove dead connections and dead units, and compute the same function.

The model is read as a list of operations (`reading`). Each operation relates the axes of its inputs
to those of its result (`relations`). The relations are run until nothing changes, which gives the
least that can stay (`axis_places`), and the operations are written out at that size (`writing`).
"""

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
from ...graph.export import without_cache
from ...graph.inputs import unwrapped
from ...graph.steps import leaves
from ...graph.trellis import Trellis, trace
from ...masks import Masks, plain
from ...masks.masked import check_model, check_outputs
from .module import Compacted, Report, Stay, measured
from .program import NoOperation, Program, Ref
from .reading import Network, read
from .relations import Barrier, Recurrent, Relation, relation_of
from .rewrites import fold_batch_norms, unroll_heads, with_single_results
from .writing import AxisPlaces, Writer

# The last check: run both networks and compare their outputs.


# Largest difference, as a fraction of the largest output: rounding only.
NEAR = {torch.float64: 1e-8, torch.float32: 1e-3}


def check(network: Network, small: Compacted) -> None:
    """Raise unless both networks compute the same on the probe inputs."""
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
                raise _fault("outputs are infinite at different positions")
            want, have = want[want.isfinite()], have[have.isfinite()]
        far = float((want - have).abs().max()) if want.numel() else 0.0
        top = float(want.abs().max()) if want.numel() else 0.0
        if far > NEAR.get(want.dtype, 5e-2) * max(top, 1e-3):
            raise _fault(f"outputs differ by {far:.3g}, the largest is {top:.3g}")


def _fault(what: str) -> TrellisError:
    return TrellisError(
        f"compaction would change what this model computes ({what}), so nothing was returned. This "
        "is a bug of Trellis; please report it with the model"
    )


def _tensors(result: Any) -> list[Tensor]:
    return [y.detach() for y in pytree.tree_leaves(result) if isinstance(y, Tensor)]


# What stays although nothing in it is live, in words.


def left_alone(network: Network, kept: AxisPlaces, relations: dict[str, Relation]) -> list[str]:
    """List layers that keep dead weights, with the operation that prevents their removal."""
    found: dict[str, None] = {}
    for op in network.ops:
        relation = relations.get(op.name)
        weights = [n for n in op.refs() if n in network.values and network.values[n].weight]
        holds = any(network.parameters.get(name) in network.kept for name in weights)
        name, place = op.target.split(".")[-2], network.places.get(op.name) or op.name
        if isinstance(relation, Barrier) and holds:
            found[
                f"{place}: unchanged, because compaction does not know how to shrink `{name}`"
            ] = None
        elif isinstance(relation, Recurrent) and (dead := relation.dead(kept)):
            found[f"{place}: {dead:,} dead connections between units that stay are kept"] = None
    return list(found)


def stays(network: Network, kept: AxisPlaces, relations: dict[str, Relation]) -> list[Stay]:
    """Count units that stay although they are dead, by layer and reason."""
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


# Run the relations until nothing changes: the least that can stay.


def closed(network: Network, relations: Mapping[str, Relation], whole: str | None) -> AxisPlaces:
    """Return the places that stay; if ``whole`` is a reason, everything stays for it."""
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
    """Return groups of values that are one parameter under several names."""
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
    """Remove dead connections and dead units from a model.

    The result computes the same function, to float rounding. A unit that no input reaches is a
    constant: its value moves into the next bias. Some dead units must stay, because a layer norm
    needs them for its statistics or a sum needs the width; the report lists them. Both networks are
    run and compared before the result is returned.

    Args:
        model: The model, masked or baked, or a traced `Trellis`. It is read in eval mode and not
            changed.
        example_inputs: Example inputs, as for `trellis.audit`; not needed for a `Trellis`.

    Returns:
        The smaller model. ``print(small)`` shows what was removed and what had to stay.

    Raises:
        TrellisError: If the model cannot be traced, holds NaN or infinity, or if the compacted
            network would compute something else.

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
    except NoOperation:  # something depends on the batch size: fix the batch size
        return _compacted(read(model, example_inputs, batched=False))


def _compacted(network: Network) -> Compacted:
    before = measured(network.model, network.net)
    _only_needed(network)
    with_single_results(network)
    notes = [
        f"{place}: a batch norm stays as a scale and a shift, because no single layer feeds it"
        for place in fold_batch_norms(network)
    ]
    if not network.fixed:
        unroll_heads(network)
        _only_needed(network)
    relations = {op.name: relation_of(op, network) for op in network.ops if _runs(network, op.name)}
    whole = None
    if network.fixed:
        whole = "integer inputs decide which units are connected"
        notes.append(
            f"all units stay: an integer input is used as structure at {network.fixed[0]}, so a "
            "unit that is dead for these inputs may be live for others; make it a buffer"
        )
    kept = closed(network, relations, whole)
    if not network.batched:
        notes.append(f"accepts only inputs of the example's shapes: {network.net.example}")
    notes += left_alone(network, kept, relations)
    small = _written(network, kept, relations)
    check(network, small)
    small.report = Report(
        before, measured(small, trace(small, tuple(network.probes))),
        tuple(stays(network, kept, relations)), tuple(notes),
    )  # fmt: skip
    return small


def _runs(network: Network, name: str) -> bool:
    """Return whether an operation must run, because its result is not a plain constant."""
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
        # What is constant for the example's structure may not be for another.
        if op.name in relations and (not settled or network.fixed):
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
    """Return parameters that are only multiplied: their dead connections can become zero."""
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
