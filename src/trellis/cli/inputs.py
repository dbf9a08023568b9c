"""Example inputs from words such as ``1x3x224x224`` and ``int64:1x128``."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from trellis.errors import TrellisError

TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
_DIMENSIONS, _DIGITS = 64, 18  # as many as torch can count
SPEC = re.compile(r"(?:(?P<type>\w+):)?(?P<shape>\d+(?:x\d+)*)(?:=(?P<value>.+))?", re.ASCII)


def example_inputs(specs: Sequence[str]) -> tuple[Tensor, ...]:
    """One tensor for each word, in order.

    Floats are drawn from a normal distribution with a fixed seed. Integers are 0, the one index
    that every table has; booleans are true, since most masks say so of what may be seen. A value
    after ``=`` is used instead.

    >>> [(tuple(x.shape), x.dtype) for x in example_inputs(["1x3", "int64:2"])]
    [((1, 3), torch.float32), ((2,), torch.int64)]
    >>> example_inputs(["int64:1x4=1"])
    (tensor([[1, 1, 1, 1]]),)
    """
    if not specs:
        raise TrellisError(
            "give an example input for each argument of forward(): --input 1x3x32x32"
        )
    generator = torch.Generator().manual_seed(0)
    return tuple(_example(spec, generator) for spec in specs)


def _example(spec: str, generator: torch.Generator) -> Tensor:
    found = SPEC.fullmatch(spec)
    if found is None:
        raise TrellisError(
            f"--input {spec[:200]!r} is no input: write [TYPE:]SHAPE[=VALUE], such as 1x3x224x224, "
            "int64:1x128 or int64:1x128=1"
        )
    name = found["type"] or "float32"
    if name not in TYPES:
        raise TrellisError(f"--input {spec!r}: {name!r} is no type; there are {', '.join(TYPES)}")
    sizes = found["shape"].split("x")
    if len(sizes) > _DIMENSIONS or max(map(len, sizes)) > _DIGITS:
        raise TrellisError(
            f"--input {spec[:60]!r}…: expected at most {_DIMENSIONS} dimensions of {_DIGITS} "
            f"digits each, got {len(sizes):,} of up to {max(map(len, sizes)):,}; give a smaller one"
        )
    kind, shape = TYPES[name], tuple(map(int, sizes))
    if 0 in shape:
        raise TrellisError(f"--input {spec!r} is empty: every size must be at least 1")
    try:
        if found["value"] is not None:
            return torch.full(shape, _value(spec, found["value"], kind), dtype=kind)
        if kind.is_floating_point:
            return torch.randn(shape, generator=generator).to(kind)
        return torch.full(shape, kind == torch.bool, dtype=kind)
    except (RuntimeError, MemoryError) as error:  # more than memory holds, or torch can count
        reason = str(error).splitlines()[0]
        raise TrellisError(f"--input {spec!r} cannot be made: {reason}") from error


def _value(spec: str, text: str, kind: torch.dtype) -> float:
    try:
        value = float(text) if kind.is_floating_point else int(text)
        limits = (
            None
            if kind == torch.bool
            else (torch.finfo(kind) if kind.is_floating_point else torch.iinfo(kind))
        )
        low, high = (0, 1) if limits is None else (limits.min, limits.max)
        if low <= value <= high:
            return value
    except ValueError:
        pass
    raise TrellisError(f"--input {spec[:200]!r}: {text[:60]!r} is no value of that type")
