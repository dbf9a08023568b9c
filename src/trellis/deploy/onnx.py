"""Export to ONNX, checked against PyTorch before the file is written."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import TrellisError
from ..files import check_writable, replacing
from ..graph.export import alone, on_plain
from ..graph.inputs import Inputs, as_inputs, leaves, of_tensors, one_sample, unwrapped
from ..masks.masked import check_model, check_outputs
from .compact.reading import exported
from .exporters import register_exporter

# Optional packages that writing ONNX needs.


PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def needed(name: str) -> Any:
    """Import one of `PACKAGES`, or raise and say how to install them."""
    for package in PACKAGES:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise TrellisError(
                f"ONNX needs the package {package!r}, which cannot be imported ({error}); run "
                "pip install 'trellis-prune[onnx]'"
            ) from error
    return importlib.import_module(name)


# Weights as ONNX sparse initializers, if that makes the file smaller.


ENTRY = 8  # bytes of an index; ONNX allows 64-bit ones only
OVERHEAD = 64  # bytes of the second tensor's names, sizes and tags, about


def sparsify(model: Any) -> int:
    """Make initializers of an ONNX ``ModelProto`` sparse, in place; return how many.

    A sparse initializer stores each non-zero entry with its flat index. Runtimes make it dense
    again when they load it: the file gets smaller, not the memory.
    """
    onnx = needed("onnx")
    graph, kept, turned = model.graph, [], 0
    for tensor in graph.initializer:
        value = onnx.numpy_helper.to_array(tensor)
        places = np.flatnonzero(value)
        size = len(places) * (value.itemsize + ENTRY) + OVERHEAD
        if not value.ndim or not len(places) or size >= value.nbytes:
            kept.append(tensor)
            continue
        entries = onnx.numpy_helper.from_array(value.reshape(-1)[places], tensor.name)
        index = onnx.numpy_helper.from_array(places.astype(np.int64), f"{tensor.name}_indices")
        graph.sparse_initializer.append(
            onnx.helper.make_sparse_tensor(entries, index, list(value.shape))
        )
        turned += 1
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return turned


# `trellis.export_onnx`.


NEAR = 1e-5  # largest difference, as a fraction of the largest output
SLOWER = (
    "ONNX Runtime multiplies by zeros too, because it makes sparse initializers dense when it "
    "loads them. If more than about 90 % of the remaining connections are zero, the sparse "
    "run-time in C (trellis export c) is faster; for denser networks, or large batches on many "
    "cores, dense ONNX may be"
)


@dataclass(frozen=True)
class OnnxExport:
    """What `export_onnx` wrote; prints as one line.

    Attributes:
        path: The file.
        size: Its bytes.
        dense_size: Its bytes without sparse initializers.
        sparse: Number of sparse initializers.
        zeros: Fraction of its weights that is zero.
        difference: Largest difference between ONNX Runtime and PyTorch, as a fraction of the
            largest output.
        opset: Version of the ONNX operator set.
        batched: Whether it accepts batches of any size.
    """

    path: Path
    size: int
    dense_size: int
    sparse: int
    zeros: float
    difference: float
    opset: int
    batched: bool

    def __str__(self) -> str:
        saved = f", {self.dense_size:,} without sparse initializers" if self.sparse else ""
        batch = "any batch size" if self.batched else "the example's shapes only"
        return (
            f"wrote {self.path}: {self.size:,} bytes (opset {self.opset}, {batch}{saved}); ONNX "
            f"Runtime and PyTorch differ by {self.difference:.1e} of the largest output"
        )


@register_exporter("onnx")
def export_onnx(
    model: nn.Module,
    example_inputs: Any,
    path: str | PathLike[str],
    *,
    notes: Mapping[str, str] | None = None,
) -> OnnxExport:
    """Write a model as ONNX, after ONNX Runtime has agreed with PyTorch on random inputs.

    Compact the model first, so that dead units are not written. Weights that are mostly zero are
    stored as sparse initializers. Needs ``pip install 'trellis-prune[onnx]'``.

    Args:
        model: The model: compacted, masked or baked.
        example_inputs: Example inputs, as for `trellis.audit`. If their first dimension is one,
            the file accepts batches of any size.
        path: The file to write.
        notes: Metadata of the file, by name.

    Returns:
        What was written, and its sizes.

    Raises:
        TrellisError: If a package is missing, the model cannot be written as ONNX, or outputs
            differ by more than 1e-5 of the largest. Nothing is written then.

    >>> import tempfile, trellis
    >>> small = trellis.compact(nn.Linear(4, 2), torch.zeros(1, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = export_onnx(small, torch.zeros(1, 4), Path(folder, "model.onnx"))
    ...     written.batched, written.difference < 1e-5, written.path.stat().st_size == written.size
    (True, True, True)
    """
    onnx = needed("onnx")
    target = Path(path)
    check_writable(target)
    model = unwrapped(model)
    check_model(model, "repair it before exporting")

    def written(seen: nn.Module) -> tuple[bytes, OnnxExport]:
        given = one_sample(seen, as_inputs(seen, example_inputs))
        program, batched = exported(seen, given, of=model)
        try:
            with alone(model):
                proto = torch.onnx.export(program, dynamo=True, verbose=False).model_proto  # type: ignore[union-attr]
        except Exception as error:
            raise TrellisError(
                f"PyTorch cannot write {type(model).__name__} as ONNX: {_first(error)}"
            ) from error
        _tidy(proto)
        onnx.helper.set_model_props(proto, dict(notes or {}))
        zeros = _zeros(onnx, proto)
        dense_size = len(proto.SerializeToString())
        # ONNX's own inference of shapes does not look into sparse initializers.
        onnx.checker.check_model(proto, full_check=True)
        sparse = sparsify(proto)
        onnx.checker.check_model(proto)
        data = proto.SerializeToString()
        difference = _difference(seen, given, data, batched)
        opset = next(o.version for o in proto.opset_import if o.domain == "")
        size = len(data)
        return data, OnnxExport(target, size, dense_size, sparse, zeros, difference, opset, batched)

    with _quiet(), torch.no_grad():
        data, found = on_plain(model, written)
    with replacing(target) as [draft]:
        draft.write_bytes(data)
    return found


def _tidy(proto: Any) -> None:
    """Remove the exporter's notes, such as stack traces, and name the batch dimension."""
    graph = proto.graph
    del proto.metadata_props[:]
    for part in [graph, *graph.node, *graph.input, *graph.output, *graph.initializer]:
        del part.metadata_props[:]
        part.doc_string = ""
    for function in proto.functions:
        for part in [function, *function.node]:
            del part.metadata_props[:]
            part.doc_string = ""
    del graph.value_info[:]
    proto.doc_string = ""
    symbols = {
        dim.dim_param
        for value in graph.input
        for dim in value.type.tensor_type.shape.dim
        if dim.dim_param
    }
    if len(symbols) == 1:
        (symbol,) = symbols
        for value in [*graph.input, *graph.output]:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == symbol:
                    dim.dim_param = "batch"


def _zeros(onnx: Any, proto: Any) -> float:
    """Return the fraction of all floating-point weights that is zero."""
    arrays = [onnx.numpy_helper.to_array(t) for t in proto.graph.initializer]
    weights = [a for a in arrays if a.dtype.kind == "f" and a.ndim > 1]
    total = sum(a.size for a in weights)
    return sum(int((a == 0).sum()) for a in weights) / total if total else 0.0


def _difference(model: nn.Module, inputs: Inputs, data: bytes, batched: bool) -> float:
    """Run both on random inputs, and raise unless they agree."""
    runtime = needed("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise TrellisError(f"ONNX Runtime cannot load the network: {_first(error)}") from error
    worst = 0.0
    for batch in (1, 3) if batched else (1,):
        given = _random(inputs, batch if batched else None)
        expected = _tensors(model(*given.args, **given.kwargs))
        check_outputs(expected, "look for a division by zero or an overflow before exporting")
        flat = [x for x in leaves(given) if isinstance(x, Tensor)]
        names = [value.name for value in session.get_inputs()]
        if len(names) > len(flat):
            raise TrellisError(
                f"the ONNX network has the inputs {names}, but the model has {len(flat)}"
            )
        feeds = {n: x.detach().cpu().numpy() for n, x in zip(names, flat, strict=False)}
        try:
            found = [torch.as_tensor(y) for y in session.run(None, feeds)]
        except Exception as error:
            raise TrellisError(f"ONNX Runtime cannot run the network: {_first(error)}") from error
        worst = max(worst, _apart(expected, found))
    if not worst <= NEAR:
        raise TrellisError(
            f"ONNX Runtime and PyTorch differ by {worst:.2g} of the largest output, expected at "
            f"most {NEAR:g}; nothing was written"
        )
    return worst


def _random(inputs: Inputs, batch: int | None) -> Inputs:
    generator = torch.Generator().manual_seed(2)

    def draw(x: Tensor) -> Tensor:
        shape = x.shape if batch is None else (batch, *x.shape[1:])
        if x.is_floating_point():
            return torch.randn(shape, generator=generator).to(x)
        return x.expand(shape).contiguous()

    return of_tensors(inputs, draw)


def _apart(expected: Sequence[Tensor], found: Sequence[Tensor]) -> float:
    if [tuple(y.shape) for y in expected] != [tuple(y.shape) for y in found]:
        return float("inf")
    worst = 0.0
    for want, have in zip(expected, found, strict=True):
        if want.numel():
            wide, other = want.cpu().double(), have.double()
            top = float(torch.where(wide.isfinite(), wide, 0.0).abs().max())
            gap = torch.where(
                wide == other, 0.0, (wide - other).abs()
            )  # equal infinities do not differ
            far = float(gap.nan_to_num(nan=torch.inf).max())
            worst = max(worst, far / top if top else far)
    return worst


def _tensors(result: Any) -> list[Tensor]:
    return [y for y in pytree.tree_leaves(result) if isinstance(y, Tensor)]


def _first(error: Exception) -> str:
    """Return the first line of an error's root cause."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {(lines or [''])[0]:.300}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


__all__ = ["OnnxExport", "export_onnx"]
