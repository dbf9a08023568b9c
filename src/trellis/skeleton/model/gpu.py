"""GPU kernels for a stack of GCNs, selected by sizes, precision and GPU."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def power(size: int) -> int:
    """Return the least power of two that is at least ``size`` and 16: the side of a tile.

    >>> power(3), power(21), power(64)
    (16, 32, 64)
    """
    return max(16, 1 << (size - 1).bit_length())


def two_parts(channels: int) -> dict[str, int]:
    """Return two powers of two whose sum holds the channels; the second is 0 if one suffices.

    >>> two_parts(96), two_parts(64), two_parts(70)
    ({'C1': 64, 'C2': 32}, {'C1': 64, 'C2': 0}, {'C1': 64, 'C2': 16})
    """
    whole = power(channels)
    if channels == whole or channels <= 16:
        return {"C1": whole, "C2": 0}
    return {"C1": whole // 2, "C2": power(channels - whole // 2)}


# A stack of one-block GCNs on a GPU in bfloat16, by kernels that never store hidden units.


_HALF = torch.bfloat16
_HEADS = 2  # heads that a program of the forward kernel sums over
_GROUPS = 3  # programs of the backward kernel that share a head's nodes
_SPLITS = 16  # parts in which the attention's gradient is summed


class Fused(torch.autograd.Function):
    """The logits of a stack of one-block GCNs in bfloat16, with float32 sums.

    The activation is the absolute value (``folds``) or the ReLU.

    Shapes: attention (N, K, U, V), convolution (N, K, C, F), dense (N, classes, U * K * F), inputs
    (N, B, V, C) -> logits (N, B, classes).
    """

    @staticmethod
    def forward(
        ctx: Any, attention: Tensor, convolution: Tensor, dense: Tensor, x: Tensor, folds: bool
    ) -> Tensor:
        from .triton_kernels import logits_kernel

        networks, batch, nodes, channels = x.shape
        heads, filters, classes = attention.shape[1], convolution.shape[-1], dense.shape[1]
        padded = power(nodes)  # rows that tensor cores can read
        columns = x.new_empty(networks, padded, batch, channels, dtype=_HALF)
        columns[:, :nodes] = x.transpose(1, 2)
        columns[:, nodes:] = 0
        rows = F.pad(attention.to(_HALF), (0, padded - nodes)).flatten(1, 2)
        z = torch.bmm(rows, columns.flatten(2))
        w = convolution.to(_HALF).contiguous()
        d = dense.to(_HALF).contiguous()
        wide = power(classes)
        splits = -(-heads // _HEADS)
        parts = x.new_empty(networks, splits, batch, wide, dtype=torch.float32)
        logits_kernel[(networks, -(-batch // 64), splits)](
            z, w, d, parts, heads, nodes, batch, classes, _HEADS,
            C=channels, F=filters, P=wide, **two_parts(channels), ROWS=64, FOLDS=folds,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        ctx.save_for_backward(columns, z, w, d)
        ctx.sizes = (networks, heads, nodes, batch, channels, filters, classes)
        ctx.folds = folds
        return parts.sum(1)[..., :classes]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        from .triton_kernels import attention_kernel, gradients_kernel

        columns, z, w, d = ctx.saved_tensors
        networks, heads, nodes, batch, channels, filters, classes = ctx.sizes
        wide = power(classes)
        g = F.pad(gradient.to(w.dtype), (0, wide - classes)).contiguous()
        groups = min(_GROUPS, nodes)
        single: Any = {"dtype": torch.float32, "device": w.device}
        dz = torch.empty_like(z)
        dw = torch.empty(networks, heads, groups, channels, filters, **single)
        dd = torch.empty(d.shape, **single)
        gradients_kernel[(networks, heads, groups)](
            z, w, d, g, dz, dw, dd, heads, nodes, batch, classes, -(-nodes // groups),
            C=channels, F=filters, P=wide, **two_parts(channels), ROWS=128, FOLDS=ctx.folds,
            num_warps=8, num_stages=2,
        )  # fmt: skip
        rows, width, padded = heads * nodes, batch * channels, columns.shape[1]
        span = -(-width // (_SPLITS * 128)) * 128
        da = torch.empty(networks, _SPLITS, rows, padded, **single)
        attention_kernel[(networks, -(-rows // 64), _SPLITS)](
            dz, columns, da, rows, width, span, V=padded, ROWS=64, COLUMNS=128,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        attention = da.sum(1)[..., :nodes].reshape(networks, heads, nodes, nodes)
        return attention, dw.sum(2), dd, None, None


# A stack of one-block GCNs on a GPU in float32 or TF32, by kernels on pairs of 16-bit halves.
#
# **What "fp32" means here.** Each float32 is taken as the sum of two 16-bit floats, ``high`` and
# ``low / 2^11``, which carry 22 of its 24 bits; a product is three products of halves on the tensor
# cores, off by at most about 2^-21 of itself (a float32 product: 2^-24), and all sums are in
# float32. Beside float64, logits and gradients come out about as near as those of plain float32
# products, whose sums round more than these numbers do (bench/train.py says how near). **"tf32"**
# is the high half alone: 11 bits, as many as TF32 has.
#
# A 16-bit float has few exponents, so each tensor of each network is scaled by a power of two that
# puts a bound on its entries just below 2^15. Entries down to 2^-29 of the bound keep their 22
# bits; smaller ones are off by up to 2^-51 of the bound. Nothing can overflow: a bound on what a
# kernel makes follows from those on what it reads (|z| is at most the largest |x| times the
# largest sum of |attention| in a row, and so on).


_halves_HEADS = 2  # heads that a program of the forward kernel sums over
_halves_GROUPS = 3  # programs of the backward kernel that share a head's nodes
_halves_SPLITS = 16  # parts in which the attention's gradient is summed


@dataclass(frozen=True)
class Launch:
    """The tile of a kernel, rows and perhaps columns, and Triton's compile options."""

    rows: int
    warps: int
    stages: int
    columns: int = 0

    @property
    def options(self) -> dict[str, int]:
        columns = {"COLUMNS": self.columns} if self.columns else {}
        return {"ROWS": self.rows, "num_warps": self.warps, "num_stages": self.stages, **columns}


