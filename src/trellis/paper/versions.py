"""What a run was made with."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy
import torch


def versions() -> dict[str, str]:
    """Of the programs whose rounding, random numbers and algorithms decide the figures."""
    from .. import __version__  # not above: this package is part of that one

    return {
        "trellis": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def hardware(device: torch.device) -> str:
    """The name of the device, as its maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    name = names[0] if names else platform.processor() or platform.machine() or "unknown"
    threads = torch.get_num_threads()
    return f"CPU {name}, {threads} thread{'s' * (threads > 1)}"
