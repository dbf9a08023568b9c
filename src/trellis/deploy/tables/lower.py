"""Lower a model to tables: write out the operation of each node of the exported graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ...errors import TrellisError
from ...graph.export import MOVES, aten, decompose, export, key, mutates, on_plain
from ...graph.inputs import Inputs, as_inputs, leaves, one_sample, unwrapped
from ...graph.interpreter import SILENT, where
from . import rules as _rules  # noqa: F401  (registers the lowerings)
from .form import Loop, Step, Tables
from .memory_layout import Groups, MemoryLayout, cut, keep_live, laid_out, units_of
from .network import (
    LOWERINGS,
    Ids,
    Network,
    PlaneBlock,
    PlaneNetwork,
    RowBlock,
    Signal,
    copied,
    flat,
    planes_of,
    readable,
)
from .simplify import choose, fold, merge

# One unit in, the same unit out.
_SAME = set(
    aten(
        "to _to_copy float clone contiguous detach alias lift_fresh dropout dropout_ "
        "feature_dropout alpha_dropout type_as"
    )
)
_MOVES = MOVES | set(aten("cat stack concat hstack vstack"))
_PADS = set(aten("constant_pad_nd pad"))


def lowered_operations() -> set[str]:
    """Return the names of all operations that sparse tables have, such as ``aten::linear``."""
    return {*LOWERINGS, *_SAME, *_MOVES, *_PADS}


class UnknownOperation(TrellisError):
    """Raised for an operation that sparse tables do not have."""


def lowered(model: nn.Module, example_inputs: Any, loops: bool = False) -> Network:
    """Write out every unit of a model, masked, baked or compacted, with what it reads.

    With ``loops``, layers over planes stay whole, unless the model has no plane of several units.

    >>> net = lowered(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.zeros(1, 2))
    >>> [(block.kind, block.act.name, block.rows) for block in net.blocks]
    [('sum', 'none', 3), ('sum', 'none', 3), ('sum', 'relu', 3)]
    """
    model = unwrapped(model)

    def walked(seen: nn.Module) -> Network:
        with torch.no_grad():
            given = one_sample(seen, as_inputs(seen, example_inputs))
            program = export(seen, given, of=model)
            if not mutates(program):
                with suppress(UnknownOperation):
                    return _walk(program, given, loops)
            return _walk(decompose(program, model), given, loops)

    return on_plain(model, walked)


def _walk(program: ExportedProgram, given: Inputs, loops: bool) -> Network:
    net = _Walk(program, given, loops).run()
    planes = [block for block in net.blocks if isinstance(block, PlaneBlock)]
    if planes and all(block.grid[1:] == block.window == (1, 1) or _linear(block)
                      for block in planes):  # fmt: skip
        return _Walk(program, given, False).run()
    return net


def _linear(block: PlaneBlock) -> bool:
    return block.grid[1:] == (1, 1) and not block.shared


class _Walk:
    def __init__(self, program: ExportedProgram, inputs: Inputs, loops: bool) -> None:
        self.program = program
        self.inputs = leaves(inputs)
        self.net = PlaneNetwork() if loops else Network()
        self.values: dict[fx.Node, Any] = {}

    def run(self) -> Network:
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        waiting = list(self.inputs)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.placeholder(specs[node.name], waiting)
            elif node.op == "get_attr":
                value: Any = self.program.graph_module
                for part in str(node.target).split("."):
                    value = getattr(value, part)
                self.values[node] = value.detach() if isinstance(value, Tensor) else value
            elif node.op == "call_function":
                self.values[node] = self.call(node)
            elif node.op == "output":
                self.finish(node)
        return self.net

    def placeholder(self, spec: Any, waiting: list[Any]) -> Any:
        if spec.kind == InputKind.USER_INPUT:
            value = waiting.pop(0)
            if not isinstance(value, Tensor):
                return value
            if not value.is_floating_point():
                raise TrellisError(
                    f"expected inputs of floats, got {value.dtype}; sparse tables read only "
                    "floats, export ONNX instead (trellis export onnx)"
                )
            return self.net.input(tuple(value.shape))
        held = spec.kind == InputKind.PARAMETER or (
            spec.kind == InputKind.BUFFER and spec.persistent
        )
        source = self.program.state_dict if held else self.program.constants
        return source[spec.target].detach().cpu()

    def call(self, node: fx.Node) -> Any:
        args: Any = list(fx.map_arg(node.args, lambda n: self.values[n]))
        kwargs: Any = dict(fx.map_arg(node.kwargs, lambda n: self.values[n]))
        if node.target is operator.getitem:
            if not isinstance(args[0], list | tuple):
                raise UnknownOperation(f"sparse tables have one result of {where(node)} alone")
            return args[0][args[1]]
        name = key(node.target)
        if name in SILENT:
            return None
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        self.net.name = stack[-1][0].removeprefix("L__self__.") if stack else ""
        found = pytree.tree_leaves([args, kwargs])
        if name == "aten::sym_size":
            return args[0].shape[args[1]]
        if not any(isinstance(value, Signal) for value in found):
            if "device" in kwargs:
                kwargs["device"] = "cpu"
            return node.target(*args, **kwargs)  # type: ignore[operator]
        try:
            return self.apply(node, name, args, kwargs)
        except UnknownOperation:
            raise
        except TrellisError as error:
            raise TrellisError(
                f"sparse tables do not have {error}, met in {where(node)}: "
                "export ONNX instead (trellis export onnx)"
            ) from error
        except (TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
            raise UnknownOperation(
                f"sparse tables have no such form of the operation {where(node)} "
                f"({error}): export ONNX instead (trellis export onnx)"
            ) from error

    def apply(self, node: fx.Node, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        if name in _SAME:
            return args[0]
        if name in _PADS:
            return self.padded(*args, **kwargs)
        if name in _MOVES:
            moved = node.target(*self.ids(args), **self.ids(kwargs))  # type: ignore[operator]
            return pytree.tree_map(lambda v: Signal(v) if isinstance(v, Tensor) else v, moved)
        function: Callable[..., Any] | None = LOWERINGS.get(name)
        if function is None:
            raise UnknownOperation(
                f"sparse tables do not have the operation {where(node)}: "
                "export ONNX instead (trellis export onnx)"
            )
        return function(self.net, *args, **kwargs)

    def ids(self, value: Any) -> Any:
        """Replace signals by their unit numbers; constants become units."""

        def numbered(v: Any) -> Any:
            if isinstance(v, Signal):
                return v.ids
            if isinstance(v, Tensor) and v.is_floating_point():
                return self.net.constant(v).ids
            return v

        return pytree.tree_map(numbered, value)

    def padded(self, x: Signal, pad: Sequence[int], *rest: Any, **named: Any) -> Signal:
        mode = rest[0] if rest and isinstance(rest[0], str) else named.get("mode", "constant")
        if mode != "constant":
            ids = nn.functional.pad(x.ids.double(), list(pad), mode=mode).long()
            return Signal(ids)
        if (looped := self.padded_planes(x, list(pad), rest, named)) is not None:
            return looped
        number = [v for v in rest if isinstance(v, int | float)] or [named.get("value") or 0.0]
        filler = self.net.constant(torch.tensor([float(number[0])]))
        return Signal(nn.functional.pad(x.ids, list(pad), value=int(filler.ids[0])))

    def padded_planes(
        self, x: Signal, pad: list[int], rest: Sequence[Any], named: dict[str, Any]
    ) -> Signal | None:
        """Zeros around planes, as a loop that copies them, or None."""
        number = [v for v in rest if isinstance(v, int | float)] or [named.get("value") or 0.0]
        planes = planes_of(x) if isinstance(self.net, PlaneNetwork) else None
        if planes is None or number[0] != 0 or min(pad) < 0 or len(pad) > 2 * (len(x.shape) - 2):
            return None
        left, right, top, bottom = (*pad, 0, 0)[:4]
        source = readable(self.net, planes, True)
        size = (planes.shape[1] + top + bottom, planes.shape[2] + left + right)
        made = copied(self.net, source, (top, left), size)
        shape = (*x.shape[:2], *size) if len(x.shape) == 4 else (*x.shape[:2], size[1])
        return Signal(torch.from_numpy(made).reshape(shape))

    def finish(self, node: fx.Node) -> None:
        specs = self.program.graph_signature.output_specs
        for value, spec in zip(node.args[0], specs, strict=True):  # type: ignore[arg-type]
            if spec.kind != OutputKind.USER_OUTPUT or not isinstance(value, fx.Node):
                continue
            result = self.values[value]
            if isinstance(result, Tensor):
                result = self.net.constant(result)
            if isinstance(result, Signal):
                self.net.outputs.append(result)
        if not self.net.outputs:
            raise TrellisError("the model returns nothing that sparse tables could compute")


# A model's tables.


def tables(
    model: nn.Module, example_inputs: Any, *, loops: bool = True, slabs: bool = True
) -> Tables:
    """Return the sparse form of a model, values in fp32.

    Convolutions, pooling and what stands between them become loops over planes where that is
    smaller and faster than a table of all units (`Tables.choices` says where); with ``loops=False``
    all become tables. With ``slabs``, wide layers are cut into parts that are summed up one after
    another, which arithmetic in 8 bits does not.

    The model may be masked, baked or compacted: connections that are zero, units that no input
    reaches and units that reach no output all vanish. The outputs do not change.

    >>> import torch
    >>> layer = nn.Linear(3, 2)
    >>> with torch.no_grad():
    ...     _ = layer.weight.copy_(torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))
    >>> found = tables(layer, torch.zeros(1, 3))
    >>> found.weights, found.units, found.inputs, found.outputs
    (1, 2, ((3,),), ((2,),))
    """
    net = lowered(model, example_inputs, loops)
    for signal in (*net.inputs, *net.outputs):
        if not signal.shape or signal.shape[0] != 1:
            raise TrellisError(
                f"expected inputs and outputs with a batch dimension of size one first, got the "
                f"shape {signal.shape}"
            )
    merge(net)
    choices = choose(net)
    fold(net)
    keep_live(net)
    if any(not np.isfinite(block.weights).all() or not np.isfinite(block.bias).all()
           for block in net.blocks):  # fmt: skip
        raise TrellisError("the model holds a weight or bias that is not finite")
    if slabs and not any(isinstance(block, PlaneBlock) for block in net.blocks):
        cut(net)
    layout = laid_out(net)
    steps = [
        _loop(block, layout) if groups is None else _step(block, groups, layout.address)
        for block, groups in zip(net.blocks, layout.groups, strict=True)
    ]
    results = np.concatenate([layout.address[flat(signal)] for signal in net.outputs])
    return Tables(
        tuple(signal.shape[1:] for signal in net.inputs),
        tuple(signal.shape[1:] for signal in net.outputs),
        layout.size, tuple(steps), results, choices=tuple(choices),
    )  # fmt: skip


def _step(block: RowBlock, groups: Groups, address: Ids) -> Step:
    dots = block.kind == "dot"
    empty = np.zeros(0, np.int64)
    return Step(
        block.kind, block.act, groups.fan, groups.count, groups.bias.astype(np.float32),
        np.ones(len(groups.fan), np.float32),
        groups.terms[:, 0] if dots else groups.terms,
        groups.terms[:, 1] if dots else empty,
        np.zeros(0, np.float32) if block.kind == "max" else groups.weights.astype(np.float32),
        groups.offsets, address[units_of(block)][groups.rows], block.adds,
    )  # fmt: skip


def _loop(block: PlaneBlock, layout: MemoryLayout) -> Loop:
    address = layout.address
    _, height, width = block.source.shape
    first = address[block.source[:, 0, 0]]
    pitch = layout.planes[block.first]
    row = column = 1
    if len(first):  # a layer may have no tap left, and a residual sum all the same
        row = layout.pitch_of(int(block.source[0, 0, 0]))
        row = int(address[block.source[0, 1, 0]] - first[0]) if height > 1 else row
        column = int(address[block.source[0, 0, 1]] - first[0]) if width > 1 else 1
    sources = first + block.offset[0] * row + block.offset[1] * column
    window, reach = block.window, (block.dilation[0] * row, block.dilation[1] * column)
    apart = np.diff(sources)
    if window == (1, 1) and not block.shared and len(apart) and (apart == apart[0]).all():
        window, reach, sources = (1, len(sources)), (0, int(apart[0])), sources[:1]
    out = address[block.unit_numbers()[0, 0, 0]]
    extras = np.zeros(0, np.int64)
    if block.extra is not None and (block.extra >= 0).any():
        extra = block.extra[:, 0, 0]
        extras = np.where(extra < 0, -1, address[np.maximum(extra, 0)])
    border = (0, 0, 0, 0)
    if block.start == (0, 0) and (pitch.rows or pitch.gap):  # the last part of its grid
        border = (pitch.rows, pitch.gap, *block.grid[1:])
    weights, scale = np.zeros(0), block.scale
    if not block.shared:
        weights = block.weights * np.repeat(scale, block.fan())
        scale = np.ones(len(scale))
    # Distances that nothing is read at are zero.
    several = [size > 1 for size in (*block.size, *window)]
    return Loop(
        block.kind, block.act, (len(block.channels), *block.size),
        (int(out), pitch.plane, pitch.pitch * block.spread[0], block.spread[1]),
        (block.stride[0] * row * several[0], block.stride[1] * column if several[1] else 1),
        window, (reach[0] * several[2], reach[1] * several[3]), sources, block.shared,
        np.zeros(1, np.int64) if block.kind == "mean" else block.fan(), block.taps,
        weights.astype(np.float32), scale.astype(np.float32), block.bias.astype(np.float32),
        extras, border, block.name,
    )  # fmt: skip
