"""Our own run-time as contenders: inside a C driver, and called from Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import trellis
from trellis.deploy.native_library import SOURCES

Floats = NDArray[np.float32]
SOURCE = Path(str(files("trellis.deploy.c").joinpath("source")))


def driver(folder: Path) -> Path:
    """The timing program, built with the flags of the run-time's own library."""
    return _built(folder / "driver", "infer_driver.c", [str(SOURCE / name) for name in SOURCES])


def _built(target: Path, main: str, parts: Sequence[str] = ()) -> Path:
    flags = ["-std=gnu99", "-O3", "-march=native", f"-I{SOURCE}"]
    source = str(Path(__file__).with_name(main))
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, *flags, "-o", str(target), source, *parts, "-lm"], check=True)
    return target


@dataclass(frozen=True)
class Limits:
    """What this processor can do at best, in seconds."""

    multiply_add: float
    reading: dict[int, float]  # by count of bytes


def limits(folder: Path, sizes: Sequence[int]) -> Limits:
    """Time multiply-adds with every lane in use, and reads of these sizes from the first cache."""
    command = [str(_built(folder / "limits", "infer_limits.c")), *map(str, sizes)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    times = [float(one) for one in found]
    reading = dict(zip(sizes, (1e-6 * one for one in times[1:]), strict=True))
    return Limits(1e-9 * times[0], reading)


class Driven:
    """A driver that waits for its turn; a turn gives the least seconds of some calls."""

    def __init__(self, program: Path, model: Path, inputs: Floats, batch: int, calls: int) -> None:
        turns, self._turn = os.pipe()
        given = model.with_suffix(f".{batch}.inputs")
        inputs.tofile(given)
        with given.open("rb") as data:
            self._process = subprocess.Popen(
                [str(program), str(model), str(batch), str(calls), str(turns)],
                stdin=data, stdout=subprocess.PIPE, text=True, pass_fds=(turns,),
            )  # fmt: skip
        os.close(turns)

    def __call__(self) -> float:
        os.write(self._turn, b"x")
        assert self._process.stdout is not None
        return float(self._process.stdout.readline()) * 1e-6

    def close(self) -> None:
        os.close(self._turn)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def called(model: Path) -> Callable[[Floats], object]:
    """`trellis.Runtime`, Python's part of the call included."""
    runtime = trellis.Runtime(model)
    return runtime.predict
