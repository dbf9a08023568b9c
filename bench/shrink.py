"""How accurate small networks are, and what each part of making them is worth.

``python bench/shrink.py hands45 nw-ucla:PATH --seeds 5 --device cuda --out FOLDER`` trains,
prunes and fine-tunes the paper's network as ``trellis shrink`` does. It makes a network for each of
``--sparsity`` and every seed, or every fold if a set has several. Each of ``--parts`` (`ways.py`)
is another way of pruning or changes one setting. Networks of one part are trained side by side.
Parts and folds are made in ``--workers`` processes at once; on a GPU, start CUDA's MPS daemon
first. With ``--ray auto`` or ``--ray HOST:PORT`` they are made on a Ray cluster, whose nodes must
find the recordings at the same paths. Finished rows are stored in FOLDER/shrink.jsonl and not made
again. It prints top-1 on the test recordings, mean ± standard deviation, and for each part the
paired difference to the default with its 95 % interval (`shrink_tables.py`). It writes the same to
FOLDER/shrink.md.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import as_completed
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from shrink_tables import tables
from ways import DEFAULT, parts, settings

from trellis import skeleton
from trellis.cells import Processes, Runner
from trellis.integrations.ray import Cluster
from trellis.methods.budget import budget
from trellis.skeleton.shrink import COURSES, Maker, options_for
from trellis.training import Weights, accuracies

SPARSITIES = (0.9, 0.95, 0.99, 0.999, 0.9995)
KEYS = ("data", "length", "part", "sparsity", "case")
Row = dict[str, Any]


class Job(NamedTuple):
    """Networks of one part, on one fold."""

    source: str
    fold: int
    part: str
    sparsities: tuple[float, ...]


@lru_cache
def loaded(source: str) -> skeleton.Skeletons:
    return skeleton.load_dataset(source)


def cases(data: skeleton.Skeletons, seeds: int) -> list[tuple[int, list[int]]]:
    """Each fold and its seeds: one seed where there are several folds."""
    if len(data.folds) > 1:
        return [(number, [0]) for number in range(len(data.folds))]
    return [(0, list(range(seeds)))]


_DENSE: dict[str, Weights] = {}  # what parts share, if one process makes them


def made(job: Job, options: argparse.Namespace, until: float) -> list[Row]:
    """What becomes of a part on a fold: a row for each network, dense ones too."""
    if time.time() > until:
        return []
    began = time.monotonic()
    data = loaded(job.source)
    fold, seeds = data.folds[job.fold], dict(cases(data, options.seeds))[job.fold]
    course, own = parts(COURSES["default"])[job.part]
    course = course.times(options.length)
    how = options_for(data.layout) | own
    recognizer = skeleton.Recognizer.fresh(data, fold, **how)
    labels = torch.from_numpy(recognizer.labels(data))

    def inputs(chosen: Any) -> torch.Tensor:
        places = recognizer.places([data.sequences[i] for i in chosen])
        return torch.from_numpy(places).to(options.device)

    maker = Maker(
        recognizer, inputs(fold.train), labels[fold.train], course,
        device=options.device, precision=options.precision,
    )  # fmt: skip
    varied = maker.course.augmentation
    key = repr((job.source, job.fold, how, varied, maker.course.recipe.epochs, seeds))
    if key not in _DENSE:
        _DENSE[key] = maker.train(seeds)
    dense = _DENSE[key]
    cells = [(seed, s) for s in job.sparsities for seed in seeds]
    targets = [budget(maker.connections, s) for _, s in cells]
    small = maker.shrink(dense, seeds, targets, [seed for seed, _ in cells])
    tested = inputs(fold.test), labels[fold.test].to(options.device)
    whole = accuracies(maker.forward, dense, *tested).tolist()
    top1 = accuracies(maker.forward, small.weights, *tested).tolist()
    found = [(0.0, seed, t, maker.connections) for seed, t in zip(seeds, whole, strict=True)]
    found += [(s, seed, t, k) for (seed, s), t, k in zip(cells, top1, small.kept, strict=True)]
    print(
        f"{time.monotonic() - began:6.0f} s  {job.source}, {fold.name}, {job.part}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    return [
        {"data": kind(job.source), "synthetic": data.synthetic, "part": job.part,
         "length": options.length, "sparsity": s,
         "case": seed if len(data.folds) == 1 else job.fold,
         "top1": round(100 * t, 4), "kept": k, "total": maker.connections,
         "settings": settings(job.part, data.layout)}
        for s, seed, t, k in found
    ]  # fmt: skip


def jobs(rows: list[Row], options: argparse.Namespace) -> list[Job]:
    """What is still to be made; nothing of what was may have been made in another way."""
    found = []
    for source in options.data:
        data = loaded(source)
        mine = [row for row in rows if row["data"] == kind(source)]
        for row in mine:
            if row["settings"] != settings(row["part"], data.layout):
                raise SystemExit(
                    f"{row['part']!r} was made with other settings than it would be now: name "
                    "another --out"
                )
        have = {tuple(row[key] for key in KEYS) for row in mine}
        for part in options.parts:
            for fold, seeds in cases(data, options.seeds):
                own = [fold] if len(data.folds) > 1 else seeds
                wanted = tuple(
                    s for s in options.sparsity
                    if not {(kind(source), options.length, part, s, c) for c in own} <= have
                )  # fmt: skip
                if wanted:
                    found.append(Job(source, fold, part, wanted))
    return found


def kind(source: str) -> str:
    """What a set is called, wherever it lies."""
    return source.partition(":")[0]


def starting(options: argparse.Namespace, until: float) -> Callable[[Job], list[Row]]:
    """What a worker does with a job; in a pool it takes a share of the processor's cores."""
    if options.ray is None:
        torch.set_num_threads(max(1, torch.get_num_threads() // options.workers))
    return partial(made, options=options, until=until)


def runner_of(options: argparse.Namespace) -> Runner:
    """Where parts are made."""
    if options.ray is None:
        return Processes(options.workers)
    return Cluster(options.ray, options.cell_cpus, options.cell_gpus, code=Path(__file__).parent)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the options of `runner_of`."""
    parser.add_argument("--workers", type=int, default=1, help="parts that are made at once")
    parser.add_argument("--ray", metavar="auto|HOST:PORT", help="make them on a Ray cluster")
    parser.add_argument("--cell-cpus", type=int, default=1, help="cores of a part")
    parser.add_argument("--cell-gpus", type=float, default=0.0, help="GPUs of a part, such as 0.25")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sparsity", type=float, nargs="+", default=list(SPARSITIES))
    parser.add_argument("--parts", nargs="+", choices=parts(COURSES["default"]), default=[DEFAULT])
    parser.add_argument("--length", type=float, default=1.0, help="times the course's epochs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    add_cluster(parser)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing afterwards")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    until = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "shrink.jsonl"
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    have = {tuple(row[key] for key in KEYS) for row in rows}
    from shrink import starting  # by its name, so that a worker on a cluster can import it

    with runner_of(options).cells(starting, options, until) as cells:
        waiting = [cells.submit(job) for job in jobs(rows, options)]
        for one in as_completed(waiting):
            new = [row for row in one.result() if tuple(row[key] for key in KEYS) not in have]
            with store.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in new)
            rows += new
            have |= {tuple(row[key] for key in KEYS) for row in new}
    order = {part: i for i, part in enumerate(parts(COURSES["default"]))}
    rows.sort(key=lambda row: (row["length"] != 1, order[row["part"]]))
    (options.out / "shrink.md").write_text(tables(rows))
    print(tables(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
