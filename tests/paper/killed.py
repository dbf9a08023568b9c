"""Run by a test: make a table once, then once more while being killed at random moments."""

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
    killed = 0
    for _ in range(50):
        pid = child(folder / "killed")
        # The first moments matter most: a start must survive being cut short as well.
        time.sleep(took * chance.random() ** 2 / 2)
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        if not os.WIFSIGNALED(status):
            break
        killed += 1
        if killed >= kills:
            assert os.waitpid(child(folder / "killed"), 0)[1] == 0
            break
    print(killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
