"""Run by a test: make a table once, then once more while being killed at random moments.

A run that comes to its end between the kills shows nothing: another is begun, in a fresh folder.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from tests.paper.waves import small, waves
from trellis.paper import reproduce


def one(out: Path) -> None:
    reproduce(small(stack=2, rows=("mp", "tc")), waves(), out)


def child(out: Path) -> int:
    """A process that makes the table; forked, so that it need not import everything anew."""
    pid = os.fork()
    if pid == 0:
        one(out)
        os._exit(0)
    return pid


def main(folder: Path, seed: int, kills: int) -> None:
    torch.set_num_threads(1)
    began = time.monotonic()
    assert os.waitpid(child(folder / "whole"), 0)[1] == 0
    took = time.monotonic() - began
    chance = random.Random(seed)
    for attempt in range(20):
        out = folder / f"killed {attempt}"
        if all(cut_short(out, took * chance.random() ** 2 / 2) for _ in range(kills)):
            assert os.waitpid(child(out), 0)[1] == 0
            print(out.name)
            return
    raise AssertionError(f"20 runs ended before they were killed {kills} times")


def cut_short(out: Path, after: float) -> bool:
    """Begin or go on, and be killed; not if it was quicker. The first moments matter most: a start
    must survive being cut short as well."""
    pid = child(out)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL), f"it failed: {status}"
    return status != 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