@dataclass(frozen=True)
class Launches:
    mix: Launch
    logits: Launch
    gradients: Launch
    attention: Launch


# With and without pairs: the fastest of those tried on an H200 (bench/train.py). Each takes less
# than the 227 KB of shared memory of a program.
LAUNCHES = {
    True: Launches(
        mix=Launch(64, 4, 1, columns=64),
        logits=Launch(128, 8, 2),
        gradients=Launch(64, 8, 2),
        attention=Launch(128, 8, 3, columns=64),
    ),
    False: Launches(
        mix=Launch(64, 4, 1, columns=128),
        logits=Launch(128, 8, 2),
        gradients=Launch(64, 8, 2),
        attention=Launch(64, 4, 3, columns=128),
    ),
}


def scale_below(bound: Tensor) -> Tensor:
    """The power of two that brings a bound into [2^14, 2^15): float32, any shape.

    Read off the exponent's bits, since powers and logarithms are not exact on a GPU; at most 2^60
    and at least 2^-60, so that a product of two is finite, as is its inverse.

    >>> scale_below(torch.tensor([1.0, 1.5, 3.0, 0.0])).log2()
    tensor([14., 14., 13., 60.])
    """
    exponent = bound.contiguous().view(torch.int32) >> 23  # of a bound: its sign is 0
    return ((268 - exponent).clamp(127 - 60, 127 + 60) << 23).view(torch.float32)


