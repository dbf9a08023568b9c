"""The same masks on a GPU as on the CPU: `python bench/devices.py`. Exits 1 where they differ.

Every method on networks with convolutions, attention, gates, graphs and tied weights, and the
audit of each. Needs a CUDA device. `--short` compares every method on the small networks and the
default one on the large, at one sparsity: under a minute. `--out FOLDER` writes devices.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from models import NETWORKS, build, example_inputs

import trellis

CASES: list[dict[str, Any]] = [
    {"method": "viterbi"},
    {"method": "viterbi", "stochastic": True, "seed": 3},
    {"method": "magnitude"},
    {"method": "magnitude", "scope": "layer", "stochastic": True},
    {"method": "magnitude", "scope": "lamp", "consistent": True},
    {"method": "random", "consistent": True, "seed": 1},
]
WALKS: list[dict[str, Any]] = [
    {"method": "chains"},
    {"method": "chains", "surrogate": "global", "inverse_alpha": 10.0, "stochastic": True},
    {"method": "synflow", "consistent": True},
]
LAYERED = ("mlp", "gcn")


def same(name: str, sparsity: float, case: dict[str, Any]) -> bool:
    """Prune a copy on each device and compare masks and audits."""
    found = []
    model, inputs = build(name), example_inputs(name)
    for device in ("cpu", "cuda"):
        own = copy.deepcopy(model).to(device)
        masks = trellis.prune(own, inputs, sparsity=sparsity, **case)
        report = trellis.audit(own, inputs)
        found.append(({key: mask.cpu() for key, mask in masks.items()}, report.to_dict()))
    (a, audit_a), (b, audit_b) = found
    return audit_a == audit_b and all(torch.equal(a[key], b[key]) for key in a)


def cases(name: str, short: bool) -> list[tuple[float, dict[str, Any]]]:
    """What is compared on one network: sparsities and options."""
    found = CASES + (WALKS if name in LAYERED else [])
    if not short:
        return [(sparsity, case) for case in found for sparsity in (0.9, 0.99)]
    return [(0.99, case) for case in (found if name in LAYERED else CASES[:1])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--short", action="store_true", help="fewer comparisons")
    parser.add_argument("--out", type=Path, help="folder for devices.json")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench/devices.py compares the CPU with a CUDA device, and there is none here")
        return 2
    rows: list[dict[str, Any]] = []
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    for name in asked.networks:
        for sparsity, case in cases(name, asked.short):
            start = time.perf_counter()
            equal = same(name, sparsity, case)
            seconds = time.perf_counter() - start
            rows.append({"network": name, "sparsity": sparsity, **case, "same": equal})
            word = "same" if equal else "DIFFERENT"
            print(f"{name:10s} {sparsity:.0%} {case}: {word} ({seconds:.1f} s)", flush=True)
            if asked.out:  # as it grows: a run that is cut short has said something
                asked.out.mkdir(parents=True, exist_ok=True)
                text = json.dumps(found, indent=1) + "\n"
                (asked.out / "devices.json").write_text(text, encoding="utf-8")
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
