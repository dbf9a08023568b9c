"""How accurate small networks are, and what each part of making them is worth.

``python bench/shrink.py hands45 nw-ucla:PATH --seeds 5 --device cuda --out FOLDER`` trains,
prunes and tunes the paper's network as ``trellis shrink`` does, to each of ``--sparsity``, on
every seed, or on every fold where a set has several. Each of ``--parts`` is another way, or changes
one thing. Networks of one set are trained side by side; who has several teachers has those of the
seeds after its own, too. Finished parts are kept in FOLDER/shrink.jsonl and not made again.
Prints top-1 on the test recordings, mean ± standard deviation, and for each part the paired
difference to the default with its 95 % interval; the same goes to FOLDER/shrink.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rules import rules

from trellis import skeleton
from trellis.select.budget import budget
from trellis.skeleton.choosing import chooser
from trellis.skeleton.shrink import COURSES, Course, Maker, options_for
from trellis.train import accuracies

SPARSITIES = (0.9, 0.95, 0.99, 0.999, 0.9995)
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


DEFAULT = "default"
KEYS = ("data", "length", "part", "sparsity", "case")
LIKE_THE_PAPER = ("magnitude by layer", "chains")  # chosen by magnitude alone
METHODS = {
    "MP by layer": "magnitude by layer",
    "chains": "chains",
    "SynFlow": "synflow",
    "viterbi": "viterbi",
}


def parts(course: Course) -> dict[str, tuple[Course, dict[str, str]]]:
    """The course, and what is not as `options_for` has it: nothing, or one thing changed; then
    every way of choosing, gradually and at once, taught and not."""
    half = replace(course.recipe, epochs=max(course.recipe.epochs // 2, 1))
    found: dict[str, tuple[Course, dict[str, str]]] = {
        DEFAULT: (course, {}),
        "ReLU": (course, {"activation": "relu"}),
        "recorded size": (course, {"size": "recorded"}),
        "moments": (course, {"basis": "chunks"}),
        "camera's frame": (course, {"frame": "camera"}),
        "not mirrored": (replace(course, mirror=False), {}),
        "nothing dropped": (replace(course, drop=0.0), {}),
        "smoothed to the end": (
            replace(course, recipe=replace(course.recipe, tune_smoothing=None)),
            {},
        ),
        "not augmented": (replace(course, augmentation=None), {}),
        "not taught": (replace(course, teachers=0), {}),
        "four teachers": (replace(course, teachers=4), {}),
        "by magnitude alone": (replace(course, sensitivity=0.0), {}),
        "pruned from all": (replace(course, surplus=None), {}),
        "trained half as long": (replace(course, recipe=half), {}),
        "agreeing": (replace(course, agreement=1.0), {}),
    }
    for when, curve in (("gradual", course.curve), ("at once", "one-shot")):
        for method, key in METHODS.items():
            worth = 0.0 if key in LIKE_THE_PAPER else course.sensitivity
            for taught, teachers in (("", 0), (", taught", 1)):
                begin = course.surplus if key == "viterbi" else None  # others need not be rushed
                way = replace(
                    course, method=key, curve=curve, sensitivity=worth, teachers=teachers,
                    surplus=begin,
                )  # fmt: skip
                if key == "chains":  # seconds for each: a tenth of the renewals
                    rarer = 10 * way.recipe.prune_every
                    way = replace(way, recipe=replace(way.recipe, prune_every=rarer))
                found[f"{when}, {method}{taught}"] = way, {}
    del found["gradual, viterbi"], found["gradual, viterbi, taught"]  # named above
    return found


class Bench:
    """One set: its folds, and the dense networks that parts share."""

    def __init__(self, source: str, options: argparse.Namespace) -> None:
        self.data, self.options = skeleton.load(source), options
        self.seeds = [0] if len(self.data.folds) > 1 else list(range(options.seeds))
        self.dense: dict[tuple[Any, ...], Any] = {}
        self.pool = ProcessPoolExecutor(options.workers, get_context("spawn"), _calmly)

    @property
    def cases(self) -> range:
        return range(max(len(self.seeds), len(self.data.folds)))

    def known(self, rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
        """What was made before; none of it in another way than it would be now."""
        mine = [row for row in rows if row["data"] == kind(self.data.source)]
        for row in mine:
            if row["settings"] != settings(row["part"], self.data.layout):
                raise SystemExit(
                    f"{row['part']!r} was made with other settings than it would be now: name "
                    "another --out"
                )
        return {tuple(row[key] for key in KEYS) for row in mine}

    def rows(
        self, name: str, course: Course, own: dict[str, str], sparsities: list[float]
    ) -> list[dict[str, Any]]:
        """What becomes of one part: a row for each network, dense ones too."""
        found = []
        for number, fold in enumerate(self.data.folds):
            how = options_for(self.data.layout) | own
            recogniser = skeleton.Recogniser.fresh(self.data, fold, **how)
            labels = torch.from_numpy(recogniser.labels(self.data))

            def inputs(chosen: Any, recogniser: Any = recogniser) -> torch.Tensor:
                sequences = [self.data.sequences[i] for i in chosen]
                return torch.from_numpy(recogniser.places(sequences)).to(self.options.device)

            x = inputs(fold.train)
            maker = Maker(
                recogniser, x, labels[fold.train], course,
                device=self.options.device, precision=self.options.precision,
            )  # fmt: skip
            tested = inputs(fold.test), labels[fold.test].to(self.options.device)
            if course.method == "chains":
                maker.choose = Pooled(recogniser.model, self.pool)
            varied = maker.course.augmentation
            seeds = list(range(max(len(self.seeds), course.dense_networks)))
            key = fold.name, *how.values(), varied, course.recipe.epochs, len(seeds)
            if key not in self.dense:  # parts differ in what comes after
                self.dense[key] = maker.train(seeds)
            dense = self.dense[key]
            cells = [(seed, s) for s in sparsities for seed in self.seeds]
            targets = [budget(maker.connections, s) for _, s in cells]
            small = maker.shrink(dense, seeds, targets, [seed for seed, _ in cells])
            whole = accuracies(maker.forward, dense, *tested)[: len(self.seeds)].tolist()
            masks = torch.cat([mask.flatten(1) for mask in small.masks.values()], 1)
            top1 = accuracies(maker.forward, small.weights, *tested).tolist()
            rows = [(0.0, s, t, maker.connections) for s, t in zip(
                self.seeds, whole, strict=True
            )]  # fmt: skip
            rows += [(s, seed, t, k) for (seed, s), t, k in zip(
                cells, top1, masks.sum(1).tolist(), strict=True
            )]  # fmt: skip
            found += [
                {"data": kind(self.data.source), "synthetic": self.data.synthetic,
                 "part": name, "length": self.options.length, "sparsity": s,
                 "case": seed if len(self.data.folds) == 1 else number,
                 "top1": round(100 * t, 4), "kept": int(k), "total": maker.connections,
                 "settings": settings(name, self.data.layout)}
                for s, seed, t, k in rows
            ]  # fmt: skip
        return found


class Pooled:
    """Chains for a stack of networks, each in a process of its own."""

    def __init__(self, model: skeleton.GCN, pool: ProcessPoolExecutor) -> None:
        self.sizes_of, self.pool = model.sizes, pool
        one = chooser(model, "chains")
        self.sizes, self.least = one.sizes, one.least

    def __call__(self, worth: Any, kept: Any, budgets: Any) -> dict[str, torch.Tensor]:
        each = [
            (
                self.sizes_of,
                {name: worth[name][i].float().cpu().numpy() for name in self.sizes},
                {name: kept[name][i].cpu().numpy() for name in self.sizes},
                budget,
            )
            for i, budget in enumerate(budgets)
        ]
        found = list(self.pool.map(_chains, each))
        return {
            name: torch.from_numpy(np.stack([one[name] for one in found])).to(kept[name].device)
            for name in self.sizes
        }


def _calmly() -> None:
    torch.set_num_threads(1)


def _chains(given: tuple[Any, ...]) -> dict[str, Any]:
    sizes, worth, kept, wanted = given
    one = chooser(skeleton.GCN(**sizes), "chains")
    first, second = (
        {name: torch.from_numpy(a)[None] for name, a in part.items()} for part in (worth, kept)
    )
    return {name: mask[0].numpy() for name, mask in one(first, second, [wanted]).items()}


def settings(part: str, layout: skeleton.Layout) -> str:
    """A few letters that stand for all that a part is made with."""
    course, own = parts(COURSES["default"])[part]
    told = course.to_dict(), rules(course), options_for(layout) | own
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]


def kind(source: str) -> str:
    """What a set is called, wherever it lies."""
    return source.partition(":")[0]


def cell(values: list[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def difference(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """The mean of paired differences, and its 95 % interval."""
    each = [theirs[case] - ours[case] for case in sorted(ours.keys() & theirs.keys())]
    if not each:
        return ""
    mean = statistics.mean(each)
    if len(each) < 2:
        return f"{mean:+.1f}"
    half = T95.get(len(each) - 1, 1.96) * statistics.stdev(each) / math.sqrt(len(each))
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: top-1 of every part, and what leaving it out costs."""
    lines = []
    for data, length in dict.fromkeys((row["data"], row["length"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["length"]) == (data, length)]
        total = max(row["total"] for row in mine)
        made = "; synthetic recordings" if mine[0]["synthetic"] else ""
        made += f"; {length:g} of the course's length" if length != 1 else ""
        sparsities = sorted({row["sparsity"] for row in mine})
        by: dict[tuple[str, float], dict[int, float]] = {}
        for row in mine:
            by.setdefault((row["part"], row["sparsity"]), {})[row["case"]] = row["top1"]
        names = [f"{100 * s:.6g} %" if s else "dense" for s in sparsities]
        head = f"| part | {' | '.join(names)} |\n|---|{'---|' * len(names)}"
        lines += [f"## {data}: {total:,} connections{made}\n", head]
        done = dict.fromkeys(row["part"] for row in mine)
        for part in done:
            cells = [
                cell(list(by[part, s].values())) if (part, s) in by else "" for s in sparsities
            ]
            lines.append(f"| {part} | {' | '.join(cells)} |")
        others = [part for part in done if part != DEFAULT]
        if others:
            lines += [f"\nAgainst the {DEFAULT}, paired, with 95 % intervals:\n", head]
        for part in others:
            cells = [
                difference(by[DEFAULT, s], by[part, s])
                if (part, s) in by and (DEFAULT, s) in by and s
                else ""
                for s in sparsities
            ]
            lines.append(f"| {part} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    everything = parts(COURSES["default"])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sparsity", type=float, nargs="+", default=list(SPARSITIES))
    parser.add_argument("--parts", nargs="+", choices=everything, default=[DEFAULT])
    parser.add_argument("--length", type=float, default=1.0, help="times the course's epochs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--workers", type=int, default=2, help="processes that walk chains")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start nothing afterwards")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "shrink.jsonl"
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    for source in options.data:
        bench = None
        for name in options.parts:
            course, own = everything[name]
            course = course.times(options.length)
            if time.monotonic() - began > options.seconds:
                continue
            bench = bench or Bench(source, options)
            have = bench.known(rows)
            wanted = [
                s for s in options.sparsity
                if not {(kind(source), options.length, name, s, c) for c in bench.cases} <= have
            ]  # fmt: skip
            if not wanted:
                continue
            made = bench.rows(name, course, own, wanted)
            made = [row for row in made if tuple(row[key] for key in KEYS) not in have]
            with store.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in made)
            rows += made
            print(
                f"{time.monotonic() - began:6.0f} s  {source}, {name}", file=sys.stderr, flush=True
            )
    (options.out / "shrink.md").write_text(tables(rows))
    print(tables(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
