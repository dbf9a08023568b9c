"""The networks whose inference is timed: the paper's GCN, pruned so that every weight is live."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch

import trellis
from trellis.deploy.format import write
from trellis.deploy.tables import Tables, tables
from trellis.deploy.tables.quantize import stored
from trellis.skeleton import GCN

RATES = (0.9, 0.95, 0.99, 0.999)
EXAMPLE = torch.zeros(1, 21, 96)


@dataclass(frozen=True, eq=False)
class Pruned:
    """A model with its masks baked in, and the files of its tables."""

    rate: float
    model: GCN
    plain: Tables
    files: dict[str, Path]  # by kind of values


def dense(seed: int) -> GCN:
    torch.manual_seed(seed)
    return GCN().eval()


def pruned(rate: float, seed: int, folder: Path) -> Pruned:
    """At random weights, by viterbi: what matters here is where the live ones lie."""
    model = copy.deepcopy(dense(seed))
    masks = trellis.prune(model, EXAMPLE, sparsity=rate, method="viterbi")
    masks.bake(model)
    found = tables(model, EXAMPLE)
    files = {}
    for values in ("fp32", "int8"):
        files[values] = folder / f"gcn-{rate}-{values}.trellis"
        write(stored(found, values), files[values])
    return Pruned(rate, model, found, files)
