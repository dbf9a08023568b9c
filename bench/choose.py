"""Settings of ``trellis shrink``, compared on recordings held out of training splits.

``python bench/choose.py hands45 nw-ucla:PATH mtm1:PATH sbu:PATH --device cuda --out
FOLDER`` makes networks in each of ``--variants``, and prints their top-1 accuracy on what was held
out, for each part and on average. Test splits are never looked at. What is held out of a training
split: of ``hands45`` every fourth recording, twice; of NW-UCLA half of the people, both ways, and
one of its two cameras; of SBU one of the other folds; of MTM-1 a third of its videos, twice. With
``--held alike``, a quarter of the recordings at random, of the people that are trained on: of
``hands45`` once, of NW-UCLA (all cameras' recordings of a take together), SBU and MTM-1 twice; and
either camera of NW-UCLA. With ``--held little``, every eighth of them in turn: what is trained on
is then nearly as large as the training split. ``harder:SEED`` among the sets is made like
``hands45``, with people who differ twice as much, and judged by its test recordings, which are
nobody's test split.

Every variant changes one thing of a base: the default, but in 1,000 steps of pruning and of tuning
each.
Finished variants are kept in FOLDER/choose.jsonl, with the settings that they were made with: what
was made with others is neither shown nor counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rules import rules

from trellis import skeleton
from trellis.select.budget import budget
from trellis.skeleton.hands import hands45
from trellis.skeleton.layouts import FPHA, NW_UCLA
from trellis.skeleton.shrink import COURSES, Course, Maker, options_for
from trellis.train import accuracies

COURSE = replace(  # the default, but pruned and tuned in 1,000 steps each
    COURSES["default"],
    recipe=replace(COURSES["default"].recipe, prune_epochs=200, prune_every=2, tune_epochs=200),
)
WHOLE = COURSES["default"]
AUGMENTATION = skeleton.Augmentation()
WEAK = skeleton.Augmentation(rotation=(15, 15, 15), scale=0.1, warp=0.4, crop=0.85)


class Variant(NamedTuple):
    course: Course = COURSE
    own: Mapping[str, Any] = {}  # what is not as `options_for` has it


def retrained(course: Course = COURSE, **changes: Any) -> Variant:
    """A course with another recipe."""
    return Variant(replace(course, recipe=replace(course.recipe, **changes)))


VARIANTS = {
    "base": Variant(),
    "pruned in 3,000 steps": retrained(prune_epochs=600, prune_every=6),  # the default
    "tuned in 3,000 steps": retrained(tune_epochs=600, tune_rate=5e-3),
    "tuned at 5e-3": retrained(tune_rate=5e-3),
    "pruned at 1.5e-3": retrained(prune_rate=1.5e-3),
    "full batches": retrained(
        batch=None, epochs=2000, prune_epochs=1000, prune_every=10, tune_epochs=1000
    ),
    "batches of 64": retrained(
        batch=64, epochs=200, prune_epochs=100, prune_every=1, tune_epochs=100
    ),
    "biases": Variant(own={"bias": True}),
    "ReLU": Variant(own={"activation": "relu"}),
    "smoothed to the end": retrained(tune_smoothing=None),
    "nothing dropped": Variant(replace(COURSE, drop=0.0)),
    "0.5 dropped": Variant(replace(COURSE, drop=0.5)),
    "agreement 1": Variant(replace(COURSE, agreement=1.0)),
    "not mirrored": Variant(replace(COURSE, mirror=False)),
    "rotation 45": Variant(
        replace(COURSE, augmentation=replace(AUGMENTATION, rotation=(45.0, 45.0, 45.0)))
    ),
    "pruned at 6e-3": retrained(prune_rate=6e-3),
    "gradient to the power 0.25": Variant(replace(COURSE, sensitivity=0.25)),
    "gradient to the power 1": Variant(replace(COURSE, sensitivity=1.0)),
    "magnitude alone": Variant(replace(COURSE, sensitivity=0.0)),
    "SynFlow": Variant(replace(COURSE, method="synflow")),
    "cubic": Variant(replace(COURSE, curve="cubic")),
    "moments": Variant(own={"basis": "chunks"}),
    "bones": Variant(own={"kinds": ("bones",)}),
    "camera's frame": Variant(own={"frame": "camera"}),
    "recorded size": Variant(own={"size": "recorded"}),
    "noise 0.1": Variant(replace(COURSE, augmentation=replace(AUGMENTATION, noise=0.1))),
    "crop to 0.6": Variant(replace(COURSE, augmentation=replace(AUGMENTATION, crop=0.6))),
    "weaker variants": Variant(replace(COURSE, augmentation=WEAK)),
    "rotation 15": Variant(
        replace(COURSE, augmentation=replace(AUGMENTATION, rotation=(15.0, 15.0, 15.0)))
    ),
    "whole": Variant(WHOLE),
    "whole, pruned from all": Variant(replace(WHOLE, surplus=None)),
    "whole, surplus 10": Variant(replace(WHOLE, surplus=10.0)),
    "whole, surplus 3": Variant(replace(WHOLE, surplus=3.0)),
    "whole, trained half as long": retrained(WHOLE, epochs=400),
    "whole, trained twice as long": retrained(WHOLE, epochs=1600),
    "whole, pruned twice as long": retrained(WHOLE, prune_epochs=1200, prune_every=12),
    "whole, tuned at 3e-3": retrained(WHOLE, tune_rate=3e-3),
    "whole, tuned in 2,000 steps at 3e-3": retrained(WHOLE, tune_epochs=400, tune_rate=3e-3),
    "whole, tuned in 4,000 steps at 3e-3": retrained(WHOLE, tune_epochs=800, tune_rate=3e-3),
    "whole, tuned in 4,000 steps": retrained(WHOLE, tune_epochs=800),
    "whole, gradient to the power 0.25": Variant(replace(WHOLE, sensitivity=0.25)),
    "whole, gradient to the power 0.75": Variant(replace(WHOLE, sensitivity=0.75)),
    "whole, nothing dropped": Variant(replace(WHOLE, drop=0.0)),
    "whole, 0.5 dropped": Variant(replace(WHOLE, drop=0.5)),
    "whole, agreement 0.5": Variant(replace(WHOLE, agreement=0.5)),
    "whole, agreement 1": Variant(replace(WHOLE, agreement=1.0)),
    "whole, agreement 2": Variant(replace(WHOLE, agreement=2.0)),
    "whole, agreement 3": Variant(replace(WHOLE, agreement=3.0)),
    "whole, twice as long": Variant(WHOLE.times(2)),
    "whole, nothing dropped, twice as long": Variant(replace(WHOLE, drop=0.0).times(2)),
    "not taught": Variant(replace(COURSE, teachers=0)),
    "one teacher": Variant(replace(COURSE, teachers=1)),
    "four teachers": Variant(replace(COURSE, teachers=4)),
    "whole, not taught": Variant(replace(WHOLE, teachers=0)),
    "whole, taught, 0.5": Variant(replace(WHOLE, weight=0.5)),
    "whole, taught, 1": Variant(replace(WHOLE, weight=1.0)),
    "whole, one teacher": Variant(replace(WHOLE, teachers=1)),
    "whole, four teachers": Variant(replace(WHOLE, teachers=4)),
    "whole, four teachers, 0.5": Variant(replace(WHOLE, teachers=4, weight=0.5)),
}  # fmt: skip


HARDER = "harder:"


def loaded(source: str) -> skeleton.Skeletons:
    """A set, `HARDER` ones too."""
    if not source.startswith(HARDER):
        return skeleton.load(source)
    return replace(hands45(int(source.removeprefix(HARDER)), variety=2.0), source=source)


def parts(data: skeleton.Skeletons, held: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """What ``held`` says is held out of a set."""
    if data.source.startswith(HARDER):
        return iter([(data.source, data.folds[0].train, data.folds[0].test)])
    return HELD[held](data)


def held_out(data: skeleton.Skeletons) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Parts of a set's training split: a name, what is trained on, what is judged by."""
    kind, train = data.source.partition(":")[0], data.folds[0].train
    if kind == "sbu":
        others = [fold.test for fold in data.folds[1:]]
        yield "sbu, a fold", np.concatenate(others[1:]), others[0]
        return
    if kind == "nw-ucla":
        people, camera = (tags(data, train, tag) for tag in (r"_s(\d+)", r"_v(\d+)"))
        yield "nw-ucla, odd people", train[people % 2 == 1], train[people % 2 == 0]
        yield "nw-ucla, even people", train[people % 2 == 0], train[people % 2 == 1]
        yield "nw-ucla, a camera", train[camera == 0], train[camera == 1]
        return
    if kind == "mtm1":
        video = tags(data, train, r"(.*):")
        for third in (0, 1):
            judged = video % 3 == third
            yield f"mtm1, videos {third}", train[~judged], train[judged]
        return
    for quarter in (0, 1):
        judged = np.arange(len(train)) % 4 == quarter
        yield f"{kind}, quarter {quarter}", train[~judged], train[judged]


