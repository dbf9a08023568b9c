"""Pruning in several processes: the same selections, and nobody left behind."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest

import trellis
from trellis.files import write_tensors
from trellis.paper import pruning as workers
from trellis.paper.plan import Architecture, Row
from trellis.paper.pruning import Job, Selection
from trellis.paper.settings import METHODS
from trellis.training import stack

SMALL = Architecture(nodes=4, channels=6, classes=3, heads=2, filters=5)
SOURCE = Path(trellis.__file__).parents[1]


def jobs(folder: Path) -> list[Job]:
    path = folder / "dense.safetensors"
    write_tensors(path, stack([SMALL.build(seed) for seed in range(2)]))
    keys = ("mp", "tc", "tc-stochastic", "mp-tc-budgets")
    return [Job(path, s, Row(f"{k}@80", 80.0, METHODS[k]), s) for k in keys for s in range(2)]


def plain(selection: Selection) -> tuple[dict[str, object], dict[str, bytes]]:
    return selection.figures, {name: bits.tobytes() for name, bits in selection.bits.items()}


def compare_and_wait(folder: Path) -> None:
    """Run by the test in a process of its own, which it then kills."""
    todo = jobs(folder)
    with workers.pruning(SMALL, 1) as begin:
        here = begin(todo)()
    workers._WORTH = 0
    with workers.pruning(SMALL, 2) as begin:
        there = [begin([job])()[0] for job in todo]  # one by one: one process is enough
        assert list(map(plain, here)) == list(map(plain, there))
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        time.sleep(60)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_processes_select_what_one_does_and_end_when_their_parent_is_killed(
    tmp_path: Path,
) -> None:
    code = f"from tests.paper.test_workers import *; compare_and_wait(Path({str(tmp_path)!r}))"
    (tmp_path / "main.py").write_text(f"if __name__ == '__main__':\n    {code}\n")
    here = tmp_path / "here"
    here.mkdir()
    if sys.version_info >= (3, 11):  # nor is any code of the current folder run
        (here / "multiprocessing.py").write_text("open('ran', 'w')\n")
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=here,
        env={"PYTHONPATH": f"{SOURCE}:{SOURCE.parent}", "OMP_NUM_THREADS": "1"},
    )
    with parent:
        assert parent.stdout is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        parent.kill()
    assert children and not (here / "ran").exists()
    deadline = time.monotonic() + 20
    while any(_runs(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