class Halved(torch.autograd.Function):
    """The logits of a stack of one-block GCNs by products of 16-bit halves.

    With ``pairs``, products use both halves (fp32), otherwise the high ones only (tf32). The
    activation is the absolute value (``folds``) or the ReLU. Shapes are those of `Fused`, all in
    float32.
    """

    @staticmethod
    def forward(
        ctx: Any, attention: Tensor, convolution: Tensor, dense: Tensor, x: Tensor, pairs: bool,
        folds: bool,
    ) -> Tensor:  # fmt: skip
        from .triton_kernels import mix_kernel, pair_logits_kernel

        launches = LAUNCHES[pairs]
        networks, batch, nodes, channels = x.shape
        heads, filters, classes = attention.shape[1], convolution.shape[-1], dense.shape[1]
        attention, x = attention.contiguous(), x.contiguous()
        rows, columns = heads * nodes, batch * channels

        of_z = _most(x) * attention.abs().sum(-1).flatten(1).amax(1)
        sizes = convolution.abs()
        of_hidden = of_z * sizes.sum(2).flatten(1).amax(1)
        scales = scale_below(torch.stack([of_z, _most(sizes), of_hidden, _most(dense)]))
        for_z, for_w, for_hidden, for_d = scales  # (networks,) each

        z = _empty(pairs, (networks, rows, columns), x)
        launch = launches.mix
        mix_kernel[(-(-columns // launch.columns), networks)](
            attention, x, for_z.contiguous(), *z, rows, nodes, columns, C=channels,
            NODES=power(nodes), PAIRS=pairs, PRECISION=_precision(pairs), **launch.options,
        )  # fmt: skip
        w = _halves(convolution, for_w, pairs)
        d = _halves(dense, for_d, pairs)
        factors = torch.stack([for_hidden / (for_z * for_w), 1 / (for_hidden * for_d)], dim=1)
        splits = -(-heads // _halves_HEADS)
        parts = x.new_empty(networks, splits, batch, power(classes))
        launch = launches.logits
        if pairs and channels * filters > 96 * 128:  # the next tile does not fit beside it
            launch = replace(launch, stages=1)
        pair_logits_kernel[(networks, -(-batch // launch.rows), splits)](
            *z, *w, *d, factors, parts, heads, nodes, batch, classes, _halves_HEADS, C=channels,
            F=filters, P=power(classes), **two_parts(channels), PAIRS=pairs, FOLDS=folds,
            **launch.options,
        )  # fmt: skip
        of_w = sizes.sum(3).flatten(1).amax(1)  # of what one channel sums over its filters
        ctx.save_for_backward(x, scales, of_w, _most(dense), *z, *w, *d)
        ctx.sizes = (networks, heads, nodes, batch, channels, filters, classes)
        ctx.pairs, ctx.folds = pairs, folds
        return parts.sum(1)[..., :classes]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from .triton_kernels import pair_attention_kernel, pair_gradients_kernel

        pairs, launches = ctx.pairs, LAUNCHES[ctx.pairs]
        x, scales, of_w, of_d, *halves = ctx.saved_tensors
        for_z, for_w, for_hidden, for_d = scales
        networks, heads, nodes, batch, channels, filters, classes = ctx.sizes
        rows, columns = heads * nodes, batch * channels

        of_back = gradient.abs().sum(2).amax(1) * of_d
        bounds = torch.stack([_most(gradient), of_back, of_back * of_w])
        for_g, for_back, for_dz = scale_below(bounds)
        if pairs:  # written as float32, which needs no scale
            for_dz = torch.ones_like(for_dz)
        factors = torch.stack(
            [for_hidden / (for_z * for_w), for_back / (for_g * for_d), 1 / (for_hidden * for_g),
             1 / (for_z * for_back), for_dz / (for_back * for_w)], dim=1,
        )  # fmt: skip
        g = _halves(F.pad(gradient, (0, power(classes) - classes)), for_g, pairs)
        groups = min(_halves_GROUPS, nodes)
        kind = torch.float32 if pairs else torch.float16
        dz = torch.empty(networks, rows, columns, dtype=kind, device=x.device)
        dw = x.new_empty(networks, heads, groups, filters, channels)
        dd = x.new_empty(networks, classes, rows * filters)
        launch = launches.gradients
        pair_gradients_kernel[(networks, heads, groups)](
            *halves, *g, factors, dz, dw, dd, heads, nodes, batch, classes, -(-nodes // groups),
            C=channels, F=filters, P=power(classes), **two_parts(channels), PAIRS=pairs,
            FOLDS=ctx.folds, **launch.options,
        )  # fmt: skip
        launch = launches.attention
        span = -(-columns // (_halves_SPLITS * launch.columns)) * launch.columns
        da = x.new_empty(networks, _halves_SPLITS, rows, power(nodes))
        pair_attention_kernel[(networks, -(-rows // launch.rows), _halves_SPLITS)](
            dz, x, da, rows, nodes, columns, span, C=channels, NODES=power(nodes),
            PRECISION=_precision(pairs), **launch.options,
        )  # fmt: skip
        da = (da.sum(1)[..., :nodes] / for_dz[:, None, None]).reshape(-1, heads, nodes, nodes)
        return da, dw.sum(2).transpose(2, 3), dd, None, None, None


def _most(values: Tensor) -> Tensor:
    """Return the largest absolute value of each network, (networks,), in one pass over memory."""
    most: Tensor = torch.linalg.vector_norm(values.flatten(1), ord=torch.inf, dim=1)
    return most


def _precision(pairs: bool) -> str:
    return "tf32x3" if pairs else "tf32"


def _empty(pairs: bool, shape: tuple[int, ...], like: Tensor) -> tuple[Tensor, Tensor]:
    """Return empty tensors for high and low halves; without pairs, they are the same."""
    high = torch.empty(shape, dtype=torch.float16, device=like.device)
    return high, torch.empty_like(high) if pairs else high


def _halves(values: Tensor, scales: Tensor, pairs: bool) -> tuple[Tensor, Tensor]:
    """Return the halves of values (networks, …) times scales (networks,)."""
    from .triton_kernels import split_kernel

    values, scales = values.contiguous(), scales.contiguous()
    both = _empty(pairs, values.shape, values)
    size = values[0].numel()
    split_kernel[(-(-size // 1024), len(values))](
        values, scales, *both, size, PAIRS=pairs, SIZE=1024
    )
    return both


_MEMORY = 200 << 10  # bytes that a program's tiles may take: what an H100 has, and an A100 not
_OPTIN = "shared_memory_per_block_optin"


def fast_logits(
    attention: Tensor, convolution: Tensor, dense: Tensor, x: Tensor, activation: str
) -> Tensor | None:
    """Return the logits of one-block GCNs without biases, (N, B, classes); None without a kernel.

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
    """Return the present precision of products: "bf16", "fp32" or "tf32"; None for others.

    It is "bf16" under autocast. For float32, ``torch.set_float32_matmul_precision`` decides.

    >>> precision_of(torch.zeros(1)), precision_of(torch.zeros(1, dtype=torch.float64))
    ('fp32', None)
    """
    if torch.is_autocast_enabled("cuda"):
        return "bf16" if torch.get_autocast_dtype("cuda") == torch.bfloat16 else None
    if any(tensor.dtype != torch.float32 for tensor in tensors):
        return None
    return "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def usable(attention: Tensor, convolution: Tensor, classes: int) -> bool:
    """Return whether the kernels can run these sizes on this GPU."""
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
    """Return whether one step of these sizes works; other GPUs or Triton versions may fail."""
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
    except torch.OutOfMemoryError:  # not an error of the kernels
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
