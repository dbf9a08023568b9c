"""From a model to a graph of operations, through ``torch.export``."""

from __future__ import annotations

import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from ..errors import TrellisError
from .failure import first_line, place
from .registry import RULES, key

_ONE_AT_A_TIME = threading.Lock()  # torch.export keeps what it is doing in global variables


def export(model: nn.Module, inputs: Sequence[Any], dynamic_shapes: Any = None) -> ExportedProgram:
    """Export a model that is already plain and in eval mode.

    Attention's fused fast path is switched off: it hides which weights are used where.
    ``dynamic_shapes`` is `torch.export`'s: which sizes of the inputs stay open.
    """
    with _ONE_AT_A_TIME:
        return _export(model, inputs, dynamic_shapes)


def _export(model: nn.Module, inputs: Sequence[Any], dynamic_shapes: Any) -> ExportedProgram:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        # What torch.inference_mode made can be traced there alone.
        inference = any(tensor.is_inference() for tensor in model.parameters())
        mode = torch.inference_mode() if inference else torch.enable_grad()
        with _quiet(), warnings.catch_warnings(), mode:
            warnings.simplefilter("ignore")
            return torch.export.export(
                model, tuple(inputs), dynamic_shapes=dynamic_shapes, strict=False
            )
    except TrellisError:
        raise
    except Exception as error:
        raise TrellisError(
            f"torch.export cannot trace {type(model).__name__} with inputs {describe(inputs)}: "
            f"{type(error).__name__}{place(error, model)}: {_reason(error)}"
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _reason(error: Exception) -> str:
    """The first line of what torch says, and what to do where that is known."""
    reason = first_line(error)
    if "data-dependent" in reason:
        reason = reason.partition(" (unhinted")[0]
        reason += ". What the model does next depends on the values of a tensor: a trellis is of "
        reason += "one way through the model, so decide by shapes or use torch.where"
    return reason + (
        " Does it return a cache? Pass use_cache=False." if "Cache" in str(error) else ""
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """While it exports, torch logs the traceback of an input that does not fit, and prints the
    graph that it has so far where it cannot go on; we raise the same in one line."""
    names = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
    loggers = [log for log in map(logging.getLogger, names) if not log.disabled]
    for logger in loggers:
        logger.disabled = True
    said, graph = io.StringIO(), ""
    try:
        with redirect_stderr(said):
            yield
    except Exception as error:
        graph = str(getattr(error, "partial_fx_graph", ""))
        raise
    finally:
        for logger in loggers:
            logger.disabled = False
        rest = said.getvalue().replace(f"{graph}\n", "") if graph else said.getvalue()
        sys.stderr.write(rest)  # what the model itself has to say


def mutates(program: ExportedProgram) -> bool:
    """Whether the graph changes tensors in place, which must be rewritten first."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in program.graph.nodes
    )


def decompose(program: ExportedProgram) -> ExportedProgram:
    """Rewrite in-place and composite operations, except those that have a rule of their own."""
    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if key(op) in RULES:
            table.pop(op)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rewritten: ExportedProgram = program.run_decompositions(table)
            return rewritten
    except Exception as error:
        raise TrellisError(
            "torch.export cannot rewrite what the model changes in place: "
            f"{type(error).__name__}: {first_line(error)}. Does it change its own weights as it "
            "runs (an embedding with max_norm)? Write that as a new tensor, or do it outside "
            "forward"
        ) from error


def describe(inputs: Sequence[Any]) -> str:
    """Shapes and types of inputs, for messages.

    >>> describe((torch.zeros(1, 3), torch.zeros(2, dtype=torch.int64)))
    '(float32 1x3, int64 2)'
    """
    parts = [
        f"{str(x.dtype).removeprefix('torch.')} {'x'.join(map(str, x.shape)) or 'scalar'}"
        if isinstance(x, torch.Tensor)
        else repr(x)
        for x in inputs
    ]
    return f"({', '.join(parts)})"
