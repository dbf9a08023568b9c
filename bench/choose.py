"""Settings of ``trellis shrink``, compared on recordings held out of training splits.

``python bench/choose.py nw-ucla:PATH mtm1:PATH harder:5 --held little --variants whole "whole,
dropout 0.5" --device cuda --precision bf16 --workers 8 --out FOLDER`` makes networks in each of
``--variants`` (`variants.py`) on each part that `held.py` holds out of the sets, and prints their
top-1 accuracy there: of the first variant, and how far the others are from it, paired by part, with
the standard error over parts. Test splits are never looked at. A second round with another
``--seed`` tells luck from gain: among many comparisons some are always ahead.

Parts are made in ``--workers`` processes at once (on a GPU with CUDA's MPS daemon running, they
share it well), or on a Ray cluster with ``--ray``; variants of a part that train dense networks
alike share those. Finished variants are kept in FOLDER/choose.jsonl, with the settings that they
were made with: what was made with others is neither shown nor counted. After ``--seconds`` nothing
more is begun.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from held import HELD, loaded, parts
from rules import rules
from shrink import add_cluster, runner_of
from variants import VARIANTS, Variant

from trellis import skeleton
from trellis.methods.budget import budget
from trellis.skeleton.data.layouts import FPHA, NW_UCLA
from trellis.skeleton.shrink import Course, Maker, options_for
from trellis.training import Weights, accuracies

Row = dict[str, Any]


class Part:
    """Recordings to train on and to judge by, and the dense networks that variants share."""

    def __init__(
        self, data: skeleton.Skeletons, train: np.ndarray, judge: np.ndarray,
        options: argparse.Namespace,
    ) -> None:  # fmt: skip
        self.data, self.train, self.judge, self.options = data, train, judge, options
        self.dense: dict[str, Weights] = {}

    def top1(self, variant: Variant) -> dict[str, float]:
        """Mean over seeds of the dense networks' accuracy, and of that at each sparsity."""
        options, fold = self.options, skeleton.Fold("held out", self.train, self.judge)
        how = options_for(self.data.layout) | dict(variant.own)
        recognizer = skeleton.Recognizer.fresh(self.data, fold, **how)
        labels = torch.from_numpy(recognizer.labels(self.data))

        def places(chosen: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(recognizer.places([self.data.sequences[i] for i in chosen]))

        course = variant.course.times(options.length)
        maker = Maker(
            recognizer, places(self.train), labels[self.train], course,
            device=options.device, precision=options.precision,
        )  # fmt: skip
        seeds = list(range(options.seed, options.seed + options.seeds))
        key = json.dumps([how, seeds, trained_as(maker.course)], sort_keys=True)
        if key not in self.dense:
            self.dense[key] = maker.train(seeds)
        dense = self.dense[key]
        cells = [(i, s) for s in options.sparsity for i in range(options.seeds)]
        targets = [budget(maker.connections, s) for _, s in cells]
        small = maker.shrink(dense, seeds, targets, [i for i, _ in cells])
        judged = places(self.judge).to(options.device), labels[self.judge].to(options.device)
        found = 100 * accuracies(maker.forward, small.weights, *judged)
        whole = 100 * accuracies(maker.forward, dense, *judged).mean()
        by_sparsity = found.view(-1, options.seeds).mean(1).tolist()
        named = [f"{100 * s:.6g} %" for s in options.sparsity]
        return {"dense": float(whole)} | dict(zip(named, by_sparsity, strict=True))


def trained_as(course: Course) -> dict[str, Any]:
    """What of a course dense networks depend on."""
    alike = replace(course.recipe, prune_epochs=1, prune_every=1, tune_epochs=1)
    alike = replace(alike, prune_rate=1.0, tune_rate=1.0, tune_smoothing=None)
    varied = course.augmentation
    return {"recipe": alike.to_dict(), "augmentation": None if varied is None else varied.to_dict()}


@lru_cache
def _loaded(source: str) -> skeleton.Skeletons:
    return loaded(source)


def starting(
    options: argparse.Namespace, until: float
) -> Callable[[tuple[str, str, Sequence[str]]], list[Row]]:
    """What a worker does with a job; in a pool it takes a share of the processor's cores."""
    if options.ray is None:
        torch.set_num_threads(max(1, torch.get_num_threads() // options.workers))
    return partial(made, options=options, until=until)


def made(
    job: tuple[str, str, Sequence[str]], options: argparse.Namespace, until: float
) -> list[Row]:
    """Each of the wanted variants of one part; in a pool, kept as soon as it is finished."""
    source, part, wanted = job
    data = _loaded(source)
    train, judge = {name: pair for name, *pair in parts(data, options.held)}[part]
    whole, rows = Part(data, train, judge, options), []
    for name in wanted:
        if time.time() > until:
            break
        began = time.monotonic()
        top1 = whole.top1(VARIANTS[name])
        rows.append({
            "variant": name, "settings": settings(VARIANTS[name], options), "part": part,
            "top1": top1,
        })  # fmt: skip
        if options.ray is None:
            keep(options, rows[-1:])
        said = ", ".join(f"{key} {value:.1f}" for key, value in top1.items())
        print(f"{part}: {name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    return rows


def keep(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Append finished variants to the file of the run."""
    with (options.out / "choose.jsonl").open("a") as file:  # short lines: others write too
        file.writelines(json.dumps(row) + "\n" for row in rows)


def settings(variant: Variant, options: argparse.Namespace) -> str:
    """A few letters that stand for all that a variant is made with."""
    told = (
        variant.course.times(options.length).to_dict(), *variant[1:],
        [options_for(layout) for layout in (FPHA, NW_UCLA)],
        options.seeds, options.seed, options.sparsity, options.precision, options.held,
        rules(variant.course),
    )  # fmt: skip
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]


def table(rows: Sequence[Row]) -> str:
    """Markdown: for each kind of part, the first variant's mean, and paired differences to it.

    >>> rows = [{"variant": v, "part": f"few, eighth {i}", "top1": {"dense": 90.0, "99 %": x}}
    ...         for v, xs in (("whole", (80.0, 84.0)), ("other", (81.0, 86.0)))
    ...         for i, x in enumerate(xs)]
    >>> print(table(rows))
    | few, eighth: variant | parts | dense | 99 % |
    |---|---|---|---|
    | whole | 2 | 90.0 | 82.0 |
    | other | 2 | +0.0 ± 0.0 | +1.5 ± 0.5 |
    <BLANKLINE>
    """
    by: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        by.setdefault(row["variant"], {})[row["part"]] = row["top1"]
    first = next(iter(by))
    columns = list(rows[0]["top1"])
    lines = []
    for kind in dict.fromkeys(kind_of(part) for part in by[first]):
        base = {part: top1 for part, top1 in by[first].items() if kind_of(part) == kind}
        lines += [
            f"| {kind}: variant | parts | {' | '.join(columns)} |",
            "|---" * len(columns) + "|---|---|",
        ]
        means = [statistics.mean(top1[c] for top1 in base.values()) for c in columns]
        lines.append(f"| {first} | {len(base)} | {' | '.join(f'{mean:.1f}' for mean in means)} |")
        for variant, found in by.items():
            common = [part for part in base if part in found]
            if variant == first or not common:
                continue
            cells = [
                difference([found[part][c] - base[part][c] for part in common]) for c in columns
            ]
            lines.append(f"| {variant} | {len(common)} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def kind_of(part: str) -> str:
    """What parts are averaged over: those whose names differ by a number.

    >>> [kind_of(part) for part in ("nw-ucla, eighth 3", "nw-ucla, camera 0", "harder:5")]
    ['nw-ucla, eighth', 'nw-ucla, camera', 'harder']
    """
    return re.sub(r"[ :]\d+$", "", part)


def difference(each: Sequence[float]) -> str:
    """A mean and its standard error."""
    mean = statistics.mean(each)
    if len(each) < 2:
        return f"{mean:+.1f}"
    return f"{mean:+.1f} ± {statistics.stdev(each) / math.sqrt(len(each)):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--held", choices=HELD, default="apart", help="what is held out (held.py)")
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.99, 0.999, 0.9995])
    parser.add_argument("--seeds", type=int, default=3, help="networks of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--length", type=float, default=1.0, help="times the course's epochs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    add_cluster(parser)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing afterwards")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    until = time.time() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "choose.jsonl"
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    own = {name: settings(VARIANTS[name], options) for name in options.variants}
    rows = [row for row in rows if own.get(row["variant"]) == row["settings"]]
    have = {(row["variant"], row["part"]) for row in rows}
    from choose import starting  # by its name, so that a worker on a cluster can import it

    with runner_of(options).cells(starting, options, until) as cells:
        waiting = []
        for source in options.data:
            for part, *_ in parts(_loaded(source), options.held):
                wanted = [name for name in options.variants if (name, part) not in have]
                waiting.append(cells.submit((source, part, wanted)))
        for one in as_completed(waiting):
            rows += one.result()
            if options.ray is not None:
                keep(options, one.result())
    rows.sort(key=lambda row: (options.variants.index(row["variant"]), row["part"]))
    print(table(rows) if rows else "nothing was made")


if __name__ == "__main__":
    main()
