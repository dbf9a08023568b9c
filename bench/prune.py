"""Pruning speed, and what other tools leave dead: `python bench/prune.py --out bench/results`.

Prints tables, and writes prune.md and prune.json into the folder. See bench/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
from importlib import metadata
from pathlib import Path
from statistics import median

import torch
from contenders import chains, contenders
from dead import Left, left_by
from goals import GOALS
from models import NETWORKS
from peers import PEERS
from report import Table, dead_table, goal_table, refusals, show, time_table
from timing import cold, interleaved

PACKAGES = ("torch", "torchao", "nncf", "torch-pruning", "transformers")
ORDER = {name: place for place, name in enumerate((*NETWORKS, *PEERS))}


def machine(threads: int) -> dict[str, object]:
    """What the figures depend on beside the code."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        **versions,
    }


def speed(network: str, threads: int, repeats: int) -> dict[str, list[float]]:
    """All samples of one network, in seconds, by task."""
    samples = interleaved(contenders(network), repeats)
    samples["prune, cold"] = cold(network, "prune, first call", threads, repeats)
    samples["global_unstructured, cold"] = cold(network, "global_unstructured", threads, repeats)
    if network == "gcn":
        samples |= interleaved(chains(network), repeats)
    return samples


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="folder")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--parts", nargs="+", choices=("speed", "dead"), default=["speed", "dead"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def before(folder: Path) -> tuple[dict[str, dict[str, list[float]]], list[Left]]:
    """What earlier runs found: a run of some networks and tools replaces those rows only."""
    file = folder / "prune.json"
    if not file.exists():
        return {}, []
    found = json.loads(file.read_text(encoding="utf-8"))
    return found.get("seconds", {}), [Left(**row) for row in found.get("dead", [])]


def main() -> None:
    asked = arguments()
    torch.set_num_threads(asked.threads)
    facts = machine(asked.threads)
    asked.out.mkdir(parents=True, exist_ok=True)
    samples, left = before(asked.out)
    for name in asked.networks:  # written bit by bit, so that a long run can be cut short
        if "speed" in asked.parts:
            samples[name] = speed(name, asked.threads, asked.repeats)
            write(asked.out, facts, samples, left)
        for peer in asked.peers if "dead" in asked.parts else ():
            for row in left_by(peer, name):
                left = [other for other in left if other.key != row.key] + [row]
                write(asked.out, facts, samples, left)


def write(
    folder: Path,
    facts: dict[str, object],
    samples: dict[str, dict[str, list[float]]],
    left: list[Left],
) -> None:
    """Print what was found so far, and write it to prune.md and prune.json."""
    samples = {name: samples[name] for name in NETWORKS if name in samples}
    left = sorted(left, key=lambda row: (ORDER[row.network], ORDER[row.peer], row.sparsity))
    found: dict[str, object] = {"machine": facts}
    tables: list[Table] = []
    if samples:
        times = {
            name: {task: median(values) for task, values in tasks.items()}
            for name, tasks in samples.items()
        }
        verdicts = {name: [goal.verdict(times[name]) for goal in GOALS[name]] for name in samples}
        tables += [goal_table(verdicts), time_table(times)]
        found["seconds"] = samples
        found["goals"] = {
            name: [dataclasses.asdict(verdict) for verdict in rows]
            for name, rows in verdicts.items()
        }
    if left:
        names = dict.fromkeys(row.network for row in left)
        tables += [dead_table(name, left) for name in names]
        found["dead"] = [dataclasses.asdict(row) for row in left]
    page = show(tables, refusals(left), facts)
    (folder / "prune.md").write_text(page, encoding="utf-8")
    (folder / "prune.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
