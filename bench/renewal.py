"""What renewing the masks costs: `python bench/renewal.py --device cpu`.

The paper's GCN (2.1 million weights) is trained at batch 600 and pruned gradually to 99.95 %.
Steps and renewals alternate in one run, so that a slow minute slows both. Prints, for every
renewal, its time and that of a training step beside it, and the ratio of the medians; exits with
1 if a renewal takes longer than two steps on the CPU, or ten on a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from trellis import Pruner, Schedule
from trellis.skeleton import GCN

GOAL = {"cpu": 2.0, "cuda": 10.0}  # training steps
RENEWALS = 12


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(device: str, batch: int, regrow: float) -> list[tuple[int, float, float]]:
    """For each renewal: connections kept, seconds of it, seconds of the step before it."""
    torch.manual_seed(0)
    model = GCN().to(device)
    x, y = torch.randn(batch, 21, 96, device=device), torch.arange(batch, device=device) % 45
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = Schedule("geometric", end=2 * RENEWALS, every=2)
    pruner = Pruner(model, x[:1], sparsity=0.9995, schedule=schedule, regrow=regrow)
    found = []
    while not pruner.done:
        begin = now(device)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        middle = now(device)
        renewal = pruner.step()
        end = now(device)
        if renewal is not None:
            found.append((renewal.kept, end - middle, middle - begin))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=GOAL, default="cpu")
    parser.add_argument("--batch", type=int, default=600)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    worst = 0.0
    for regrow in (0.0, 0.3):
        rows = measure(options.device, options.batch, regrow)
        for kept, renewal, step in rows:
            print(f"{kept:>11,} kept  renewal {renewal * 1e3:8.1f} ms  step {step * 1e3:8.1f} ms")
        renewals, steps = ([row[place] for row in rows] for place in (1, 2))
        ratio = statistics.median(renewals) / statistics.median(steps)
        worst = max(worst, ratio)
        print(
            f"regrow {regrow:g}, {options.device}, batch {options.batch}, {options.threads} "
            f"threads: a renewal costs {ratio:.2f} training steps (the slowest "
            f"{max(renewals) / statistics.median(steps):.2f})"
        )
    return int(worst > GOAL[options.device])


if __name__ == "__main__":
    sys.exit(main())
