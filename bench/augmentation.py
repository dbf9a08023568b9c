"""Time of augmentation per network, beside noise alone and a whole training step.

`python bench/augmentation.py`, or with `--device cuda --networks 1 16 100`. The paper's GCN at
batch 600 on random recordings; the tasks take turns in one process, and the least time of each is
printed, in milliseconds per network. Every kind is switched on alone, then the defaults, then all
of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from train import data, networks, wait

from trellis.skeleton import GCN
from trellis.skeleton.data.augmentation import Augmentation, Augmenter
from trellis.skeleton.data.layouts import Layout
from trellis.training import Training, forward_of, recipe_named
from trellis.training.batches import Noise

JOINTS, CHUNKS = 21, 32
# Of no data set, so that a mirror can be switched on.
LAYOUT = Layout(
    "hands",
    tuple(f"joint {i}" for i in range(JOINTS)),
    (-1, *range(JOINTS - 1)),
    mirror=tuple(reversed(range(JOINTS))),
)
NOTHING = Augmentation(rotation=(0, 0, 0), scale=0, warp=0, crop=1, noise=0)
SETTINGS = {
    "rotation": replace(NOTHING, rotation=(20, 20, 20)),
    "warp": replace(NOTHING, warp=0.3),
    "mirror": replace(NOTHING, mirror=0.5),
    "defaults": Augmentation(),
    "everything": Augmentation(crop=0.8, mirror=0.5),
}
Task = Callable[[int], None]


def tasks(count: int, device: torch.device, batch: int, step: bool) -> dict[str, Task]:
    """Each takes the number of the step."""
    x, y = data(device.type, batch)
    out = torch.empty(count, *x.shape, device=device)
    makers: dict[str, Noise | Augmenter] = {"noise alone": Noise(range(count), 0.1, device)}
    for name, settings in SETTINGS.items():
        makers[name] = Augmenter(range(count), settings, LAYOUT, CHUNKS, device)

    def onto(maker: Noise | Augmenter) -> Task:
        return lambda step: maker.onto(out, x, step)

    found = {name: onto(maker) for name, maker in makers.items()}
    if step:
        training = Training(
            forward_of(GCN()), networks(count, device.type), x, y,
            recipe_named("default", noise=0.0), seeds=range(count),
        )  # fmt: skip
        found["training step, no noise"] = lambda step: training.epoch()
    return found


def milliseconds(
    count: int, device: torch.device, batch: int, rounds: int, calls: int, step: bool
) -> dict[str, float]:
    """Per network and call: the least over rounds, of the mean over calls."""
    least: dict[str, float] = {}
    taking_turns = tasks(count, device, batch, step)
    for turn in range(rounds + 1):  # the first is for warming up
        for name, task in taking_turns.items():
            wait(device.type)
            start = time.perf_counter()
            for call in range(calls):
                task(turn * calls + call)
            wait(device.type)
            took = (time.perf_counter() - start) * 1e3 / calls / count
            if turn:
                least[name] = min(took, least.get(name, took))
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--batch", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, help="in a round: 1 on the CPU, 100 elsewhere")
    parser.add_argument("--no-step", action="store_true", help="leave the training step out")
    parser.add_argument("--out", type=Path, help="a JSON file")
    asked = parser.parse_args()
    calls = asked.calls or (1 if asked.device == "cpu" else 100)
    rows = []
    for count in asked.networks:
        found = milliseconds(
            count, torch.device(asked.device), asked.batch, asked.rounds, calls, not asked.no_step
        )
        for name, took in found.items():
            rows.append({"networks": count, "task": name, "ms_per_network": took})
            print(f"{count:4d} networks  {name:26s} {took:9.4f} ms per network", flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
