"""`trellis.compact`: the same function, dead connections and dead units gone."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ...devices import on_cpu
from ...errors import TrellisError
from ...finite import check_model
from ...masks import Masks
from ...trace.trellis import Trellis, spec, trace
from ...trace.values import leaves
from .batch_norm import fold_batch_norms
from .checking import check
from .closing import closed
from .heads import unroll_heads
from .kept import Kept
from .module import Compacted
from .program import NoOperation, Program, Ref
from .reading import Network, read
from .relations import Relation, relation_of
from .report import Report, measured
from .single import with_single_results
from .telling import left_alone, stays
from .writing import Writer


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
            example_inputs = tuple(_example(spec) for spec in model.specs)
        model = model.model
    if isinstance(model, nn.Module):
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


def _example(spec: dict[str, Any]) -> Any:
    if "shape" not in spec:
        raise TrellisError(f"the traced trellis has an input {spec!r}: give example_inputs as well")
    return torch.zeros(spec["shape"], dtype=getattr(torch, spec["dtype"]))


def _runs(network: Network, name: str) -> bool:
    """Whether an operation's result is more than a constant that can be kept as it is."""
    value = network.values.get(name)
    return value is None or value.computed or bool(value.open)


def _only_needed(network: Network) -> None:
    program = Program(tuple(network.inputs), tuple(network.ops), network.result).needed()
    network.ops = list(program.ops)


def _written(network: Network, kept: Kept, relations: dict[str, Relation]) -> Compacted:
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
        [spec(probe) for probe in network.probes],
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
