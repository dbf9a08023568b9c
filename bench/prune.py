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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of part dead")
    parser.add_argument("--merge", type=Path, help="prune.json of another run, to add")
    return parser.parse_args()


@dataclasses.dataclass
class Found:
    """What runs have found so far: facts of the machine that was timed, samples, audits."""

    facts: dict[str, object]
    samples: dict[str, dict[str, list[float]]]
    left: list[Left]

    @classmethod
    def read(cls, file: Path) -> Found:
        if not file.exists():
            return cls({}, {}, [])
        found = json.loads(file.read_text(encoding="utf-8"))
        left = [Left(**row) for row in found.get("dead", [])]
        return cls(found.get("machine", {}), found.get("seconds", {}), left)

    def add(self, row: Left) -> None:
        """A row, in place of the one for the same network, tool and sparsity."""
        self.left = [other for other in self.left if other.key != row.key] + [row]


def main() -> None:
    asked = arguments()
    torch.set_num_threads(asked.threads)
    asked.out.mkdir(parents=True, exist_ok=True)
    found = Found.read(asked.out / "prune.json")  # other networks and tools stay as they are
    if asked.merge:
        if not asked.merge.exists():
            raise SystemExit(f"{asked.merge}: there is no such file to merge")
        other = Found.read(asked.merge)
        found.samples |= other.samples
        for row in other.left:
            found.add(row)
        write(asked.out, found)
        return
    if "speed" in asked.parts or not found.facts:
        found.facts = machine(asked.threads)
    for name in asked.networks:  # written bit by bit, so that a long run can be cut short
        if "speed" in asked.parts:
            found.samples[name] = speed(name, asked.threads, asked.repeats)
            write(asked.out, found)
        for peer in asked.peers if "dead" in asked.parts else ():
            for row in left_by(peer, name, asked.device):
                found.add(row)
                write(asked.out, found)


def write(folder: Path, given: Found) -> None:
    """Print what was found so far, and write it to prune.md and prune.json."""
    samples = {name: given.samples[name] for name in NETWORKS if name in given.samples}
    left = sorted(given.left, key=lambda row: (ORDER[row.network], ORDER[row.peer], row.sparsity))
    found: dict[str, object] = {"machine": given.facts}
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
    page = show(tables, refusals(left), given.facts)
    (folder / "prune.md").write_text(page, encoding="utf-8")
    (folder / "prune.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
