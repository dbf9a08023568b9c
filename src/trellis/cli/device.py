"""The device and the precision of training."""

from __future__ import annotations

import ctypes
import re
from typing import Annotated, Literal

import torch
import tyro

from ..errors import TrellisError

# Memory that was freed, kept for the next step of training.


_TRIM, _MMAP = -1, -3  # of glibc's mallopt: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
_MOST = {_TRIM: (1 << 31) - 1, _MMAP: 1 << 30}  # bytes


def keep_freed() -> bool:
    """Let this process keep freed memory, and return whether its C library can (glibc).

    Each training step frees tens of megabytes that the next step needs again. If they went back to
    the system, it would clear every page anew. On a CPU this takes a fifth of the time for one
    network, and half of it for four trained together.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; Windows has no CDLL(None)
        return False
    return all(mallopt(option, most) == 1 for option, most in _MOST.items())


arg = tyro.conf.arg

Device = Annotated[
    str,
    arg(
        metavar="auto|cpu|cuda|cuda:N",
        help="Device to train on. auto: a GPU if there is one. cuda:1: the second GPU.",
    ),
]
Precision = Annotated[
    Literal["fp32", "tf32", "bf16"],
    arg(
        help="Precision of products. tf32 and bf16 are faster on GPUs that support them; bf16 also "
        "on CPUs with AVX512_BF16 or AMX.",
    ),
]

_BF16 = "_is_avx512_bf16_supported", "_is_amx_tile_supported"  # public names are newer


def chosen_device(name: str, precision: str) -> torch.device:
    """Return the device of that name, ready for training in that precision.

    ``auto`` is a GPU if there is one.

    >>> chosen_device("cpu", "fp32")
    device(type='cpu')
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", name, re.ASCII):
        raise TrellisError(f"--device {name!r}: expected auto, cpu, cuda or cuda:N")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device("cpu") if name == "cpu" else _gpu(name)
    if device.type == "cpu" and precision == "tf32":
        raise TrellisError("--precision tf32 needs a GPU: on a CPU use fp32 or bf16")
    if precision == "bf16" and not knows_bf16(device):
        unable = "this CPU does not support it (those with AVX512_BF16 or AMX"
        if device.type == "cuda":
            name = torch.cuda.get_device_name(device)
            unable = f"{name} does not support it (compute capability 8.0 and up"
        raise TrellisError(f"--precision bf16: {unable} do); use fp32")
    if device.type == "cpu":
        keep_freed()
    return device


def knows_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 natively. Emulation is many times slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    told = (getattr(torch.cpu, name, None) for name in _BF16)
    return any(ask() for ask in told if ask is not None)


def _gpu(name: str) -> torch.device:
    if not torch.cuda.is_available():
        raise TrellisError(f"--device {name!r}: there is no CUDA device here; use cpu")
    index = name.partition(":")[2]
    count = torch.cuda.device_count()
    if index and (len(index) > 9 or int(index) >= count):
        raise TrellisError(f"--device {name!r}: there are {count} of them, from cuda:0")
    try:
        device = torch.device("cuda", int(index) if index else torch.cuda.current_device())
        torch.cuda.set_device(device)  # captured graphs and kernels run on the current one
        torch.zeros(1, device=device)
    except RuntimeError as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TrellisError(f"--device {name!r} cannot be used: {reason:.200}") from None
    return device
