"""A network as a list of operations, as a compacted model runs it and JSON stores it.

Every operation is one that Trellis has a rule for (or makes constants, or counts sizes), by its
name in ``torch.ops``. Nothing else can be named, so a file can ask for nothing else.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from ...errors import TrellisError
from ...graph.export import RULES, aten, key
from ...graph.interpreter import BLANK
from ...graph.steps import leaves

# Operations that create constants: they read no signal, so they need no rule.
MAKERS = BLANK | set(aten("zeros ones full arange eye empty_like scalar_tensor sym_size linspace"))
MAKERS |= set(aten("diff tril triu one_hot"))
COUNTS: dict[str, Callable[..., Any]] = {
    f"operator.{name}": getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "getitem")
}
KINDS = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_FORMATS = {
    str(form).removeprefix("torch."): form
    for form in (torch.contiguous_format, torch.preserve_format, torch.channels_last)
}
# Not allowed in files: results of uninitialised memory.
_SAFE: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.aten.empty_like.default: torch.ops.aten.zeros_like.default
}
HERE = "device"  # a keyword that is filled in with where the inputs are


class NoOperation(TrellisError):
    """Raised for the name of an operation that a compacted model may not run."""


@dataclass(frozen=True)
class Ref:
    """The result of another operation, or an input, by name."""

    name: str


@dataclass(frozen=True)
class Held:
    """A parameter or buffer of the model, by name."""

    name: str


@dataclass(frozen=True)
class Op:
    """``name = target(*args, **kwargs)``; arguments are numbers, names and lists of them."""

    name: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def refs(self) -> Iterator[str]:
        """Return the names of the results that it reads."""
        yield from (leaf.name for leaf in leaves(self.arguments) if isinstance(leaf, Ref))

    def held(self) -> Iterator[str]:
        """Return the names of the tensors that it reads."""
        yield from (leaf.name for leaf in leaves(self.arguments) if isinstance(leaf, Held))

    @property
    def arguments(self) -> tuple[Any, dict[str, Any]]:
        return self.args, dict(self.kwargs)


@dataclass(frozen=True)
class Program:
    """A list of operations. ``inputs`` are names in the order of the arguments, ``ops`` run in
    order, and ``result`` nests what is returned in tuples, lists and dictionaries."""

    inputs: tuple[str, ...]
    ops: tuple[Op, ...]
    result: Any

    def last_uses(self) -> list[list[str]]:
        """Return, for each operation, the names that are not needed after it."""
        last = {name: place for place, op in enumerate(self.ops) for name in op.refs()}
        for leaf in leaves(self.result):
            if isinstance(leaf, Ref):
                last.pop(leaf.name, None)
        gone: list[list[str]] = [[] for _ in self.ops]
        for name, place in last.items():
            gone[place].append(name)
        return gone

    def needed(self) -> Program:
        """Return the program without operations whose result is not used."""
        wanted = {leaf.name for leaf in leaves(self.result) if isinstance(leaf, Ref)}
        ops = []
        for op in reversed(self.ops):
            if op.name in wanted:
                ops.append(op)
                wanted.update(op.refs())
        return Program(self.inputs, tuple(reversed(ops)), self.result)

    def held(self) -> list[str]:
        """Return the names of the tensors that it reads, in order, each once."""
        found = [name for op in self.ops for name in op.held()]
        found += [leaf.name for leaf in leaves(self.result) if isinstance(leaf, Held)]
        return list(dict.fromkeys(found))

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": list(self.inputs),
            "ops": [
                [op.name, op.target, _out(list(op.args)), _out(dict(op.kwargs))] for op in self.ops
            ],
            "result": _out(self.result),
        }

    @classmethod
    def from_json(cls, given: Any) -> Program:
        """Rebuild a program from `to_json`; raise for anything that `to_json` cannot write."""
        try:
            inputs = tuple(_name(name) for name in given["inputs"])
            known, ops = set(inputs), []
            for name, target, args, kwargs in given["ops"]:
                function(target)
                if not isinstance(args, list) or not isinstance(kwargs, dict):
                    raise TypeError("arguments")
                op = Op(_name(name), target, tuple(map(_in, args)), _in(kwargs))
                if op.name in known:
                    raise ValueError(f"duplicate operation {op.name!r}")
                if unknown := [ref for ref in op.refs() if ref not in known]:
                    raise ValueError(f"{op.name!r} reads {unknown[0]!r}, which is missing")
                known.add(op.name)
                ops.append(op)
            result = _in(given["result"])
            if any(isinstance(leaf, Ref) and leaf.name not in known for leaf in leaves(result)):
                raise ValueError("the result is missing")
            return cls(inputs, tuple(ops), result)
        except TrellisError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise TrellisError(f"invalid list of operations: {error!s:.200}") from None


@lru_cache(maxsize=1 << 10)
def function(target: str) -> Callable[..., Any]:
    """Return the function of an operation's name.

    >>> function("aten.relu.default")(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    >>> try:
    ...     function("os.system.default")
    ... except TrellisError as error:
    ...     print(error)
    unknown operation 'os.system.default' in a compacted model
    """
    if target in COUNTS:
        return COUNTS[target]
    parts = target.split(".") if isinstance(target, str) else []
    if len(parts) == 3 and all(part.isidentifier() for part in parts):
        name = f"{parts[0]}::{parts[1]}"
        if name in RULES or name in MAKERS:
            found = getattr(getattr(getattr(torch.ops, parts[0]), parts[1], None), parts[2], None)
            # TorchScript's overloads for lists and strings have the same names, but no kernels.
            if (
                isinstance(found, torch._ops.OpOverload)
                and not found._schema.is_mutable
                and torch._C._dispatch_has_kernel(found.name())
            ):
                return _SAFE.get(found, found)
    raise NoOperation(f"unknown operation {target!r} in a compacted model")


@lru_cache(maxsize=1 << 10)
def placed(target: str) -> bool:
    """Return whether an operation creates a tensor and so needs a device.

    >>> placed("aten.zeros.default"), placed("aten.relu.default"), placed("operator.add")
    (True, False, False)
    """
    schema = getattr(function(target), "_schema", None)
    arguments = [] if schema is None else schema.arguments
    return any(a.name == HERE for a in arguments) and not any(
        "Tensor" in str(a.type) for a in arguments
    )


def target_of(op: Any) -> str:
    """Return the name of an operation of an exported graph.

    >>> target_of(torch.ops.aten.relu.default), target_of(operator.mul)
    ('aten.relu.default', 'operator.mul')
    """
    if isinstance(op, torch._ops.OpOverload):
        space, name = key(op).split("::")
        return f"{space}.{name}.{op._overloadname}"
    return f"operator.{getattr(op, '__name__', op)}"


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return arguments with every leaf changed."""
    if isinstance(value, tuple | list):
        return type(value)(replaced(v, change) for v in value)
    if isinstance(value, dict):
        return {k: replaced(v, change) for k, v in value.items()}
    return change(value)


def _out(value: Any) -> Any:
    """Return arguments as JSON; a dictionary with one key encodes what JSON lacks."""
    if isinstance(value, Ref):
        return {"value": value.name}
    if isinstance(value, Held):
        return {"tensor": value.name}
    if isinstance(value, tuple):
        return {"tuple": [_out(v) for v in value]}
    if isinstance(value, list):
        return [_out(v) for v in value]
    if isinstance(value, dict):
        return {"dict": {str(k): _out(v) for k, v in value.items()}}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory": str(value).removeprefix("torch.")}
    return value


def _in(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_in(v) for v in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"invalid argument {value!r:.60}")
    ((kind, inner),) = value.items()
    if kind == "value":
        return Ref(_name(inner))
    if kind == "tensor":
        return Held(_name(inner))
    if kind == "tuple" and isinstance(inner, list):
        return tuple(_in(v) for v in inner)
    if kind == "dict" and isinstance(inner, dict):
        return {str(k): _in(v) for k, v in inner.items()}
    if kind == "float" and inner in ("inf", "-inf", "nan"):
        return float(inner)
    if kind == "dtype":
        return KINDS[inner]
    if kind == "memory":
        return _FORMATS[inner]
    raise ValueError(f"invalid argument {value!r:.60}")


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"expected a name, got {value!r:.60}")
    return value


