"""Which kernels, if any, run a stack of GCNs: a matter of its sizes, the precision and the GPU."""

from __future__ import annotations

import warnings
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from .fused import Fused
from .halves import Halved

_MEMORY = 200 << 10  # bytes that a program's tiles may take: what an H100 has, and an A100 not
_OPTIN = "shared_memory_per_block_optin"


def fast_logits(
    attention: Tensor, convolution: Tensor, dense: Tensor, x: Tensor, activation: str
) -> Tensor | None:
    """The logits of one-block GCNs without biases, (N, B, classes); None if no kernel can do it.

    attention (N, K, U, V), convolution (N, K, C, F), dense (N, classes, U * K * F),
    x (N, B, V, C), which gets no gradient.
    """
    kind = precision_of(attention, convolution, dense, x)
    if kind is None or x.requires_grad or not usable(attention, convolution, dense.shape[1]):
        return None
    logits: Tensor
    folds = activation == "abs"
    if kind == "bf16":
        logits = Fused.apply(attention, convolution, dense, x, folds)  # type: ignore[no-untyped-call]
        return logits
    pairs = kind == "fp32"
    sizes = (*convolution.shape[1:], attention.shape[-1], dense.shape[1])
    trial = attention.device, pairs, folds, *sizes
    if trial not in _RUNS:
        if x.is_cuda and torch.cuda.is_current_stream_capturing():  # no moment to try
            return None
        _RUNS[trial] = _runs(*trial)
    if not _RUNS[trial]:
        return None
    logits = Halved.apply(  # type: ignore[no-untyped-call]
        attention, convolution, dense, x, pairs, folds
    )
    return logits


def precision_of(*tensors: Tensor) -> str | None:
    """How products of these are rounded just now: "bf16" under autocast; "fp32" or "tf32", if all
    are float32, by ``torch.set_float32_matmul_precision``.

    >>> precision_of(torch.zeros(1)), precision_of(torch.zeros(1, dtype=torch.float64))
    ('fp32', None)
    """
    if torch.is_autocast_enabled("cuda"):
        return "bf16" if torch.get_autocast_dtype("cuda") == torch.bfloat16 else None
    if any(tensor.dtype != torch.float32 for tensor in tensors):
        return None
    return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def usable(attention: Tensor, convolution: Tensor, classes: int) -> bool:
    """Whether the kernels can run these: on a large GPU, sizes that fit a tile."""
    nodes, (channels, filters) = attention.shape[-1], convolution.shape[-2:]
    return (
        attention.is_cuda
        and _shared_memory(attention.device) >= _MEMORY
        and find_spec("triton") is not None
        and filters in (16, 32, 64, 128)
        and channels <= 128
        and channels % 8 == 0
        and nodes <= 64
        and classes <= 64
    )


@lru_cache
def _shared_memory(device: torch.device) -> int:
    return int(getattr(torch.cuda.get_device_properties(device), _OPTIN, 0))


_RUNS: dict[tuple[Any, ...], bool] = {}


def _runs(
    device: torch.device, pairs: bool, folds: bool, heads: int, channels: int, filters: int,
    nodes: int, classes: int,
) -> bool:  # fmt: skip
    """Try one step of a network of these sizes: another GPU or another Triton may refuse it."""
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.cuda.device(device):
            attention = torch.ones(1, heads, nodes, nodes, device=device, requires_grad=True)
            convolution = torch.ones(1, heads, channels, filters, device=device)
            dense = torch.ones(1, classes, heads * nodes * filters, device=device)
            x = torch.ones(1, 64, nodes, channels, device=device)
            logits = Halved.apply(  # type: ignore[no-untyped-call]
                attention, convolution, dense, x, pairs, folds
            )
            torch.autograd.grad(logits.sum(), attention)
            torch.cuda.synchronize(device)
    except torch.OutOfMemoryError:  # which says nothing of the kernels
        raise
    except Exception as error:  # Triton's errors have no class in common
        warnings.warn(
            f"the kernels for {'fp32' if pairs else 'tf32'} do not run on {device} ({error!r}): "
            "plain products are used, which take longer",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True
