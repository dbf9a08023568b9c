"""Where to train, and how exactly."""

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
    """Let this process keep what it frees, where its C library knows how (glibc); whether it does.

    A step of training frees tens of megabytes that the next asks for again. Given back to the
    system in between, every page of them is cleared anew, which takes a fifth of the time on a
    CPU for one network, and half of it for four side by side.
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
        help="Where to train; auto takes a GPU if there is one. cuda:1 is the second GPU.",
    ),
]
Precision = Annotated[
    Literal["fp32", "tf32", "bf16"],
    arg(
        help="How exactly to multiply: tf32 and bf16 are faster on a GPU that knows them, bf16 "
        "on a CPU with AVX512_BF16 or AMX, too.",
    ),
]

_BF16 = "_is_avx512_bf16_supported", "_is_amx_tile_supported"  # public names are newer


def chosen_device(name: str, precision: str) -> torch.device:
    """The device of that name, made ready to train on, once it is seen to do what is asked.

    ``auto`` is a GPU if there is one.

    >>> chosen_device("cpu", "fp32")
    device(type='cpu')
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", name, re.ASCII):
        raise TrellisError(f"--device {name!r}: give auto, cpu, cuda, or cuda:N")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device("cpu") if name == "cpu" else _gpu(name)
    if device.type == "cpu" and precision == "tf32":
        raise TrellisError("--precision tf32 is for a GPU: on a CPU take fp32 or bf16")
    if precision == "bf16" and not knows_bf16(device):
        unable = "this CPU does not know it (those with AVX512_BF16 or AMX"
        if device.type == "cuda":
            name = torch.cuda.get_device_name(device)
            unable = f"{name} does not know it (compute capability 8.0 and up"
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
