"""The same masks on a GPU as on the CPU: `python bench/devices.py`. Exits 1 where they differ.

Every method on networks with convolutions, attention, gates, graphs and tied weights, and the
audit of each. Needs a CUDA device.
"""

from __future__ import annotations

import copy
import sys
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


def main() -> int:
    if not torch.cuda.is_available():
        print("bench/devices.py compares the CPU with a CUDA device, and there is none here")
        return 2
    different = 0
    for name in NETWORKS:
        for case in CASES + (WALKS if name in LAYERED else []):
            for sparsity in (0.9, 0.99):
                equal = same(name, sparsity, case)
                different += not equal
                print(f"{name:10s} {sparsity:.0%} {case}: {'same' if equal else 'DIFFERENT'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