def alike(data: skeleton.Skeletons) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The same, judged by recordings of the people that are trained on."""
    kind, train = data.source.partition(":")[0], data.folds[0].train
    if kind == "nw-ucla":
        camera = tags(data, train, r"_v(\d+)")
        for other in (1, 0):
            yield f"nw-ucla, camera {other}", train[camera != other], train[camera == other]
    quarter = shares(data, train, 4, seed=7)
    for chosen in (0, 1) if kind != "hands45" else (0,):
        yield f"{kind}, takes {chosen}", train[quarter != chosen], train[quarter == chosen]


def little(data: skeleton.Skeletons) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The same, eight parts that leave most to train on."""
    kind, train = data.source.partition(":")[0], data.folds[0].train
    eighth = shares(data, train, 8, seed=11)
    for chosen in range(8):
        yield f"{kind}, eighth {chosen}", train[eighth != chosen], train[eighth == chosen]


HELD = {"apart": held_out, "alike": alike, "little": little}


def shares(data: skeleton.Skeletons, chosen: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Which of ``count`` random shares a recording is in; NW-UCLA's takes are not torn apart."""
    take = np.arange(len(chosen))
    if data.source.startswith("nw-ucla"):
        take = tags(data, chosen, r"(a\d+_s\d+_e\d+)")
    return (np.random.RandomState(seed).permutation(take.max() + 1) % count)[take]


def tags(data: skeleton.Skeletons, chosen: np.ndarray, pattern: str) -> np.ndarray:
    """What a pattern finds in the recordings' names, as the numbers of its sorted findings."""
    found = [re.search(pattern, data.names[i]) for i in chosen]
    return np.unique([match.group(1) for match in found if match], return_inverse=True)[1]


def accuracy(
    data: skeleton.Skeletons,
    train: np.ndarray,
    judge: np.ndarray,
    variant: Variant,
    options: argparse.Namespace,
) -> dict[str, float]:
    """Mean top-1 over seeds of the dense networks, and at each sparsity."""
    fold = skeleton.Fold("held out", train, judge)
    recogniser = skeleton.Recogniser.fresh(
        data, fold, **(options_for(data.layout) | dict(variant.own))
    )
    labels = torch.from_numpy(recogniser.labels(data))

    def places(chosen: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(recogniser.places([data.sequences[i] for i in chosen]))

    course = variant.course.times(options.length)
    maker = Maker(
        recogniser, places(train), labels[train], course,
        device=options.device, precision=options.precision,
    )  # fmt: skip
    seeds = list(range(max(options.seeds, course.dense_networks)))
    dense = maker.train(seeds)
    cells = [(seed, s) for s in options.sparsity for seed in range(options.seeds)]
    targets = [budget(maker.connections, s) for _, s in cells]
    small = maker.shrink(dense, seeds, targets, [seed for seed, _ in cells])
    x, y = places(judge).to(options.device), labels[judge].to(options.device)
    found = 100 * accuracies(maker.forward, small.weights, x, y).view(-1, options.seeds).mean(1)
    whole = 100 * accuracies(maker.forward, dense, x, y)[: options.seeds].mean()
    return {"dense": float(whole)} | {
        f"{100 * s:.6g} %": float(top1) for s, top1 in zip(options.sparsity, found, strict=True)
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each variant, the mean over the parts that all of them have."""
    by: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        by.setdefault(row["variant"], {})[row["part"]] = row["top1"]
    common = set.intersection(*(set(parts) for parts in by.values()))
    names = list(rows[0]["top1"])
    lines = [f"| variant | parts | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for variant, parts in by.items():
        means = [statistics.mean(parts[part][name] for part in common) for name in names]
        lines.append(f"| {variant} | {len(common)} | {' | '.join(f'{m:.1f}' for m in means)} |")
    return "\n".join(lines)


def settings(variant: Variant, options: argparse.Namespace) -> str:
    """A few letters that stand for all that a variant is made with."""
    told = (
        variant.course.times(options.length).to_dict(), *variant[1:],
        [options_for(layout) for layout in (FPHA, NW_UCLA)],
        options.seeds, options.sparsity, options.precision, options.held,
        rules(variant.course),
    )  # fmt: skip
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--held", choices=HELD, default="apart", help="what is held out (above)")
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.99, 0.999, 0.9995])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--length", type=float, default=1.0, help="times the course's epochs")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "choose.jsonl"
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    own = {name: settings(VARIANTS[name], options) for name in options.variants}
    rows = [row for row in rows if own.get(row["variant"]) == row["settings"]]
    began = time.monotonic()
    sets = [loaded(source) for source in options.data]
    for name in options.variants:
        for data in sets:
            for part, train, judge in parts(data, options.held):
                if any((row["variant"], row["part"]) == (name, part) for row in rows):
                    continue
                top1 = accuracy(data, train, judge, VARIANTS[name], options)
                rows.append({"variant": name, "settings": own[name], "part": part, "top1": top1})
                with store.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                said = ", ".join(f"{key} {value:.1f}" for key, value in top1.items())
                print(f"{time.monotonic() - began:6.0f} s  {name}: {part}: {said}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
