"""Checks of what a list of operations may do, when a file is read and at every call.

Most of torch's operations check their own arguments. Those that do not can read or write outside
their tensors, which ends the process or worse. `called` is the only way in which a compacted model
runs an operation, and it checks these by hand. `checked` runs a whole list once on meta tensors,
which have shapes and no memory, so a bad file raises before any operation computes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...errors import TrellisError
from ...graph.inputs import spec
from .program import COUNTS, KINDS, Call, Held, Op, Program, function

LARGEST = 1 << 32  # bytes of one intermediate result, for the example's shapes
_STATES = {"lstm": 2, "gru": 1, "rnn_tanh": 1, "rnn_relu": 1}
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_LEAST = {"stride": 1, "dilation": 1, "groups": 1, "padding": 0, "kernel_size": 1}
_NUMBERS: dict[str, tuple[type, ...]] = {
    "IntType": (int, torch.SymInt),
    "SymIntType": (int, torch.SymInt),
    "FloatType": (int, float, torch.SymFloat),
    "NumberType": (int, float, bool, torch.SymInt, torch.SymFloat),
}


def called(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run one operation, after a check that its indices lie within its tensors."""
    name = op.target.split(".")[1]
    guard = _GUARDS.get(name)
    if guard is not None:
        shapes = guard(name, Call(Op(op.name, op.target, tuple(args), kwargs)))
        if shapes is not None and args[0].device.type == "meta":
            return tuple(args[0].new_empty(shape) for shape in shapes)
    return function(op.target)(*args, **kwargs)


def specified(told: Mapping[str, Any]) -> Any:
    """Return an input as a file describes it: a meta tensor, or the number itself."""
    if "shape" in told:
        shape, kind = tuple(told["shape"]), KINDS[told["dtype"]]
        return torch.empty(shape, dtype=kind, device="meta")
    try:
        found = ast.literal_eval(str(told["value"])[:100])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise TrellisError(
            f"expected inputs that are tensors or numbers, got {told['value']!r:.60}; compact the "
            "model again"
        ) from None
    return found


def checked(
    program: Program,
    run: Callable[[Sequence[Any], Callable[..., Any]], Any],
    inputs: Sequence[Mapping[str, Any]],
    tensors: Mapping[str, Tensor],
) -> list[dict[str, Any]] | None:
    """Run every operation once on meta tensors; return the type and shape of each output.

    None if a size depends on values of an input (a boolean mask of edges, say): there the run
    ends, and what follows is checked at the call alone. ``run(inputs, call)`` runs the list, each
    operation by ``call``. ``tensors`` are the model's, with their values where those are known:
    indices among them are compared with what they index.
    """
    if len(inputs) != len(program.inputs):
        raise TrellisError(
            f"expected {len(program.inputs)} inputs, got {len(inputs)} shapes of inputs; compact "
            "the model again"
        )

    def call(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            _check_arguments(op, args, kwargs)
            _check_places(op, args, kwargs, tensors)
            if _depends_on_values(op, args, kwargs):
                raise _ValuesDecide
            result = called(op, args, kwargs)
        except TrellisError:
            raise
        except (ArithmeticError, AssertionError, AttributeError, LookupError) as error:
            raise _refused(op, error) from None
        except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise _refused(op, error) from None
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor):
                check_size(leaf.numel() * leaf.element_size(), repr(op.name))
            elif isinstance(leaf, int) and abs(leaf) >= 1 << 63:
                raise TrellisError(f"{op.name!r} counts beyond 64 bits")
        return result

    try:
        with torch.no_grad():
            result = run([specified(each) for each in inputs], call)
    except _ValuesDecide:
        return None
    return [spec(leaf) for leaf in pytree.tree_leaves(result)]


class _ValuesDecide(Exception):
    """Raised when a shape depends on values."""


