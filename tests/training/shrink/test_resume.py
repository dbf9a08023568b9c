"""A run that is killed and continued ends with the same bits as one that is not."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import trellis
from trellis import TrellisError

from .tasks import Noisy, net, same, shrunk


class Stopped(Exception):
    pass


class Stopping(Noisy):
    """Stops before a number of batches in all."""

    left = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            self.left -= 1
            if self.left == 0:
                raise Stopped
            yield batch


def momentum(groups: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=0.05, momentum=0.9)


def one_cycle(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps)


WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "waypoint": {"keep": 5, "cover_outputs": False, "steps": 40},
    "scheduler": {"optimizer": momentum, "scheduler": one_cycle, "clip": 0.5},
    "distilled": {"distill": 0.5},
    "bf16": {"precision": "bf16", "regrow": 0.2},
    "trained": {"trained": True},
    "int8": {"quantize": "int8", "distill": 0.5},
    "search": {"at_least": 0.6, "steps": 16},
    "nested": {"keep": (120, 60, 20), "steps": 40, "distill": 0.3},
    "nested, scheduler": {
        "keep": (120, 60), "optimizer": momentum, "scheduler": one_cycle, "steps": 40,
    },
    "nested, int8": {"keep": (120, 60), "steps": 40, "quantize": "int8"},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_stopped_anywhere_it_ends_the_same(way: str, tmp_path: Path) -> None:
    options = dict(WAYS[way])
    if way == "search":
        options["validation"] = list(Noisy())
    whole = net()
    expected = shrunk(whole, **options)
    dice = random.Random(way)
    folder = tmp_path / "run"
    stops = 0
    for attempt in range(100):
        loader = Stopping()
        loader.left = dice.randint(10, 30)  # the first ones are for the checks
        # An untrained model may begin elsewhere: its weights are in the checkpoint.
        model = net(0 if way in ("trained", "search") or attempt == 0 else attempt)
        try:
            found = shrunk(model, loader, out=folder, checkpoint_every=0.0, **options)
            break
        except Stopped:
            stops += 1
    assert stops > 0
    same(model, whole)
    assert found.history == expected.history
    assert found.masks == expected.masks and found.masks.budget == expected.masks.budget
    if found.nested is not None and expected.nested is not None:
        one, other = found.nested.tensors(), expected.nested.tensors()
        assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert not list(folder.glob(".*"))  # no checkpoint, lock or temporary file is left


PROGRAM = """
import sys
from tests.training.shrink.tasks import net, shrunk
shrunk(net(), out=sys.argv[1], checkpoint_every=0.0, steps=60)
"""


def test_killed_by_the_system_it_ends_the_same(tmp_path: Path) -> None:
    dice = random.Random(5)
    whole = net()
    expected = shrunk(whole, steps=60)
    folder = tmp_path / "run"
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(Path(trellis.__file__).parents[1]), str(root)])
    killed = 0
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
            env=os.environ | {"PYTHONPATH": paths},
            cwd=root,
        )
        while process.poll() is None and not list(folder.glob(".checkpoint.safetensors")):
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    assert killed
    model = net(7)
    found = shrunk(model, out=folder, steps=60)
    same(model, whole)
    assert found.history == expected.history


def test_a_finished_run_is_returned_without_training(tmp_path: Path) -> None:
    first = net()
    expected = shrunk(first, out=tmp_path / "run", validation=list(Noisy()))
    again = net(3)
    options: dict[str, Any] = {"out": tmp_path / "run", "validation": list(Noisy())}
    loader = Stopping()
    loader.left = 13  # more than the checks read
    found = shrunk(again, loader, **options)
    same(first, again)
    assert found.history == expected.history and found.score == expected.score
    assert found.masks == expected.masks and found.audit.live_fraction == 1
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"keep": 40}, {"steps": 31}, {"distill": 0.1}, {"quantize": "int8"}]
)
def test_another_request_in_the_folder_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    shrunk(net(), out=tmp_path)
    with pytest.raises(TrellisError, match=r"was .* and is"):
        shrunk(net(), out=tmp_path, **options)
    loader = Stopping()
    loader.left = 20
    with pytest.raises(Stopped):
        shrunk(net(), loader, out=tmp_path / "stopped", checkpoint_every=0.0)
    with pytest.raises(TrellisError, match=r"was .* and is"):
        shrunk(net(), out=tmp_path / "stopped", **options)
