"""Everything else that can run the network, one thread each.

A peer is made from a model and the batch it will see, and is called with inputs. One that is not
installed, or fails to be made, gives its reason instead.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from infer_models import EXAMPLE, dense
from numpy.typing import NDArray

import trellis
from trellis.skeleton import GCN

Floats = NDArray[np.float32]
Call = Callable[[Floats], object]
Peer = Callable[[GCN, int, Path], Call]


def _onnx(model: torch.nn.Module, batch: int, folder: Path, name: str) -> Call:
    import onnxruntime

    path = folder / f"{name}-{batch}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = EXAMPLE.expand(batch, *EXAMPLE.shape[1:]).contiguous()
        torch.onnx.export(model, (example,), str(path), dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    entry = session.get_inputs()[0].name
    return lambda x: session.run(None, {entry: x})


def onnx_dense(model: GCN, batch: int, folder: Path) -> Call:
    return _onnx(model, batch, folder, "dense")


def onnx_compacted(model: GCN, batch: int, folder: Path) -> Call:
    return _onnx(trellis.compact(model, EXAMPLE), batch, folder, "compacted")


def eager(model: GCN, batch: int, folder: Path) -> Call:
    def call(x: Floats) -> object:
        with torch.inference_mode():
            return model(torch.from_numpy(x))

    return call


def compiled(model: GCN, batch: int, folder: Path) -> Call:
    made = torch.compile(model)

    def call(x: Floats) -> object:
        with torch.inference_mode():
            return made(torch.from_numpy(x))

    return call


_ISA = "ONEDNN_MAX_CPU_ISA"


@functools.cache
def openvino_lives() -> None:
    """On virtual machines that advertise AMX and trap it, OpenVINO dies with SIGILL: a child tries
    it first, and then without AMX. Raises where it dies either way."""
    for isa in (os.environ.get(_ISA), "AVX512_CORE_VNNI"):
        environment = {**os.environ, **({_ISA: isa} if isa else {})}
        tried = subprocess.run([sys.executable, __file__], env=environment, capture_output=True)
        if tried.returncode == 0:
            os.environ.update(environment)
            return
    told = tried.stderr.decode(errors="replace").strip().splitlines() or [""]
    raise RuntimeError(f"it ends with status {tried.returncode} here: {told[-1][:150]}")


def openvino_int8(model: GCN, batch: int, folder: Path) -> Call:
    openvino_lives()
    return _openvino_int8(model, batch)


def _openvino_int8(model: GCN, batch: int) -> Call:
    import nncf
    import openvino

    example = EXAMPLE.expand(batch, *EXAMPLE.shape[1:]).contiguous()
    warnings.filterwarnings("ignore", category=torch.jit._trace.TracerWarning)
    converted = openvino.convert_model(model, example_input=example)
    data = nncf.Dataset([np.random.default_rng(i).normal(size=example.shape).astype(np.float32)
                         for i in range(32)])  # fmt: skip
    small = nncf.quantize(converted, data, subset_size=32)
    core = openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    request = core.compile_model(small, "CPU", options).create_infer_request()
    return lambda x: request.infer({0: x})


def _sparse_steps(model: GCN) -> tuple[list[Any], Any]:
    """Attention (heads · nodes, nodes), each head's convolution (filters, channels), the dense
    layer (classes, nodes · heads · filters)."""
    block: Any = model.blocks[0]
    attention = block.attention.detach().flatten(0, 1)
    convolutions = [kernel.detach().T.contiguous() for kernel in block.convolution]
    return [attention, convolutions], model.dense.weight.detach()


def scipy_csr(model: GCN, batch: int, folder: Path) -> Call:
    from scipy import sparse

    (attention, convolutions), last = _sparse_steps(model)
    mix = sparse.csr_matrix(attention.numpy())
    kernels = [sparse.csr_matrix(kernel.numpy()) for kernel in convolutions]
    dense = sparse.csr_matrix(last.numpy())
    heads, nodes = len(kernels), attention.shape[1]

    def call(x: Floats) -> object:
        batch, _, channels = x.shape
        mixed = mix @ np.ascontiguousarray(x.transpose(1, 0, 2)).reshape(nodes, -1)
        mixed = mixed.reshape(heads, nodes * batch, channels)
        made = np.stack([kernel @ part.T for kernel, part in zip(kernels, mixed, strict=True)])
        made = np.maximum(made, 0).reshape(heads, -1, nodes, batch)
        return (dense @ made.transpose(2, 0, 1, 3).reshape(-1, batch)).T

    return call


def torch_csr(model: GCN, batch: int, folder: Path) -> Call:
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
    (attention, convolutions), last = _sparse_steps(model)
    mix = attention.to_sparse_csr()
    kernels = [kernel.to_sparse_csr() for kernel in convolutions]
    dense = last.to_sparse_csr()
    heads, nodes = len(kernels), attention.shape[1]

    def call(x: Floats) -> object:
        with torch.inference_mode():
            given = torch.from_numpy(x)
            batch, _, channels = given.shape
            mixed = mix @ given.transpose(0, 1).reshape(nodes, -1)
            mixed = mixed.reshape(heads, nodes * batch, channels)
            made = torch.stack([k @ part.T for k, part in zip(kernels, mixed, strict=True)])
            made = made.relu_().reshape(heads, -1, nodes, batch)
            return (dense @ made.permute(2, 0, 1, 3).reshape(-1, batch)).T

    return call


PEERS: dict[str, Peer] = {
    "ONNX Runtime, dense": onnx_dense,
    "ONNX Runtime, compacted": onnx_compacted,
    "PyTorch, eager": eager,
    "PyTorch, compiled": compiled,
    "OpenVINO int8, dense": openvino_int8,
    "scipy CSR": scipy_csr,
    "torch CSR": torch_csr,
}

if __name__ == "__main__":  # whether OpenVINO survives here
    _openvino_int8(dense(0), 1)(EXAMPLE.numpy())
