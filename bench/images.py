"""Accuracy of pruned networks on CIFAR-10, all methods with the same number of steps.

    python bench/images.py --networks resnet20 --methods dense gmp closed --sparsities 0.98 0.99 \
        --seeds 0 1 2 --epochs 30 --workers 10 --out bench/results/images.jsonl

A cell is a network, a method, a sparsity and a seed. Finished cells are lines of the file, and are
not made again. Networks learn from 45,000 training images. The other 5,000 are there to choose
by; the table shows the test images unless ``--held`` is given. ``--table`` prints what the file
holds. On a GPU, start CUDA's MPS daemon first, so that the workers share the card well.

``--ray auto`` or ``--ray HOST:PORT`` makes the cells on a Ray cluster, whose nodes need the images
in the same place (``--data``). Name the nodes' ``--device`` then, and ``--cell-gpus``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

import torch
from image_data import cifar10, smaller
from image_methods import METHODS, WHOLE
from image_models import NETWORKS
from image_training import Training, settings_for
from shrink import add_cluster, runner_of

import trellis

Cell = dict[str, Any]
Row = dict[str, Any]
KEYS = ("network", "method", "sparsity", "seed", "epochs", "images", "side")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=["resnet20"], choices=NETWORKS)
    known = (*METHODS, *WHOLE)
    parser.add_argument("--methods", nargs="+", default=["dense", "gmp", "shrink"], choices=known)
    parser.add_argument("--sparsities", nargs="+", type=float, default=[0.98, 0.99])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--images", type=int, default=45000, help="training images (default 45000)")
    parser.add_argument("--side", type=int, default=32, help="pixels of a side (default 32)")
    add_cluster(parser)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no cell after these")
    parser.add_argument("--data", type=Path, default=Path("data/cifar10"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("bench/results/images.jsonl"))
    parser.add_argument("--held", action="store_true", help="show held-out images in the table")
    parser.add_argument("--table", action="store_true", help="print the table and stop")
    return parser.parse_args()


def cells(given: argparse.Namespace, done: list[Row]) -> Iterator[Cell]:
    """Yield what is to be made, network by network, all methods of a seed together."""
    made = {tuple(row[key] for key in KEYS) for row in done}
    for network in given.networks:
        for seed in given.seeds:
            for sparsity in given.sparsities:
                for method in given.methods:
                    dense = method == "dense"
                    if dense and sparsity != given.sparsities[0]:
                        continue
                    rate = 0.0 if dense else sparsity
                    size = given.epochs, given.images, given.side
                    values = (network, method, rate, seed, *size)
                    if values not in made:
                        yield dict(zip(KEYS, values, strict=True))


def made(training: Training, cell: Cell) -> Row:
    """Train one network and audit it."""
    begun = time.perf_counter()
    method, given, images = cell["method"], (cell["sparsity"], cell["seed"]), training.images
    if method in WHOLE:
        model = WHOLE[method](training, *given)
        found = trellis.audit(model, training.x[:1].float())
    else:
        training.retrace()
        training.start(cell["seed"])
        training.train(METHODS[method](training, *given))
        model, found = training.model, trellis.audit(training.masked())
    held = training.accuracy(model, training.held_set, images.held_labels)
    test = training.accuracy(model, training.test_set, images.test_labels)
    return {
        **cell,
        "held": held,
        "test": test,
        "total": found.total,
        "kept": found.kept,
        "live": found.live,
        "outputs": found.outputs_reached,
        "dead_layers": sum(layer.live == 0 for layer in found.layers),
        "seconds": time.perf_counter() - begun,
    }


def starting(given: argparse.Namespace, until: float) -> Callable[[Cell], Row | None]:
    """Return what a worker does with a cell; it keeps the last network and its CUDA graph."""
    torch.set_num_threads(given.cell_cpus)
    images = smaller(cifar10(given.data), given.side, given.images)
    kept: list[Training] = []

    def work(cell: Cell) -> Row | None:
        if time.time() > until:
            return None
        wanted = settings_for(cell["network"], cell["epochs"])
        if not kept or kept[0].settings != wanted:
            kept.clear()  # first, so that two networks are never in memory
            kept.append(Training(wanted, images, torch.device(given.device)))
        return made(kept[0], cell)

    return work


def main() -> None:
    given = arguments()
    until = time.time() + given.seconds
    done = (
        [json.loads(line) for line in given.out.read_text().splitlines()]
        if given.out.exists()
        else []
    )
    if not given.table:
        from images import starting  # by its name, so that a worker on a cluster can import it

        given.data = given.data.absolute()
        given.out.parent.mkdir(parents=True, exist_ok=True)
        with (
            given.out.open("a", encoding="utf-8") as file,
            runner_of(given).cells(starting, given, until) as workers,
        ):
            begun = {workers.submit(cell): cell for cell in cells(given, done)}
            for one in as_completed(begun):
                try:
                    row = one.result()
                except Exception as problem:  # the others go on
                    print(json.dumps(begun[one] | {"error": repr(problem)}), flush=True)
                    continue
                if row is not None:
                    print(json.dumps(row), flush=True)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    done.append(row)
    print(table(done, "held" if given.held else "test"))


def table(rows: list[Row], images: str) -> str:
    """Return the accuracies as Markdown: mean and standard deviation over seeds."""
    lines = []
    sizes = ("network", "epochs", "images", "side")
    for size in dict.fromkeys(tuple(row[key] for key in sizes) for row in rows):
        own = [row for row in rows if tuple(row[key] for key in sizes) == size]
        network, epochs, many, side = size
        rates = sorted({r["sparsity"] for r in own if r["method"] != "dense"})
        told = f"{many} training images of {side} pixels"
        lines += ["", f"{network}, {epochs} epochs, {told}, {images} images, top-1 %", ""]
        lines.append("| method | " + " | ".join(f"{100 * rate:g} %" for rate in rates) + " |")
        lines.append("|---" * (len(rates) + 1) + "|")
        for method in dict.fromkeys(r["method"] for r in own):
            mine = [r for r in own if r["method"] == method]
            texts = [_summary([r for r in mine if r["sparsity"] == rate], images) for rate in rates]
            if method == "dense":
                texts = [_summary(mine, images), *[""] * (len(rates) - 1)]
            lines.append(f"| {method} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _summary(rows: list[Row], images: str) -> str:
    if not rows:
        return "–"
    values = [100 * row[images] for row in rows]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    kept = sum(row["kept"] for row in rows)
    live = 100 * sum(row["live"] for row in rows) / kept if kept else 0.0
    notes = "" if live == 100 else f" ({live:.0f} % live)"
    return f"{statistics.fmean(values):.1f}{spread}{notes}"


if __name__ == "__main__":
    main()