def _depends_on_values(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if op.target.startswith("aten.repeat_interleave."):
        return kwargs.get("output_size") is None and isinstance(args[-1], Tensor)
    if op.target.split(".")[1] not in ("index", "index_put", "_unsafe_index_put"):
        return False
    places = Call(Op(op.name, op.target, tuple(args), kwargs))["indices"]
    return isinstance(places, list | tuple) and any(
        isinstance(place, Tensor) and place.dtype in (torch.bool, torch.uint8) for place in places
    )


# -- arguments against the schema -------------------------------------------------------------


def _check_arguments(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check types and counts against the operator's schema."""
    if op.target in COUNTS:
        some = args[1:] if op.target == "operator.getitem" else args
        parts = op.target != "operator.getitem" or isinstance(args[0], list | tuple)
        if kwargs or not parts or not all(_fits(value, "IntType") for value in some):
            raise TypeError(f"{op.target} does not take these arguments")
        return
    schema = function(op.target)._schema  # type: ignore[attr-defined]
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    if len(args) > len(positional):
        raise TypeError(f"expected at most {len(positional)} arguments, got {len(args)}")
    given = {argument.name: value for argument, value in zip(positional, args, strict=False)}
    if twice := given.keys() & kwargs.keys():
        raise TypeError(f"{sorted(twice)[0]!r} is given twice")
    given |= kwargs
    for argument in schema.arguments:
        if argument.name not in given:
            if not argument.has_default_value():
                raise TypeError(f"{argument.name!r} is missing")
        elif not _fits(value := given.pop(argument.name), kind := argument.real_type):
            raise TypeError(f"{argument.name!r} is {value!r:.40}, expected {kind}")
        elif argument.name in _LEAST and "strided" not in op.target:
            sizes = value if isinstance(value, list | tuple) else [value]
            axes = args[0].ndim - 2 if "conv" in op.target and argument.name != "groups" else None
            low = any(isinstance(size, int) and size < _LEAST[argument.name] for size in sizes)
            if low or (axes is not None and len(sizes) not in (1, axes)):
                raise TypeError(f"{argument.name!r} is {value!r:.40}")
    if kwargs.get("pin_memory"):
        raise TypeError("'pin_memory' is for training")
    if given:
        raise TypeError(f"unknown argument {sorted(given)[0]!r}")


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value has a schema's type, as torch.export writes it."""
    name = kind if isinstance(kind, str) else kind.kind()
    if name == "OptionalType":
        return value is None or _fits(value, kind.getElementType())
    if name == "ListType":
        inner = kind.getElementType()
        if isinstance(value, list | tuple):
            return all(_fits(each, inner) for each in value)
        return inner.kind() in ("IntType", "SymIntType", "FloatType") and _fits(value, inner)
    if name == "TensorType":  # a number stands for a tensor of no dimensions
        return isinstance(value, Tensor) or _fits(value, "NumberType")
    if name in _NUMBERS:
        return isinstance(value, _NUMBERS[name]) and (
            name == "NumberType" or not isinstance(value, bool)
        )
    if name == "BoolType":
        return isinstance(value, bool)
    if name == "StringType":
        return isinstance(value, str)
    if name == "ScalarTypeType":
        return isinstance(value, torch.dtype)
    if name == "MemoryFormatType":
        return isinstance(value, torch.memory_format)
    return value is None or (name == "DeviceObjType" and isinstance(value, torch.device))


# -- indices ------------------------------------------------------------------------------------


def _check_places(
    op: Op, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Raise unless constant indices lie within what they index."""
    if op.target in COUNTS:
        return
    raw = Call(op)
    name = next((n for n in ("index", "indices") if n in raw), None)
    if name is None:
        return
    given = Call(Op(op.name, op.target, tuple(args), kwargs))
    several = isinstance(raw[name], list | tuple)
    for axis, place in enumerate(raw[name] if several else [raw[name]]):
        index = tensors.get(place.name) if isinstance(place, Held) else None
        if index is None or index.device.type == "meta" or not index.numel():
            continue
        if index.dtype not in _WHOLE:
            continue
        x = given["self" if "self" in given else "weight"]
        if several:
            if any(isinstance(each, Tensor) and each.dtype == torch.bool for each in given[name]):
                continue  # a mask takes several axes: torch checks at the call
            size = x.shape[axis]
        elif "dim" in given:
            size = x.shape[given["dim"]] if x.ndim else 1
        else:
            size = x.numel() if op.target.startswith("aten.take.") else x.shape[0]
        least, most = int(index.min()), int(index.max())
        if most >= size or least < (-size if several or "dim" not in given else 0):
            raise IndexError(f"{place.name!r} holds {least} to {most} for {size} places")


# -- operations that do not check themselves ------------------------------------------------


def _recurrent(name: str, call: Call) -> list[tuple[int, ...]]:
    """Return the shapes of a recurrent layer's results; raise unless states and weights fit.

    input (B, T, I) if batch_first, else (T, B, I); each state (layers · directions, B, H); of
    each cell weights (gates · H, I) and (gates · H, H), with biases (gates · H,) two of these.
    """
    if "batch_sizes" in call:
        raise _unfit(name, "packed sequences")
    x, params, first = call["input"], call["params"], call["batch_first"]
    states = list(call["hx"]) if isinstance(call["hx"], list | tuple) else [call["hx"]]
    directions = 2 if call["bidirectional"] else 1
    cells = call["num_layers"] * directions
    each = 4 if call["has_biases"] else 2
    if x.ndim != 3 or len(states) != _STATES[name] or any(s.ndim != 3 for s in states):
        raise _unfit(name, f"an input of {x.ndim} dimensions and {len(states)} states")
    if cells < 1 or len(params) != cells * each:
        raise _unfit(name, f"{len(params)} weights for {cells} cells, {cells * each} expected")
    batch, length, hidden = (
        x.shape[0 if first else 1],
        x.shape[1 if first else 0],
        states[0].shape[2],
    )
    if length < 1 or hidden < 1 or x.shape[2] < 1:
        raise _unfit(name, f"an input of shape {tuple(x.shape)}")
    for state in states:
        if tuple(state.shape) != (cells, batch, hidden):
            raise _unfit(
                name, f"a state of shape {tuple(state.shape)}, expected {(cells, batch, hidden)}"
            )
    rows = _GATES[name] * hidden
    for place, weight in enumerate(params):
        width = x.shape[2] if place // each < directions else hidden * directions
        wanted = ((rows, width), (rows, hidden), (rows,), (rows,))[place % each]
        if tuple(weight.shape) != wanted:
            raise _unfit(name, f"a weight of shape {tuple(weight.shape)}, expected {wanted}")
    everything = [x, *states, *params]
    if len({(t.dtype, t.device) for t in everything}) > 1 and not _casts(x):
        raise _unfit(name, "tensors of several types or devices")
    if not all(t.is_floating_point() for t in everything):
        raise _unfit(name, "tensors that are not floating-point")
    out = (batch, length) if first else (length, batch)
    return [(*out, hidden * directions), *(tuple(s.shape) for s in states)]


def _casts(x: Tensor) -> bool:
    """Return whether torch converts types by itself (autocast)."""
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def _as_strided(name: str, call: Call) -> None:
    x, size, stride, offset = (call[n] for n in ("self", "size", "stride", "storage_offset"))
    offset = x.storage_offset() if offset is None else offset
    reach = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=False))
    entries = x.untyped_storage().nbytes() // x.element_size()
    if len(size) != len(stride) or min([0, offset, *size, *stride]) < 0 or reach >= entries:
        raise _unfit(name, f"{list(size)} entries by steps {list(stride)} in {entries:,}")


def _attention(name: str, call: Call) -> None:
    query, key, value = (call[n].shape for n in ("query", "key", "value"))
    if min(map(len, (query, key, value))) < 2 or key[-2] != value[-2] or query[-1] != key[-1]:
        raise _unfit(name, f"queries {tuple(query)}, keys {tuple(key)}, values {tuple(value)}")


def _batch_norm(name: str, call: Call) -> None:
    channels = call["input"].shape[1:2]
    for each in ("weight", "bias", "running_mean", "running_var"):
        if call[each] is None and each.startswith("running"):
            raise _unfit(name, f"no {each}")
        if call[each] is not None and call[each].shape != channels:
            raise _unfit(name, f"{each} of shape {tuple(call[each].shape)}")


def _division(name: str, call: Call) -> None:
    """Raise for the least integer divided by -1, which crashes the process."""
    x, y = call["self"], call["other"]
    whole = x.dtype in _WHOLE and (not isinstance(y, Tensor) or y.dtype in _WHOLE)
    if not whole or "rounding_mode" not in call or call["rounding_mode"] != "trunc":
        return
    known = x.device.type == "cpu" and not torch.compiler.is_compiling()
    if known and bool(((x == torch.iinfo(x.dtype).min) & (y == -1)).any()):
        raise _unfit(name, "the least integer divided by -1")


def _upsampled(name: str, call: Call) -> None:
    scales = [call[each] for each in call.arguments if each.startswith("scale")]
    for scale in (x for each in scales for x in (each if isinstance(each, list) else [each])):
        if scale is not None and not 1e-6 <= scale <= 1e6:
            raise _unfit(name, f"a scale of {scale}")


def _dimension(name: str, call: Call) -> None:
    """On meta tensors these take any dimension."""
    x, dim = call["self"], call["dim"]
    if isinstance(dim, int) and not -max(x.ndim, 1) <= dim < max(x.ndim, 1):
        raise _unfit(name, f"dimension {dim} of {x.ndim}")


Guard = Callable[[str, Call], list[tuple[int, ...]] | None]
_GUARDS: dict[str, Guard] = {
    **dict.fromkeys(_STATES, _recurrent),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    **{
        f"{kind}{size}d": _upsampled
        for kind in ("upsample_nearest", "_upsample_nearest_exact")
        for size in (1, 2, 3)
    },
    "upsample_linear1d": _upsampled,
    "upsample_bilinear2d": _upsampled,
    "upsample_bicubic2d": _upsampled,
    "upsample_trilinear3d": _upsampled,
    "as_strided": _as_strided,
    **dict.fromkeys(("softmax", "_softmax", "sort"), _dimension),
    "div": _division,
    "scaled_dot_product_attention": _attention,
}


def _unfit(name: str, what: str) -> TrellisError:
    return TrellisError(f"{name}: got {what}; give inputs of the shapes it was compacted for")


def _refused(op: Op, error: Exception) -> TrellisError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return TrellisError(f"the operation {op.name!r} ({op.target}) cannot run: {reason:.200}")


def check_size(count: int, what: str) -> None:
    """Raise if ``count`` bytes are more than one result may take."""
    if count > LARGEST:
        raise TrellisError(f"expected at most {LARGEST:,} bytes for {what}, got {count:,}")
