"""Versions, hardware and duration of a training, for histories and tables."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy
import torch

from ..version import __version__


def versions() -> dict[str, str]:
    """Return the versions of the programs that results depend on."""
    return {
        "trellis": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def hardware(device: torch.device) -> str:
    """Return the name of a device."""
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


def in_words(seconds: float) -> str:
    """Return a duration in words.

    >>> in_words(0.4), in_words(1), in_words(40), in_words(600), in_words(9000)
    ('less than a second', '1 second', '40 seconds', '10 minutes', '2.5 hours')
    """
    if seconds < 0.5:
        return "less than a second"
    if seconds < 100:
        return f"{seconds:.0f} second{'s' * (seconds >= 1.5)}"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"
