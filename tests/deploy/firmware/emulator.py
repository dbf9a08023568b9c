"""Exported C as firmware for a Cortex-M4F, run under qemu by the example's own Makefile."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import trellis
from tests.deploy.tools import tool

EXAMPLE = Path(trellis.__file__).parents[2] / "examples" / "firmware"
WARNINGS = "-Wall -Wextra -Wconversion -Wshadow -Wdouble-promotion -Werror"


@dataclass(frozen=True, eq=False)
class Ran:
    """What came out, and what it took."""

    outputs: NDArray[np.float32]  # (samples, outputs)
    flash: int  # bytes of text and data
    ram: int  # bytes of data and bss: scratch memory is part of it, the stack is not
    instructions: int  # an inference


def emulated(folder: Path, x: NDArray[np.float32], flags: str = "-O2") -> Ran:
    """Build and run a folder of exported C on inputs (samples, …)."""
    (folder / "inputs").write_bytes(x.astype("<f4").tobytes())
    told, (text, data, bss) = _made(folder, flags)
    assert int(told["inferences"]) == len(x)
    outputs = np.frombuffer((folder / "outputs").read_bytes(), "<f4").reshape(len(x), -1)
    return Ran(outputs, text + data, data + bss, int(told["instructions"]))


def emulated_recording(
    folder: Path, frames: NDArray[np.float32], flags: str = "-O2"
) -> tuple[NDArray[np.float32], int]:
    """Outputs for a recording, and the instructions that making an input of it takes."""
    (folder / "recording").write_bytes(frames.astype("<f4").tobytes())
    told, _ = _made(folder, flags)
    assert int(told["frames"]) == len(frames)
    outputs = np.frombuffer((folder / "outputs").read_bytes(), "<f4")
    return outputs, int(told["preparation"])


def _made(folder: Path, flags: str) -> tuple[dict[str, str], tuple[int, int, int]]:
    """What the firmware said, and the sizes of its text, data and bss."""
    if not EXAMPLE.is_dir():
        pytest.skip("the firmware example is not part of an installed package")
    make = tool("make")
    tool("arm-none-eabi-gcc", package="gcc-arm-none-eabi libnewlib-arm-none-eabi")
    tool("qemu-system-arm")
    # Vectors of addresses and memory-mapped timers are not for -Wpedantic.
    options = f"CFLAGS=-std=gnu99 {flags} -ffunction-sections -fdata-sections {WARNINGS}"
    command = [make, "-s", "-B", "-C", str(EXAMPLE), "run", f"MODEL={folder}", options]
    # What another make was told (CC, say) is not meant for this one.
    own = {name: word for name, word in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=240, env=own
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    # What firmware says, qemu writes to its standard error.
    told = dict(line.split() for line in done.stderr.splitlines() if len(line.split()) == 2)
    text, data, bss = map(int, done.stdout.splitlines()[1].split()[:3])
    return told, (text, data, bss)
