"""Exporting a model so that it takes batches of any size."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from ...errors import TrellisError
from ...trace.export import export
from ...trace.trellis import one_sample


def exported(
    model: nn.Module, inputs: tuple[Any, ...], *, of: nn.Module
) -> tuple[ExportedProgram, bool]:
    """Export a plain model for one sample, the batch left open where the first dimension is one.

    Says whether it is. ``of`` as for `export`.
    """
    tensors = all(isinstance(x, Tensor) and x.ndim and x.shape[0] == 1 for x in inputs)
    if inputs and tensors:
        twice = tuple(torch.cat([x, x]) for x in inputs)
        if one_sample(model, twice)[0].shape[0] == 1:
            shapes = [{0: Dim.AUTO} for _ in twice]
            try:
                program = export(model, twice, _keyed(model, shapes), of=of)
            except TrellisError:
                return export(model, inputs, of=of), False
            first = next(n for n in program.graph.nodes if is_input(program, n))
            if not isinstance(first.meta["val"].shape[0], int):
                return program, True
    return export(model, inputs, of=of), False


def _keyed(model: nn.Module, shapes: list[Any]) -> Any:
    """As `torch.export` wants them: a tuple in the order of forward(), varargs nested."""
    kinds = [p.kind for p in inspect.signature(model.forward).parameters.values()]
    varargs = inspect.Parameter.VAR_POSITIONAL
    if varargs in kinds[: len(shapes)]:
        at = kinds.index(varargs)
        return (*shapes[:at], tuple(shapes[at:]))
    return tuple(shapes)


def is_input(program: ExportedProgram, node: fx.Node) -> bool:
    return node.op == "placeholder" and node.name in program.graph_signature.user_inputs
