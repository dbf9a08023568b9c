"""How long things take: interleaved, several times, from a fresh state each time.

>>> samples = interleaved({"nothing": lambda: lambda: None}, repeats=3)
>>> len(samples["nothing"])
3
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

Work = Callable[[], object]
# Prepared outside the clock, then run under it: a model that a repeat changes is made afresh.
Task = Callable[[], Work]


def seconds(work: Work) -> float:
    """Wall-clock seconds of one call; what earlier calls left behind is collected first."""
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(tasks: Mapping[str, Task], repeats: int) -> dict[str, list[float]]:
    """Seconds of every task, `repeats` times, going round: a slow minute slows all of them."""
    samples: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, prepare in tasks.items():
            samples[name].append(seconds(prepare()))
    return samples


def cold(network: str, contender: str, threads: int, repeats: int) -> list[float]:
    """Seconds of the first call in a new interpreter, imports and the model's making aside."""
    script = Path(__file__).with_name("cold.py")
    command = [sys.executable, str(script), network, contender, str(threads)]
    found = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
        found.append(float(done.stdout.splitlines()[-1]))
    return found
