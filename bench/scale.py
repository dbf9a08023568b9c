"""How `viterbi` grows from 1 M to 1 B weights: `python bench/scale.py --out scale.json`.

Times `trellis.prune` at 99 % on a traced stack, on CUDA where there is one, and the memory it
takes on top of the weights. Needs torch and the package alone (`PYTHONPATH=src` will do).
`--short` goes to 100 M, once: under a minute on a GPU. `--out` is a file, or a folder for it.

`--llama 1e9 3e9` times a decoder of random weights instead (transformers is needed, no network):
traced, pruned at 50 and at 90 %, audited, with the peak of memory at each step. `--ranks 1 2 4`
prunes a model that as many processes on the CPU have sharded, and tells the memory of each.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from models import connections
from stacks import STACKS, llama

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
            ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system
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
    masks = trellis.prune(net, sparsity=SPARSITY, method="viterbi")
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


def decoder(weights: int, device: torch.device, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Trace, prune and audit a decoder of random weights; a row for each sparsity."""
    rows = []
    model: Any
    for sparsity in (0.5, 0.9):
        torch.manual_seed(0)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with device:
                model, inputs = llama(weights)
        finally:
            torch.set_default_dtype(before)
        model.eval()
        size = sum(p.numel() * p.element_size() for p in model.parameters())
        row: dict[str, Any] = {
            "stack": "llama", "width": model.get_input_embeddings().embedding_dim,
            "dtype": str(dtype), "weight_bytes": size, "sparsity": sparsity,
        }  # fmt: skip
        memory = Memory(device)
        net: Any = None
        audit: Any = None
        for what in ("trace", "prune", "audit"):
            memory.reset()
            start = now(device)
            if what == "trace":
                net = trellis.trace(model, inputs)
            elif what == "prune":
                row["kept"] = trellis.prune(net, sparsity=sparsity, scope="global").kept
            else:
                audit = trellis.audit(net)
            row[f"{what}_seconds"] = now(device) - start
            row[f"{what}_extra_bytes"] = memory.extra()
        row |= {"weights": audit.total, "live": audit.live, "outputs": audit.outputs,
                "outputs_reached": audit.outputs_reached}  # fmt: skip
        rows.append(row)
        print(
            f"llama {row['weights']:,} weights ({size / 1e9:.2f} GB), {100 * sparsity:g} % gone: "
            + ", ".join(
                f"{what} {row[f'{what}_seconds']:.2f} s and "
                f"{(row[f'{what}_extra_bytes'] or float('nan')) / 1e9:.2f} GB more"
                for what in ("trace", "prune", "audit")
            )
            + f"; kept {row['kept']:,}, live {row['live']:,}",
            flush=True,
        )
        del model, net, audit
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return rows


def rank_memory(weights: int, rank: int, count: int, meeting: str) -> None:
    """Prune a sharded model as one of several processes; print this one's memory as JSON."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=count)
    torch.manual_seed(0)
    model: Any
    model, inputs = STACKS["mlp"](weights)
    net = trellis.trace(model, inputs)
    mesh = init_device_mesh("cpu", (count,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    schedule = trellis.Schedule("cubic", begin=0, end=2, every=1)
    memory = Memory(torch.device("cpu"))
    dist.barrier()
    memory.reset()
    start = time.perf_counter()
    pruner = trellis.Pruner(net, sparsity=0.9, schedule=schedule)
    made = time.perf_counter()
    pruner.step()
    took = time.perf_counter() - made
    extra = memory.extra()
    shards = pruner._shards
    assert shards is not None
    weight = sum(p.to_local().nbytes for p in model.parameters())
    row = {
        "stack": "sharded mlp", "ranks": count, "rank": rank, "weights": net.total,
        "largest_bytes": 4 * max(p.numel() for p in model.parameters()), "weight_bytes": weight,
        "mask_bytes": sum(mask.nbytes for mask in shards.masks.values()),
        "inside_bytes": sum(mask.nbytes for mask in shards.inside.values()),
        "first_seconds": made - start, "update_seconds": took, "update_extra_bytes": extra,
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def sharded(weights: int, count: int) -> list[dict[str, Any]]:
    """Prune a model in ``count`` processes; the memory of each."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--weights", str(weights), "--meeting"]
        # What is freed goes back to the system at once, so that peaks are not the allocator's.
        environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
        started = [
            subprocess.Popen(
                [*words, str(Path(folder, "meeting")), "--rank", str(rank), "--ranks", str(count)],
                stdout=subprocess.PIPE, text=True, env=environment,
            )
            for rank in range(count)
        ]  # fmt: skip
        rows = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    for row in rows:
        print(
            f"{count} ranks, rank {row['rank']}: weights {row['weight_bytes'] / 1e6:.0f} MB, masks "
            f"{(row['mask_bytes'] + row['inside_bytes']) / 1e6:.0f} MB, an update takes "
            f"{row['update_seconds']:.1f} s and {(row['update_extra_bytes'] or 0) / 1e6:.0f} MB",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results/scale.json"))
    parser.add_argument("--stacks", nargs="+", choices=STACKS, default=list(STACKS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--weights", nargs="+", type=float, default=[1e6, 1e7, 1e8, 1e9])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="fewer sizes, one repeat")
    parser.add_argument(
        "--llama", nargs="+", type=float, help="decoders of so many weights instead"
    )
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--ranks", nargs="+", type=int, help="shard over so many processes instead")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.meeting is not None:
        rank_memory(int(asked.weights[0]), asked.rank, asked.ranks[0], asked.meeting)
        return
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

    def keep(more: list[dict[str, Any]]) -> None:
        # Written as it grows: what was measured survives a size that does not fit.
        rows.extend(more)
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    for weights in asked.llama or ():
        keep(decoder(int(weights), device, getattr(torch, asked.dtype)))
    for count in asked.ranks or ():
        keep(sharded(int(asked.weights[0]), count))
    if asked.llama or asked.ranks:
        return
    for stack in asked.stacks:
        for weights in asked.weights:
            row = measure(stack, int(weights), device, asked.repeats)
            keep([row])
            print(
                f"{stack:12} {row['weights']:>13,} weights  "
                f"{row['nanoseconds_per_weight']:8.2f} ns each  "
                f"extra memory {row['extra_over_weights'] or float('nan'):5.2f} of the weights",
                flush=True,
            )


if __name__ == "__main__":
    main()
