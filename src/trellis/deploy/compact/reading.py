"""Read a model as a list of operations, with what is known of every unit of every result."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ...errors import TrellisError
from ...graph.export import LOOKUPS, decompose, export, mutates, on_plain
from ...graph.inputs import Inputs, as_inputs, of_tensors, one_sample, unwrapped, values
from ...graph.inputs import leaves as input_leaves
from ...graph.interpreter import Interpreter, UnknownOperation, where
from ...graph.steps import Signal, Weight, leaves
from ...graph.trellis import Trellis, assemble, current
from ...masks.masked import aliases, undisturbed
from ...masks.slots import named_slots
from ...paths.liveness import Liveness, ends, liveness, propagate
from .program import Op, Ref, target_of

# Export a model so that it accepts batches of any size.


def exported(model: nn.Module, inputs: Inputs, *, of: nn.Module) -> tuple[ExportedProgram, bool]:
    """Export a plain model for one sample, the batch left open where the first dimension is one.

    Says whether it is. ``of`` as for `export`.
    """
    given = values(inputs)
    if given and all(isinstance(x, Tensor) and x.ndim and x.shape[0] == 1 for x in given):
        twice = of_tensors(inputs, lambda x: torch.cat([x, x]))
        if values(one_sample(model, twice))[0].shape[0] == 1:
            try:
                program = export(model, twice, _open_batch(model, twice), of=of)
            except TrellisError:
                return export(model, inputs, of=of), False
            first = next(n for n in program.graph.nodes if is_input(program, n))
            if not isinstance(first.meta["val"].shape[0], int):
                return program, True
    return export(model, inputs, of=of), False


def _open_batch(model: nn.Module, inputs: Inputs) -> dict[str, Any]:
    """Leave the first dimension of every input open, in the form that `torch.export` takes:
    a dictionary from the names of forward() to shapes."""
    given = inspect.signature(model.forward).bind(*inputs.args, **inputs.kwargs).arguments
    found: dict[str, Any] = pytree.tree_map_only(Tensor, lambda _: {0: Dim.AUTO}, dict(given))
    return found


def is_input(program: ExportedProgram, node: fx.Node) -> bool:
    return node.op == "placeholder" and node.name in program.graph_signature.user_inputs


@dataclass(eq=False)
class Value:
    """One tensor of the network, in the shape it has for one sample.

    ``open``: the axes whose size depends on the batch. ``tensor``: what it is on a probe.
    ``depends`` and ``matters`` (bool, in its shape): whether an input reaches a unit, and whether
    a change there changes an output; None if that is so nowhere. ``live``: for a weight, which of
    its connections are; for activations, the units for which both hold.
    """

    name: str
    tensor: Tensor
    open: tuple[int, ...] = ()
    depends: Tensor | None = None
    matters: Tensor | None = None
    live: Tensor | None = None
    weight: bool = False  # entries of parameters, seen through views
    batch: bool = True  # whether its open axes are the batch itself, one unit long in a sample
    driven: bool = False  # computed from an input, even if none of it arrives
    computed: bool = False  # from parameters or inputs; else it is the same for ever

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @cached_property
    def constant(self) -> bool:
        """Return whether its value is the same for every input, wherever it matters."""
        return not self.weight and (self.live is None or not bool(self.live.any()))

    def still(self) -> Tensor:
        """Return the entries that no input reaches; zero elsewhere."""
        if self.depends is None:
            return self.tensor
        return torch.where(self.depends, torch.zeros_like(self.tensor), self.tensor)


@dataclass(eq=False)
class Network:
    """A model as operations over values, before anything is removed."""

    model: nn.Module
    net: Trellis
    inputs: list[str]
    probes: list[Any]
    ops: list[Op] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)  # value -> the parameter's plain name
    learns: dict[str, bool] = field(default_factory=dict)  # plain name -> requires_grad
    kept: dict[str, Tensor] = field(default_factory=dict)  # plain name -> which entries are kept
    lives: dict[str, Tensor] = field(default_factory=dict)  # plain name -> and which of them live
    places: dict[str, str] = field(default_factory=dict)  # operation -> module it belongs to
    results: dict[str, Any] = field(default_factory=dict)  # of operations that return several
    result: Any = None
    fixed: list[str] = field(default_factory=list)  # where integer inputs decide who sends to whom
    batched: bool = False
    nesting: Any = None  # of the inputs, as they are given

    def readers(self) -> dict[str, list[Op]]:
        """Return the operations that read each value."""
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            for name in dict.fromkeys(op.refs()):
                found.setdefault(name, []).append(op)
        return found


class Watching(Interpreter):
    """Records where integer inputs act as structure: results then hold only for these inputs."""

    def __init__(self, *args: Any, as_data: bool = False) -> None:
        super().__init__(*args)
        self.fixed: list[str] = []
        self.as_data = as_data

    def placeholder(self, spec: Any, waiting: list[Any]) -> Any:
        found = super().placeholder(spec, waiting)
        return replace(found, example=None) if self.as_data and isinstance(found, Signal) else found

    def call(self, node: fx.Node) -> Any:
        found = super().call(node)
        made = node.meta.get("val")
        if isinstance(found, Signal) and isinstance(made, Tensor) and made.dtype == torch.bool:
            self.build.hides = True
        return found

    def structure(self, node: fx.Node, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        found = super().structure(node, name, args, kwargs)
        if found is not None and not isinstance(found, Signal):
            self.fixed.append(where(node))
        return found

    def apply(
        self, node: fx.Node, name: str, args: Any, kwargs: dict[str, Any], has_signal: bool
    ) -> Any:
        places = leaves([args[2 if name in LOOKUPS else 1 :], kwargs])
        if any(isinstance(v, Signal) and v.example is not None for v in places):
            self.fixed.append(where(node))
        if name == "aten::gather" and self.as_data and isinstance(args[0], Tensor):
            return self.build.bias(args[2])  # entries of a constant, chosen by an input
        return super().apply(node, name, args, kwargs, has_signal)


def read(model: nn.Module, example_inputs: Any, batched: bool = True) -> Network:
    """Trace a model and run it once on a probe; ``batched`` asks for any batch size."""
    if not isinstance(model, nn.Module):
        raise TrellisError(f"expected a torch.nn.Module, got {model!r:.80}")
    model = unwrapped(model)
    learns = undisturbed(
        model, lambda: {name: slot.requires_grad for name, slot in named_slots(model)}
    )

    def traced(seen: nn.Module) -> tuple[Any, ...]:
        with torch.no_grad():
            given = one_sample(seen, as_inputs(seen, example_inputs))
            program, takes_batches = (
                exported(seen, given, of=model)
                if batched
                else (export(seen, given, of=model), False)
            )
            canonical = {name: first for first, names in aliases(seen).items() for name in names}
            flat = input_leaves(given)
            order = [name for name, _ in seen.named_parameters()]
            program, found = _interpreted(program, flat, canonical, model)
            net = assemble(model, found, order, given)
        return given, flat, program, takes_batches, canonical, found, net

    inputs, flat, program, batched, canonical, seen, exact = on_plain(model, traced)
    net = exact.wired  # it has a signal for every value of the program
    network = Network(model, net, [], _probes(flat), learns=learns, batched=batched)
    network.fixed = seen.fixed
    network.nesting = pytree.tree_structure((inputs.args, inputs.kwargs))
    if net.connections:
        network.kept = current(net).kept()
        if net is not exact:  # a term that is equal for all logits changes nothing
            run = propagate(exact, network.kept)
            _, leading = ends(exact, network.kept, run)
            network.kept = {name: kept & leading[name] for name, kept in network.kept.items()}
        found: Liveness | None = liveness(net, network.kept)
        assert found is not None
        network.lives = dict(found.live)
        run = found.run
    else:
        run = propagate(net, None)
    with torch.no_grad():
        _Reader(network, program, seen, run, canonical).read()
    return network


def _interpreted(
    program: ExportedProgram, flat: list[Any], canonical: dict[str, str], model: nn.Module
) -> tuple[ExportedProgram, Watching]:
    """Interpret the program, decomposed if need be.

    Integer and boolean inputs (attention masks) are data first: the result holds for all of their
    values. If the model uses them as an index, they are structure, with the values of the example.
    """
    if any(isinstance(x, Tensor) and not x.is_floating_point() for x in flat):
        with suppress(TrellisError):
            return _watched(program, flat, canonical, model, as_data=True)
    return _watched(program, flat, canonical, model, as_data=False)


def _watched(
    program: ExportedProgram,
    flat: list[Any],
    canonical: dict[str, str],
    model: nn.Module,
    *,
    as_data: bool,
) -> tuple[ExportedProgram, Watching]:
    for _ in range(2):
        seen = Watching(program, flat, canonical, as_data=as_data)
        if not mutates(program):
            try:
                seen.run()
                return program, seen
            except UnknownOperation:
                pass
        program = decompose(program, model)
    seen = Watching(program, flat, canonical, as_data=as_data)
    seen.run()
    return program, seen


def _probes(flat: Sequence[Any]) -> list[Any]:
    """Return generic values, so that a unit is constant only if no input reaches it."""
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(x.shape, generator=generator).to(x)
        if isinstance(x, Tensor) and x.is_floating_point()
        else x
        for x in flat
    ]


class _Reader:
    """Writes the exported graph as operations and values."""

    def __init__(
        self,
        network: Network,
        program: ExportedProgram,
        seen: Watching,
        run: Any,
        canonical: dict[str, str],
    ) -> None:
        self.network, self.program, self.seen, self.run = network, program, seen, run
        self.canonical = canonical
        self.made: dict[str, Any] = {}  # results by name
        self.flat = _flat_lives(network, seen)
        self.batch = _batch(program)

    def read(self) -> None:
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        waiting = list(self.network.probes)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.placeholder(node, specs[node.name], waiting)
            elif node.op == "get_attr":
                value = self.seen.values[node]
                if not isinstance(value, Tensor):
                    raise TrellisError(f"{where(node)}: a graph within the graph is not compacted")
                self.keep(node, value)
            elif node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                self.output(node)

    def placeholder(self, node: fx.Node, spec: Any, waiting: list[Any]) -> None:
        if spec.kind == InputKind.USER_INPUT:
            self.network.inputs.append(node.name)
            value = waiting.pop(0)
        elif spec.kind == InputKind.PARAMETER:
            plain_name = self.canonical.get(spec.target, spec.target)
            self.network.parameters[node.name] = plain_name
            value = self.program.state_dict[spec.target].detach()
        elif spec.target in self.program.state_dict:
            value = self.program.state_dict[spec.target].detach()
        else:
            value = self.program.constants[spec.target]
        self.keep(node, value)

    def call(self, node: fx.Node) -> None:
        args: Any = fx.map_arg(node.args, lambda n: self.made[n.name])
        kwargs: Any = fx.map_arg(node.kwargs, lambda n: self.made[n.name])
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        target, given = node.target, node.args
        if target is torch.ops.aten.to.device:  # a compacted model runs on one device
            target, given = torch.ops.aten.to.dtype, (given[0], *given[2:])
        self.network.ops.append(
            Op(
                node.name,
                target_of(target),
                tuple(_argument(a) for a in given),
                {k: _argument(v) for k, v in node.kwargs.items()},
            )
        )
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = str(stack[-1][0]).removeprefix("L__self__.") if stack else ""
        self.network.places[node.name] = path.removeprefix("L['self'].")
        self.keep(node, result)

    def keep(self, node: fx.Node, result: Any) -> None:
        self.made[node.name] = result
        if not isinstance(result, Tensor):
            self.network.results[node.name] = result
            return
        value = Value(node.name, result.detach(), _open(node))
        value.batch = all(self.is_batch(node, axis) for axis in value.open)
        value.computed = node.op == "placeholder" and (
            node.name in self.network.parameters or node.name in self.network.inputs
        )
        known = self.network.values
        value.computed |= any(
            known[n.name].computed if n.name in known else True for n in node.all_input_nodes
        )
        seen = self.seen.values.get(node)
        parameter = self.network.parameters.get(node.name)
        if isinstance(seen, Weight):
            value.weight = True
            known_live = self.network.lives.get(parameter or "")
            value.live = self.lives(seen) if known_live is None else known_live.cpu()
        elif isinstance(seen, Signal):
            value.driven = seen.id in self.seen.build.driven
            value.depends = self.message(self.run.depends, seen)
            value.matters = self.message(self.run.changes, seen)
            if value.depends is not None and value.matters is not None:
                value.live = value.depends & value.matters
        self.network.values[node.name] = value

    def is_batch(self, node: fx.Node, axis: int) -> bool:
        """Return whether the size of an open axis is the batch size."""
        return str(node.meta["val"].shape[axis]) == self.batch

    def lives(self, weight: Weight) -> Tensor:
        positions = weight.positions()
        found: Tensor = (positions >= 0) & self.flat[positions.clamp(min=0)]
        return found

    def message(self, messages: dict[int, Tensor], signal: Signal) -> Tensor | None:
        found = messages.get(signal.id)
        return None if found is None else found.cpu().expand(signal.shape)

    def output(self, node: fx.Node) -> None:
        specs = self.program.graph_signature.output_specs
        given: list[Any] = [
            _argument(value)
            for value, spec in zip(node.args[0], specs, strict=True)  # type: ignore[arg-type]
            if spec.kind == OutputKind.USER_OUTPUT
        ]
        spec = self.program.call_spec.out_spec
        assert spec is not None
        self.network.result = _nested(spec, given)


def _nested(spec: Any, given: list[Any]) -> Any:
    """Return the nesting of the result, in plain tuples, lists and dictionaries."""
    if spec.is_leaf():
        return given.pop(0)
    parts = [_nested(child, given) for child in spec.children()]
    if spec.type is list:
        return parts
    if spec.type is tuple:
        return tuple(parts)
    keys = spec.context if spec.type is dict else None
    if spec.type is not dict:
        # Dataclasses of outputs (transformers): their fields, by name if they have names.
        keys = spec.context if isinstance(spec.context, list) else None
        if keys is None and isinstance(spec.context, tuple):
            keys = next((c for c in spec.context if isinstance(c, list)), None)
    if keys is not None and len(keys) == len(parts):
        return dict(zip(map(str, keys), parts, strict=True))
    return tuple(parts)


def _argument(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return Ref(value.name)
    if isinstance(value, list | tuple):
        return [_argument(v) for v in value]
    if isinstance(value, dict):
        return {k: _argument(v) for k, v in value.items()}
    if isinstance(value, torch.device | torch.layout):
        return None
    return value


def _open(node: fx.Node) -> tuple[int, ...]:
    shape = getattr(node.meta.get("val"), "shape", ())
    return tuple(axis for axis, size in enumerate(shape) if not isinstance(size, int))


def _batch(program: ExportedProgram) -> str:
    """Return the symbol of the batch size."""
    first = next((n for n in program.graph.nodes if is_input(program, n)), None)
    shape = None if first is None else getattr(first.meta["val"], "shape", None)
    return str(shape[0]) if shape else ""


def _flat_lives(network: Network, seen: Watching) -> Tensor:
    """Return the positions of live connections. Biases are not connections: a bias stays
    if its unit stays."""
    flat = torch.zeros(sum(math.prod(s) for s in seen.shapes.values()) + 1, dtype=torch.bool)
    for name, mask in network.lives.items():
        start = seen.offsets[name]
        flat[start : start + mask.numel()] = mask.reshape(-1).cpu()
    return flat
