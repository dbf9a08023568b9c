"""Walks an exported graph once and writes it as steps."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from ..errors import TrellisError
from . import rules as _rules  # noqa: F401  (registers the rules)
from .builder import Builder
from .registry import MOVES, RULES, key
from .values import Signal, Weight

SILENT = {
    "aten::_assert_tensor_metadata",
    "aten::_assert_scalar",
    "aten::_assert_async",
    "aten::sym_constrain_range_for_size",
    "aten::sym_constrain_range",
}
# Of their first argument these read the shape and type alone.
BLANK = {
    "aten::zeros_like",
    "aten::ones_like",
    "aten::full_like",
    "aten::new_zeros",
    "aten::new_ones",
    "aten::new_full",
}
# Integer and boolean results of these stay structure: they are computed, not traced.
STRUCTURE = (torch.bool, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class UnknownOperation(TrellisError):
    """An operation without a rule, met on a signal."""


def leaves(values: Any) -> Iterable[Any]:
    if isinstance(values, list | tuple):
        for value in values:
            yield from leaves(value)
    elif isinstance(values, dict):
        yield from leaves(list(values.values()))
    else:
        yield values


def where(node: fx.Node) -> str:
    """Operation, module and source line, for messages."""
    stack = node.meta.get("nn_module_stack") or {}
    module = ""
    for path, kind in stack.values():
        name = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
        if path:
            module = f" in module '{path.removeprefix('L__self__.')}' ({name.split('.')[-1]})"
        else:
            module = module or f" in the model ({name.split('.')[-1]})"
    trace = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    frames = [line for line in trace if line.startswith("File ")]
    line = f", {frames[-1]}" if frames else ""
    return f"'{node.target}'{module}{line}"


class Interpreter:
    """Turns nodes into steps. ``canonical`` maps every name of a parameter to its first."""

    def __init__(
        self, program: ExportedProgram, inputs: list[Any], canonical: dict[str, str]
    ) -> None:
        self.program = program
        self.build = Builder()
        self.inputs = inputs
        self.canonical = canonical
        self.values: dict[fx.Node, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.offsets: dict[str, int] = {}
        self.outputs: list[Signal] = []
        self.input_signals: list[Signal] = []

    def run(self) -> None:
        signature = self.program.graph_signature
        specs = {spec.arg.name: spec for spec in signature.input_specs}
        waiting = list(self.inputs)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.placeholder(specs[node.name], waiting)
            elif node.op == "call_function":
                self.values[node] = self.call(node)
            elif node.op == "get_attr":
                self.values[node] = self.attribute(node)
            elif node.op == "output":
                self.finish(node)

    def attribute(self, node: fx.Node) -> Any:
        value: Any = self.program.graph_module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value.detach() if isinstance(value, Tensor) else value

    def placeholder(self, spec: Any, waiting: list[Any]) -> Any:
        if spec.kind == InputKind.USER_INPUT:
            value = waiting.pop(0)
            if not isinstance(value, Tensor):
                return value
            example = None if value.is_floating_point() or value.is_complex() else value.cpu()
            if value.dtype == torch.bool:
                return value.cpu()
            signal = self.build.input(value.shape, example)
            self.input_signals.append(signal)
            return signal
        if spec.kind == InputKind.PARAMETER:
            return self.parameter(spec.target)
        if spec.kind == InputKind.BUFFER and not spec.persistent:
            return self.program.constants[spec.target].detach().cpu()
        if spec.kind == InputKind.BUFFER:
            return self.program.state_dict[spec.target].detach().cpu()
        return self.program.constants[spec.target].detach().cpu()

    def parameter(self, name: str) -> Weight:
        """A weight; tied parameters are one, under their first name."""
        shape = self.program.state_dict[name].shape
        name = self.canonical.get(name, name)
        if name not in self.shapes:
            self.offsets[name] = sum(math.prod(s) for s in self.shapes.values())
            self.shapes[name] = tuple(shape)
        return Weight(name, torch.empty(shape, device="meta"), self.offsets)

    def call(self, node: fx.Node) -> Any:
        args: Any = list(fx.map_arg(node.args, lambda n: self.values[n]))
        kwargs: Any = dict(fx.map_arg(node.kwargs, lambda n: self.values[n]))
        if node.target is operator.getitem:
            return args[0][args[1]] if isinstance(args[0], list | tuple) else args[0]
        name = key(node.target)
        if name in SILENT:
            return None
        if name in BLANK and isinstance(args[0], Signal | Weight):
            dtype = node.args[0].meta["val"].dtype  # type: ignore[union-attr]
            args[0] = torch.zeros(args[0].shape, dtype=dtype)
        if name == "aten::sym_size":
            return args[0].shape[args[1]]
        found = list(leaves([args, kwargs]))
        if not any(isinstance(v, Signal | Weight) for v in found):
            return self.compute(node, args, kwargs)
        signals = [v for v in found if isinstance(v, Signal)]
        if signals and all(v.example is not None for v in signals):
            structural = self.structure(node, name, args, kwargs)
            if structural is not None:
                return structural
        try:
            return self.apply(node, name, args, kwargs, bool(signals))
        except UnknownOperation:
            raise
        except TrellisError as error:
            raise TrellisError(f"{where(node)}: {error}") from error
        except Exception as error:
            raise TrellisError(
                f"the rule for {where(node)} failed on {_brief(args)}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def compute(self, node: fx.Node, args: Any, kwargs: dict[str, Any]) -> Any:
        if "device" in kwargs:
            kwargs["device"] = "cpu"
        with torch.no_grad():
            return node.target(*args, **kwargs)  # type: ignore[operator]

    def structure(self, node: fx.Node, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Integer inputs as structure: what is computed from them alone stays concrete.

        An embedding reads them as data, and so does a conversion to floating point.
        """
        if name == "aten::embedding":
            return None
        plain = _replace([args, kwargs], lambda v: v.example if isinstance(v, Signal) else v)
        if any(isinstance(v, Weight) for v in leaves(plain)):
            if name in MOVES or name in ("aten::index_put", "aten::scatter_add"):
                return self.apply(node, name, plain[0], plain[1], False)
            return None
        result = self.compute(node, *plain)
        if not isinstance(result, Tensor):
            return result
        if result.dtype == torch.bool:
            return result
        if result.dtype in STRUCTURE:
            try:
                out = self.apply(node, name, args, kwargs, True)
            except TrellisError:
                return result
            if isinstance(out, Signal) and tuple(out.shape) == tuple(result.shape):
                return Signal(out.id, out.shape, out.blocked, result)
            return result
        sources = [v for v in leaves([args, kwargs]) if isinstance(v, Signal)]
        data = args and args[0] is sources[0] and len(sources) == 1
        return None if data else result

    def apply(
        self, node: fx.Node, name: str, args: Any, kwargs: dict[str, Any], has_signal: bool
    ) -> Any:
        if not has_signal:
            kept = self.on_weights(node, name, args, kwargs)
            if kept is not None:
                return kept
            args = _replace(args, self.lifted)
            kwargs = _replace(kwargs, self.lifted)
        function = RULES.get(name)
        if function is None:
            raise UnknownOperation(
                f"no rule for operation {where(node)}. Teach the tracer with "
                f"@trellis.rule(torch.ops.{name.replace('::', '.')})."
            )
        # Integer signals used as an index are structure.
        if name not in ("aten::embedding",):
            places = [_replace(v, _index) if place else v for place, v in enumerate(args)]
            kwargs = _replace(kwargs, _index)
            args = places if any(isinstance(v, Signal) for v in leaves([places, kwargs])) else args
        return function(self.build, *args, **kwargs)

    def on_weights(self, node: fx.Node, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Operations on weights alone: views and moves keep their positions."""
        first = args[0] if args else None
        if name in MOVES and isinstance(first, Weight):
            rest = args[1:]
            if not any(isinstance(v, Weight) for v in leaves([rest, kwargs])):
                return self.move(node, first, rest, kwargs)
        if name in ("aten::mul", "aten::div") and len(args) == 2:
            weight, other = args if isinstance(first, Weight) else args[::-1]
            if isinstance(weight, Weight) and isinstance(other, int | float) and other != 0:
                return weight
            if (
                isinstance(weight, Weight)
                and isinstance(other, Tensor)
                and (name == "aten::mul" or weight is first)
            ):
                return weight.blocked_where(other == 0 if name == "aten::mul" else other != other)
        if name in ("aten::cat", "aten::stack") and all(
            isinstance(w, Weight) for w in leaves(first)
        ):
            parts = [w.positions() for w in leaves(first)]
            return Weight(None, node.target(parts, *args[1:], **kwargs), self.offsets)  # type: ignore[operator]
        if name == "aten::_weight_norm" and isinstance(first, Weight):
            return first
        if name == "aten::embedding" and isinstance(first, Weight) and isinstance(args[1], Tensor):
            return Weight(None, first.positions()[args[1].cpu()], self.offsets)
        return None

    def move(self, node: fx.Node, weight: Weight, rest: Any, kwargs: dict[str, Any]) -> Any:
        name = key(node.target)
        same = [
            "to",
            "_to_copy",
            "float",
            "double",
            "half",
            "bfloat16",
            "type_as",
            "clone",
            "contiguous",
            "detach",
            "alias",
            "dropout",
            "neg",
            "abs",
            "tanh",
            "relu",
            "leaky_relu",
            "gelu",
            "silu",
            "lift_fresh",
        ]
        if name.removeprefix("aten::") in same:
            return weight
        run: Any = node.target
        probe = run(weight.carrier, *rest, **kwargs)
        if isinstance(probe, Tensor):
            return weight.moved(lambda t: run(t, *rest, **kwargs))
        return [
            weight.moved(lambda t, i=i: run(t, *rest, **kwargs)[i])  # type: ignore[misc]
            for i in range(len(probe))
        ]

    def lifted(self, value: Any) -> Any:
        return self.build.lift(value) if isinstance(value, Weight) else value

    def finish(self, node: fx.Node) -> None:
        specs = self.program.graph_signature.output_specs
        for value, spec in zip(node.args[0], specs, strict=True):  # type: ignore[arg-type]
            if spec.kind != OutputKind.USER_OUTPUT or not isinstance(value, fx.Node):
                continue
            result = self.values[value]
            if isinstance(result, Weight):  # returned as it is: it multiplies nothing, a bias
                result = self.build.parameter(result)
            if isinstance(result, Signal):
                self.outputs.append(result)


def _index(value: Any) -> Any:
    return value.example if isinstance(value, Signal) and value.example is not None else value


def _replace(values: Any, change: Any) -> Any:
    if isinstance(values, list | tuple):
        return [_replace(v, change) for v in values]
    if isinstance(values, dict):
        return {k: _replace(v, change) for k, v in values.items()}
    return change(values)


def _brief(args: Any) -> str:
    parts = []
    for value in leaves(args):
        if isinstance(value, Signal | Weight):
            parts.append(f"{type(value).__name__.lower()} {tuple(value.shape)}")
        elif isinstance(value, Tensor):
            parts.append(f"constant {tuple(value.shape)}")
        else:
            parts.append(repr(value))
    return f"({', '.join(parts)})"
