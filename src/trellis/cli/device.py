"""Where to train, and how exactly."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import torch
import tyro

from trellis.cli.memory import keep_freed
from trellis.errors import TrellisError

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
    arg(help="How exactly to multiply: tf32 and bf16 are faster on a GPU that knows them."),
]


def chosen_device(name: str, precision: str) -> torch.device:
    """The device of that name, made ready to train on, once it is seen to do what is asked.

    ``auto`` is a GPU if there is one. Only a GPU gains by multiplying less exactly.

    >>> chosen_device("cpu", "fp32")
    device(type='cpu')
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", name, re.ASCII):
        raise TrellisError(f"--device {name!r}: give auto, cpu, cuda, or cuda:N")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device("cpu") if name == "cpu" else _gpu(name)
    if device.type == "cpu" and precision != "fp32":
        raise TrellisError(f"--precision {precision} is for a GPU: leave it out on a CPU")
    if precision == "bf16" and torch.cuda.get_device_capability(device) < (8, 0):
        raise TrellisError(
            f"--precision bf16: {torch.cuda.get_device_name(device)} does not know it (compute "
            "capability 8.0 and up do); use fp32"
        )
    if device.type == "cpu":
        keep_freed()
    return device


def _gpu(name: str) -> torch.device:
    if not torch.cuda.is_available():
        raise TrellisError(f"--device {name!r}: there is no CUDA device here; use cpu")
    index = name.partition(":")[2]
    count = torch.cuda.device_count()
    if index and int(index) >= count:
        raise TrellisError(f"--device {name!r}: there are {count} of them, from cuda:0")
    try:
        device = torch.device("cuda", int(index) if index else torch.cuda.current_device())
        torch.cuda.set_device(device)  # captured graphs and kernels run on the current one
        torch.zeros(1, device=device)
    except RuntimeError as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TrellisError(f"--device {name!r} cannot be used: {reason:.200}") from None
    return device
