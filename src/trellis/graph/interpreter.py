"""Interpret an exported graph: write each operation as steps of the trellis."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from ..errors import TrellisError
from . import rules as _rules  # noqa: F401  (registers the rules)
from .builder import Builder
from .export import KEEPS, LOOKUPS, MOVES, RULES, STRAIGHT, aten, first_line, key
from .steps import Signal, Weight, bent, leaves, replaced

# Operations on weights alone: views and moves keep track of which entry stands where.


def on_weights(
    op: Any, name: str, args: Any, kwargs: dict[str, Any], offsets: dict[str, int]
) -> Any:
    """Return the resulting weight or weights; None if ``op`` does not only move positions."""
    first = args[0] if args else None
    alone = not any(isinstance(v, Weight) for v in leaves([args[1:], kwargs]))
    if isinstance(first, Weight) and alone:
        if name in KEEPS:
            return first
        if name in MOVES:
            return _moved(op, first, args[1:], kwargs)
    if name in ("aten::mul", "aten::div") and len(args) == 2:
        return _scaled(name, *args)
    if name in ("aten::cat", "aten::stack") and all(isinstance(w, Weight) for w in leaves(first)):
        parts = [w.positions() for w in leaves(first)]
        return Weight(None, op(parts, *args[1:], **kwargs), offsets)
    if name == "aten::_weight_norm" and isinstance(first, Weight):
        return first
    if name == "aten::embedding" and isinstance(first, Weight) and isinstance(args[1], Tensor):
        return Weight(None, first.positions()[args[1].cpu()], offsets)
    return None


def _scaled(name: str, x: Any, y: Any) -> Weight | None:
    """Multiply a weight by a constant; where that is zero, the connection disappears."""
    weight, other = (x, y) if isinstance(x, Weight) else (y, x)
    if isinstance(other, Weight) or (name == "aten::div" and weight is y):
        return None
    if isinstance(other, int | float):
        return weight if other != 0 else None
    if not isinstance(other, Tensor):
        return None
    zero = other == 0 if name == "aten::mul" else other != other
    found: Weight = weight.absent_where(zero)
    return found


def _moved(op: Any, weight: Weight, rest: Any, kwargs: dict[str, Any]) -> Any:
    probe = op(weight.carrier, *rest, **kwargs)
    if isinstance(probe, Tensor):
        return weight.moved(lambda t: op(t, *rest, **kwargs))
    return [
        weight.moved(lambda t, i=i: op(t, *rest, **kwargs)[i])  # type: ignore[misc]
        for i in range(len(probe))
    ]


SILENT = {
    "aten::_assert_tensor_metadata",
    "aten::_assert_scalar",
    "aten::_assert_async",
    "aten::sym_constrain_range_for_size",
    "aten::sym_constrain_range",
}
# These operations read only the shape and type of their first argument.
BLANK = {
    "aten::zeros_like",
    "aten::ones_like",
    "aten::full_like",
    "aten::new_zeros",
    "aten::new_ones",
    "aten::new_full",
}
# What these do with integers is structure: who sends to whom, not what is sent.
INDEXING = set(
    aten(
        "scatter_add scatter_add_ scatter_reduce scatter index_add index_put index_put_ "
        "index_select gather index take select narrow"
    )
)


class UnknownOperation(TrellisError):
    """Report an operation without a rule that reads a signal."""


def where(node: fx.Node) -> str:
    """Return the operation, its module and its source line, for messages."""
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
    """Turn nodes into steps. ``canonical`` maps every name of a parameter to its first name."""

    def __init__(
        self,
        program: ExportedProgram,
        inputs: list[Any],
        canonical: dict[str, str],
        *,
        one_row: bool = False,
    ) -> None:
        self.program = program
        self.build = Builder()
        self.build.one_row = one_row
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
        return value.detach().cpu() if isinstance(value, Tensor) else value

    def placeholder(self, spec: Any, waiting: list[Any]) -> Any:
        if spec.kind == InputKind.USER_INPUT:
            value = waiting.pop(0)
            if not isinstance(value, Tensor):
                return value
            example = None if value.is_floating_point() or value.is_complex() else value.cpu()
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
        """Return the weight of a parameter; tied parameters are one, under their first name."""
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
            if not isinstance(args[0], list | tuple):
                raise TrellisError(
                    f"{where(node)}: expected several signals from the rule before, got one"
                )
            return args[0][args[1]]
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
                f"{type(error).__name__}: {first_line(error)}"
            ) from error

    def compute(self, node: fx.Node, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operation on constants, on the CPU wherever the model is."""
        if "device" in kwargs:
            kwargs["device"] = "cpu"
        args = [torch.device("cpu") if isinstance(a, torch.device) else a for a in args]
        with torch.no_grad():
            return node.target(*args, **kwargs)  # type: ignore[operator]

    def structure(self, node: fx.Node, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Compute with integer and boolean inputs as structure.

        Results of such inputs alone stay concrete until they are converted to floats. None for an
        embedding, where the inputs are data.
        """
        if name in LOOKUPS:
            return None
        plain = replaced([args, kwargs], _index)
        if any(isinstance(v, Weight) for v in leaves(plain)):
            return self.looked_up(node, name, args, plain)
        result = self.compute(node, *plain)
        if not isinstance(result, Tensor) or (name in INDEXING and result.is_floating_point()):
            return result
        if result.is_floating_point():  # data from here on
            out = self.apply(node, name, args, kwargs, True)
            return Signal(out.id, out.shape, out.blocked) if isinstance(out, Signal) else out
        if result.dtype == torch.bool and name not in MOVES and name not in KEEPS:
            return result
        signals = [v for v in leaves([args, kwargs]) if isinstance(v, Signal)]
        try:
            out = self.apply(node, name, args, kwargs, True)
        except TrellisError:
            out = None
        if not isinstance(out, Signal) or out.shape != tuple(result.shape):
            out = self.opaque(signals, tuple(result.shape))
        return Signal(out.id, out.shape, out.blocked, result)

    def looked_up(self, node: fx.Node, name: str, args: Any, plain: Any) -> Any:
        """Treat rows of a parameter that an integer input selects as an embedding."""
        table, signals = args[0], [v for v in leaves(args) if isinstance(v, Signal)]
        rows = isinstance(table, Weight) and len(table.shape) == 2 and len(signals) == 1
        by_row = name == "aten::index" and len(args[1]) == 1
        if rows and (by_row or (name == "aten::index_select" and args[1] == 0)):
            return RULES["aten::embedding"](self.build, table, signals[0])
        if name in MOVES or name in ("aten::index_put", "aten::scatter_add"):
            return self.apply(node, name, plain[0], plain[1], False)
        return None

    def opaque(self, signals: list[Signal], shape: tuple[int, ...]) -> Signal:
        """Treat an integer operation without a rule: its result depends on all that it reads."""
        parts = [self.build.reduce(x, range(x.ndim)) for x in signals]
        return self.build.expand(self.build.join(*parts), shape)

    def apply(
        self, node: fx.Node, name: str, args: Any, kwargs: dict[str, Any], has_signal: bool
    ) -> Any:
        if not has_signal:
            kept = on_weights(node.target, name, args, kwargs, self.offsets)
            if kept is not None:
                return kept
        found = [v for v in leaves([args, kwargs]) if isinstance(v, Signal)]
        if not any(x.id in self.build.driven for x in found):
            # Operations on weights alone: treat the weights as signals.
            args, kwargs = replaced(args, self.lifted), replaced(kwargs, self.lifted)
        function = RULES.get(name)
        if function is None:
            raise UnknownOperation(
                f"no rule for operation {where(node)}. Teach the tracer with "
                f"@trellis.rule(torch.ops.{name.replace('::', '.')})."
            )
        if name not in LOOKUPS:  # integer signals used as an index are structure
            places = [replaced(v, _index) if place else v for place, v in enumerate(args)]
            named = replaced(kwargs, _index)
            if any(isinstance(v, Signal) for v in leaves([places, named])):
                args, kwargs = places, named
        found = function(self.build, *args, **kwargs)
        return found if name in STRAIGHT else replaced(found, bent)

    def lifted(self, value: Any) -> Any:
        """Turn a weight into a signal.

        A weight with at most one dimension larger than 1 is a scale or a bias, and stays constant.
        """
        if not isinstance(value, Weight):
            return value
        if sum(n > 1 for n in value.shape) < 2:
            return self.build.parameter(value)
        return self.build.lift(value)

    def finish(self, node: fx.Node) -> None:
        specs = self.program.graph_signature.output_specs
        for value, spec in zip(node.args[0], specs, strict=True):  # type: ignore[arg-type]
            if spec.kind != OutputKind.USER_OUTPUT or not isinstance(value, fx.Node):
                continue
            result = self.values[value]
            if isinstance(result, Weight):  # returned unchanged: it multiplies nothing, as a bias
                result = self.build.parameter(result)
            if isinstance(result, Signal):
                self.outputs.append(result)


def _index(value: Any) -> Any:
    return value.example if isinstance(value, Signal) and value.example is not None else value


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
