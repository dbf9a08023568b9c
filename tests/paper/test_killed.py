"""Killed at random moments, a run ends with the table of one that was not."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import trellis
from tests.paper.waves import waves

ROOT = Path(trellis.__file__).parents[2]
KILLS = 5
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}


def same(one: Path, other: Path) -> None:
    """Settings, tables in every form, and dense networks."""
    names = [path.relative_to(one) for path in (*one.glob("table.*"), *one.glob("dense/*"))]
    assert {path.suffix for path in names} == {".txt", ".md", ".csv", ".tex", ".safetensors"}
    for name in (*names, Path("settings.json")):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_a_killed_run_ends_with_the_same_table(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.paper.killed", str(tmp_path), str(seed), str(KILLS)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"seed {seed}: {ran.stderr}"
    same(tmp_path / "whole", tmp_path / ran.stdout.strip())


WORDS = (
    "reproduce", "table2", "--data", "npz:waves.npz", "--seeds", "1", "--device", "cpu",
    "--epochs", "2", "--tune-epochs", "2", "--rates", "90", "--rows", "mp", "tc",
    "--chunks", "16", "--heads", "16", "--filters", "128",  # large enough for workers to pay
)  # fmt: skip


def begun(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "trellis", *WORDS, *words],
        cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def finished(command: subprocess.Popen[str]) -> None:
    out, _ = command.communicate()
    assert command.returncode == 0, out


def parent(process: Path) -> int | None:
    """Of a process that runs, by its folder in /proc; None if it has ended."""
    told = said(process, "stat").rpartition(b")")[2].split()[:2]
    return None if not told or told[0] == b"Z" else int(told[1])


def said(process: Path, what: str) -> bytes:
    try:
        return (process / what).read_bytes()
    except OSError:  # it has ended
        return b""


def workers(command: int) -> list[Path]:
    """Those of its children that prune."""
    children = [each for each in Path("/proc").glob("[0-9]*") if parent(each) == command]
    return [each for each in children if b"spawn_main" in said(each, "cmdline")]


def killed_with_workers(folder: Path, out: str, after: float) -> bool:
    """Whether the command was killed while others worked for it; not if it was quicker."""
    command = begun(folder, "--workers", "2", "--out", out)
    while not (found := workers(command.pid)) and command.poll() is None:
        time.sleep(0.01)
    time.sleep(after)
    command.kill()
    printed, _ = command.communicate(timeout=60)
    assert command.returncode in (0, -signal.SIGKILL), printed
    deadline = time.monotonic() + 20
    while any(parent(each) for each in found):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return command.returncode != 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_a_command_killed_with_its_workers_goes_on(tmp_path: Path) -> None:
    data = waves()
    lengths = [len(sequence) for sequence in data.sequences]
    np.savez(
        tmp_path / "waves.npz", frames=np.concatenate(data.sequences), lengths=lengths,
        labels=data.labels,
    )  # fmt: skip
    finished(begun(tmp_path, "--workers", "1", "--out", "whole"))
    chance = random.SystemRandom()
    tries = (f"killed {attempt}" for attempt in range(5))
    out = next(name for name in tries if killed_with_workers(tmp_path, name, 2 * chance.random()))
    finished(begun(tmp_path, "--workers", "2", "--out", out))
    same(tmp_path / "whole", tmp_path / out)
