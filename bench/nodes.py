"""What a table on a Ray cluster costs, from one simulated node to several.

``python bench/nodes.py --nodes 1 2 4 --out nodes.json`` makes the same small table of hands45
without Ray, and then on clusters of nodes with one core each. All nodes are processes on this
machine, so more nodes than cores cannot be faster. For that reason it also times cells that wait
for a second and compute nothing. It prints the seconds of the table, of the first cell, of an empty
cell, and of the cells that wait. Needs the extra ``ray``.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from trellis.cells import Runner
from trellis.integrations.ray import Cluster
from trellis.paper import Settings, reproduce
from trellis.skeleton import load_dataset
from trellis.training import recipe_named

_ROOM = 300 << 20  # bytes of a node's object store
_EMPTY, _WAITING = 200, 32  # cells


def settings(seeds: int, epochs: int) -> Settings:
    recipe = recipe_named("default", epochs=epochs, tune_epochs=epochs)
    return Settings(
        "table2", "hands45", seeds=seeds, rates=(90.0, 99.0), rows=("mp", "tc"), recipe=recipe,
        heads=4, filters=16, stack=1,
    )  # fmt: skip


def table(asked: Settings, data: Any, runner: Runner | None) -> float:
    """Make the table in a new folder; the seconds that it took."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        reproduce(asked, data, Path(folder) / "run", runner=runner)
        return time.monotonic() - began


def starting() -> Callable[[Any], Any]:
    """The start of workers that wait for as many seconds as a job says."""
    return time.sleep


def empty(cluster: Cluster) -> dict[str, float]:
    """Seconds until a first cell is back, of one of many that do nothing, and of all that wait."""
    from nodes import starting  # by its name, so that a worker can import it

    began = time.monotonic()
    with cluster.cells(starting) as cells:
        cells.submit(0).result()
        first = time.monotonic()
        for future in [cells.submit(0) for _ in range(_EMPTY)]:
            future.result()
        empty = time.monotonic()
        for future in [cells.submit(1) for _ in range(_WAITING)]:
            future.result()
        waited = time.monotonic() - empty
        return {"first": first - began, "each": (empty - first) / _EMPTY, "waiting": waited}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("bench/results/nodes.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    from ray.cluster_utils import Cluster as Nodes

    asked, data = settings(options.seeds, options.epochs), load_dataset("hands45")
    cells = options.seeds * (1 + len(asked.rates) * len(asked.rows))
    rows: list[dict[str, Any]] = []

    def note(**row: Any) -> None:
        rows.append(row)
        print(", ".join(f"{k} {v:.4g}" for k, v in row.items()), flush=True)
        found = {"cores": os.cpu_count(), "cells": cells, "torch": torch.__version__, "rows": rows}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    note(nodes=0, seconds=table(asked, data, None))
    for count in options.nodes:
        nodes = Nodes(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": _ROOM,
                            "include_dashboard": False},
        )  # fmt: skip
        try:
            for _ in range(count):
                nodes.add_node(num_cpus=1, object_store_memory=_ROOM)
            cluster = Cluster(nodes.address, code=Path(__file__).parent)
            costs = empty(cluster)
            note(nodes=count, seconds=table(asked, data, cluster), **costs)
        finally:
            nodes.shutdown()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
