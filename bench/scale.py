"""How `viterbi` grows from 1 M to 1 B weights: `python bench/scale.py --out scale.json`.

Times `trellis.prune` at 99 % on a traced stack, on CUDA where there is one, and the memory it
takes on top of the weights. Needs torch and the package alone (`PYTHONPATH=src` will do).
`--short` goes to 100 M, once: under a minute on a GPU. `--out` is a file, or a folder for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from models import connections
from stacks import STACKS

import trellis

SPARSITY = 0.99


def now(device: torch.device) -> float:
    """The clock in seconds, once the device's queue is drained."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Memory:
    """Bytes in use and at the peak since `reset`: the allocator's on CUDA, else the process's.

    On the CPU this reads Linux's /proc; where there is none, the peak is None.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def reset(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        elif Path("/proc/self/clear_refs").exists():
            Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        self.before = self._now("VmRSS", torch.cuda.memory_allocated)

    def extra(self) -> int | None:
        """The peak since `reset`, above what was in use then."""
        peak = self._now("VmHWM", torch.cuda.max_memory_allocated)
        return None if peak is None or self.before is None else peak - self.before

    def _now(self, field: str, allocator: Callable[[torch.device], int]) -> int | None:
        if self.device.type == "cuda":
            return allocator(self.device)
        status = Path("/proc/self/status")
        if not status.exists():
            return None
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024


@dataclass(frozen=True)
class Sample:
    """One stack, made, traced and pruned once."""

    weights: int
    weight_bytes: int
    kept: int
    trace_seconds: float
    prune_seconds: float
    extra_bytes: int | None


def sample(stack: str, weights: int, device: torch.device) -> Sample:
    """Trace and prune a fresh stack; what the trellis itself holds counts as extra memory too."""
    torch.manual_seed(0)
    with device:
        model, inputs = STACKS[stack](weights)
    model.eval()
    total = sum(weight.numel() for weight in connections(model).values())
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    memory = Memory(device)
    memory.reset()
    start = now(device)
    net = trellis.trace(model, inputs)
    traced = now(device)
    masks = trellis.prune(net, sparsity=SPARSITY)
    pruned = now(device)
    extra = memory.extra()
    return Sample(
        weights=total,
        weight_bytes=size,
        kept=masks.kept,
        trace_seconds=traced - start,
        prune_seconds=pruned - traced,
        extra_bytes=extra,
    )


def measure(stack: str, weights: int, device: torch.device, repeats: int) -> dict[str, Any]:
    """Medians over fresh stacks of one size, and the largest extra memory seen."""
    # What a process takes once, whatever it prunes (CUDA's start, cuBLAS's workspace of 32 MB on a
    # large GPU, modules that load when first used), is taken by a stack that is not counted.
    sample(stack, 100_000, device)
    samples = [sample(stack, weights, device) for _ in range(repeats)]
    first = samples[0]
    extras = [one.extra_bytes for one in samples if one.extra_bytes is not None]
    seconds = median(one.prune_seconds for one in samples)
    return {
        "stack": stack,
        "weights": first.weights,
        "nanoseconds_per_weight": 1e9 * seconds / first.weights,
        "extra_over_weights": max(extras) / first.weight_bytes if extras else None,
        "samples": [dataclasses.asdict(one) for one in samples],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results/scale.json"))
    parser.add_argument("--stacks", nargs="+", choices=STACKS, default=list(STACKS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--weights", nargs="+", type=float, default=[1e6, 1e7, 1e8, 1e9])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="fewer sizes, one repeat")
    asked = parser.parse_args()
    if asked.short:
        asked.weights, asked.repeats = [1e6, 1e7, 1e8], 1
    out: Path = asked.out if asked.out.suffix == ".json" else asked.out / "scale.json"
    device = torch.device(asked.device)
    cuda = device.type == "cuda"
    found: dict[str, object] = {
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    rows: list[dict[str, Any]] = []
    found["rows"] = rows
    out.parent.mkdir(parents=True, exist_ok=True)
    for stack in asked.stacks:
        for weights in asked.weights:
            row = measure(stack, int(weights), device, asked.repeats)
            rows.append(row)
            print(
                f"{stack:12} {row['weights']:>13,} weights  "
                f"{row['nanoseconds_per_weight']:8.2f} ns each  "
                f"extra memory {row['extra_over_weights'] or float('nan'):5.2f} of the weights",
                flush=True,
            )
            # Written as it grows: what was measured survives a size that does not fit.
            out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