# The arguments of an operation, by the names that PyTorch's schema gives them.


class Call:
    """An operation whose arguments are read and changed by name.

    >>> call = Call(Op("y", "aten.sum.dim_IntList", ("x", [1])))
    >>> call["dim"], call["keepdim"]
    ([1], False)
    >>> call.changed("z", keepdim=True)
    Op(name='z', target='aten.sum.dim_IntList', args=('x', [1], True), kwargs={})
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        found = function(op.target)
        self.schema = found._schema if isinstance(found, torch._ops.OpOverload) else None
        self.arguments: dict[str, Any] = {}
        if self.schema is not None:
            for place, argument in enumerate(self.schema.arguments):
                if place < len(op.args):
                    self.arguments[argument.name] = op.args[place]
                elif argument.name in op.kwargs:
                    self.arguments[argument.name] = op.kwargs[argument.name]
                elif argument.has_default_value():
                    self.arguments[argument.name] = argument.default_value

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arguments

    def changed(self, result: str, /, **changes: Any) -> Op:
        """Return the operation under the name ``result``, with some arguments changed."""
        assert self.schema is not None
        unknown = changes.keys() - self.arguments.keys()
        if unknown:
            raise KeyError(f"{self.op.target} has no argument {sorted(unknown)[0]!r}")
        given = self.arguments | changes
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        default: list[bool] = []
        for argument in self.schema.arguments:
            if argument.name not in given:
                continue
            value = given[argument.name]
            same = argument.has_default_value() and value == argument.default_value
            if argument.kwarg_only:
                if not same:
                    kwargs[argument.name] = value
            else:
                args.append(value)
                default.append(same and argument.name not in changes)
        while default and default[-1]:
            default.pop()
            args.pop()
        return Op(result, self.op.target, tuple(args), kwargs)
