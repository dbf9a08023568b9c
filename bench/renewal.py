"""What renewing the masks costs: `python bench/renewal.py --device cpu`.

The paper's GCN (2.1 million weights) is trained at batch 600 and pruned gradually to 99.95 %.
Steps and renewals alternate in one run, so that a slow minute slows both. Prints, for every
renewal, its time, that of a training step beside it, and how many operations torch is asked for
(on a GPU: launches, and questions whose answer is waited for), then medians and their ratio; exits
with 1 if a renewal takes longer than two steps on the CPU, or ten on a GPU. The operations are
counted in a second run, which takes the same steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the counter is that of the tests

from tests.paths.launches import Launches
from trellis import Pruner, Schedule
from trellis.skeleton import GCN

GOAL = {"cpu": 2.0, "cuda": 10.0}  # training steps
RENEWALS = 12


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def train(device: str, batch: int, regrow: float, *, count: bool) -> list[dict[str, Any]]:
    """A row for each renewal: what it kept, its seconds and those of the step before it, and, if
    ``count``, its operations (then its seconds mean nothing)."""
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
        with Launches() if count else nullcontext() as launches:
            renewal = pruner.step()
        end = now(device)
        if renewal is not None:
            row: dict[str, Any] = {"kept": renewal.kept}
            row |= {"renewal_seconds": end - middle, "step_seconds": middle - begin}
            if launches is not None:
                row |= {"operations": launches.steps.total(), "waits": launches.questions.total()}
            found.append(row)
    return found


def measure(device: str, batch: int, regrow: float) -> dict[str, Any]:
    """Medians, the ratio that counts, and all renewals."""
    rows = train(device, batch, regrow, count=False)
    for row, counted in zip(rows, train(device, batch, regrow, count=True), strict=True):
        row |= {"operations": counted["operations"], "waits": counted["waits"]}
    middle = {
        key: statistics.median(row[key] for row in rows)
        for key in ("renewal_seconds", "step_seconds", "operations", "waits")
    }
    ratio = middle["renewal_seconds"] / middle["step_seconds"]
    slowest = max(row["renewal_seconds"] for row in rows) / middle["step_seconds"]
    return {"regrow": regrow, "ratio": ratio, "slowest": slowest, "median": middle, "rows": rows}


def show(found: dict[str, Any], setting: str) -> None:
    for row in found["rows"]:
        print(
            f"{row['kept']:>11,} kept  renewal {row['renewal_seconds'] * 1e3:8.1f} ms  "
            f"step {row['step_seconds'] * 1e3:8.1f} ms  {row['operations']:5,} operations, "
            f"{row['waits']:3} of them waited for"
        )
    middle = found["median"]
    print(
        f"regrow {found['regrow']:g}, {setting}: renewal {middle['renewal_seconds'] * 1e3:.1f} ms, "
        f"step {middle['step_seconds'] * 1e3:.2f} ms, {middle['operations']:g} operations; "
        f"a renewal costs {found['ratio']:.2f} training steps (the slowest {found['slowest']:.2f})",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=GOAL, default="cpu")
    parser.add_argument("--batch", type=int, default=600)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="folder for renewal.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device, batch = options.device, options.batch
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    found = []
    for regrow in (0.0, 0.3):
        found.append(measure(device, batch, regrow))
        show(found[-1], f"{name}, batch {batch}, {options.threads} threads")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        facts = {"device": name, "batch": batch, "threads": options.threads}
        facts |= {"torch": torch.__version__, "goal": GOAL[device], "runs": found}
        text = json.dumps(facts, indent=1) + "\n"
        (options.out / "renewal.json").write_text(text, encoding="utf-8")
    return int(max(run["ratio"] for run in found) > GOAL[device])


if __name__ == "__main__":
    sys.exit(main())
