"""One training for all rates beside a training for each: accuracy and time.

``python bench/nested.py hands45 mtm1:PATH digits --seeds 3 --out FOLDER`` shrinks a network once to
three rates (`trellis.Nested`), and once to each of five rates: the three, and one between each two
of them, which comes out of the nested networks without training. Recordings are named by a graph
network of 8 heads and 32 filters, at a tenth of the course's length (``--length``). digits is the
CNN of bench/shrink_any.py on scikit-learn's digits. It prints accuracy on test data, mean and
standard deviation over seeds, the paired difference, and the processor time of the trainings.
Finished rows are stored in FOLDER/nested.jsonl and not made again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import shrink_any
import torch

import trellis
from trellis import skeleton
from trellis.methods.budget import budget
from trellis.skeleton.model.gcn import GCN
from trellis.skeleton.shrink import Maker, course_named, options_for
from trellis.training import accuracies, stack

RECORDINGS, DIGITS = "recordings", "digits"
HOW = ("nested", "alone")
ASKED = {RECORDINGS: (0.9, 0.99, 0.998), DIGITS: (0.8, 0.95, 0.98)}
BETWEEN = {RECORDINGS: (0.95, 0.995), DIGITS: (0.9, 0.97)}
SIZES: dict[str, Any] = {"heads": 8, "filters": 32, "kinds": ("coordinates",)}
Row = dict[str, Any]


def recordings(source: str, seed: int, length: float, how: str) -> list[Row]:
    """Shrink a graph network; the dense one and the teacher at 1 % are trained once."""
    data = skeleton.load_dataset(source)
    fold = data.folds[0]
    fresh = skeleton.Recognizer.fresh(data, fold, seed=seed, **options_for(data.layout) | SIZES)
    labels = fresh.labels(data)

    def part(chosen: Any) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.from_numpy(fresh.places([data.sequences[i] for i in chosen]))
        return x, torch.from_numpy(labels[chosen])

    maker = Maker(fresh, *part(fold.train), course_named("default").times(length))
    test = part(fold.test)
    began = time.process_time()
    dense = maker.train([seed])
    first = time.process_time() - began
    rows: list[Row] = []
    total = maker.connections
    if how == "nested":
        began = time.process_time()
        nested = maker.nested(dense, seed, [budget(total, rate) for rate in ASKED[RECORDINGS]])
        took = first + time.process_time() - began
        for rate in _rates(RECORDINGS):
            model = GCN(**fresh.model.sizes)
            nested.apply(model, sparsity=rate)
            trellis.masks_of(model).bake(model)
            rows.append(_row(rate, _right(maker, stack([model]), test), took))
        return rows
    shared: dict[Any, float] = {}
    for rate in _rates(RECORDINGS):
        target = budget(total, rate)
        kind = maker.course.distills(target, total), maker.course.waypoint(target, total)
        began = time.process_time()
        maker.begin(dense, [seed], [target])
        shared.setdefault(kind, time.process_time() - began)
        began = time.process_time()
        small = maker.shrink(dense, [seed], [target], name=str(target))
        took = first + shared[kind] + time.process_time() - began
        rows.append(_row(rate, _right(maker, small.weights, test), took))
    return rows


def _right(maker: Maker, weights: Any, test: tuple[torch.Tensor, torch.Tensor]) -> float:
    return float(accuracies(maker.forward, weights, *test))


def digits(seed: int, length: float, how: str) -> list[Row]:
    """Shrink a CNN with `trellis.shrink` and its defaults."""
    kind = shrink_any.KINDS["CNN"]
    data = kind.data()
    batches = shrink_any.Shuffled(data.x, data.y)

    steps = round(10 * length * kind.steps)  # by default those of bench/shrink_any.py

    def shrunk(sparsity: Any, steps: int) -> tuple[trellis.Shrunk, float]:
        torch.manual_seed(seed)
        model = kind.make()
        began = time.process_time()
        found = trellis.shrink(
            model, batches, sparsity=sparsity, steps=steps, seed=seed, device="cpu", progress=False
        )
        return found, time.process_time() - began

    rows: list[Row] = []
    if how == "alone":
        for rate in _rates(DIGITS):
            found, took = shrunk(rate, steps)
            rows.append(_row(rate, shrink_any.accuracy(found.model, data), took))
        return rows
    found, took = shrunk(ASKED[DIGITS], 2 * steps)  # half as many again for each further
    assert found.nested is not None
    for rate in _rates(DIGITS):
        model = kind.make()
        model.load_state_dict(found.model.state_dict(), strict=False)
        found.nested.apply(model, sparsity=rate)
        rows.append(_row(rate, shrink_any.accuracy(model, data), took))
    return rows


def _rates(name: str) -> list[float]:
    return sorted(ASKED[name] + BETWEEN[name])


def _row(rate: float, accuracy: float, seconds: float) -> Row:
    return {"rate": rate, "accuracy": accuracy, "seconds": seconds}


def printed(title: str, rows: list[Row]) -> None:
    """Print the table of a task."""
    name = DIGITS if rows[0]["task"] == DIGITS else RECORDINGS
    seeds = sorted({row["seed"] for row in rows})
    print(f"\n### {title}, {len(seeds)} seeds\n")
    print("| removed | asked for | nested | alone | difference |\n|---|---|---|---|---|")

    def of(how: str, rate: float, what: str) -> list[float]:
        found = {row["seed"]: row for row in rows if (row["how"], row["rate"]) == (how, rate)}
        return [found[seed][what] for seed in seeds]

    for rate in _rates(name):
        pairs = [[100 * each for each in of(how, rate, "accuracy")] for how in HOW]
        apart = [a - b for a, b in zip(*pairs, strict=True)]
        asked = "yes" if rate in ASKED[name] else "no"
        cells = [_spread(each) for each in pairs]
        print(f"| {100 * rate:g} % | {asked} | {cells[0]} | {cells[1]} | {_spread(apart, '+')} |")
    one = statistics.mean(of("nested", ASKED[name][0], "seconds"))
    each = sum(statistics.mean(of("alone", rate, "seconds")) for rate in ASKED[name])
    print(
        f"\nProcessor time: {one:.0f} s for the nested networks, {each:.0f} s for a training at "
        f"each of the {len(ASKED[name])} rates asked for ({one / each:.2f} times as long)."
    )


def _spread(values: list[float], sign: str = "") -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):{sign}.1f} ± {deviation:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tasks", nargs="+", metavar="SOURCE|digits")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--length", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=Path("bench/results"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "nested.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    for seed, source, how in itertools.product(range(given.seeds), given.tasks, HOW):
        task = source.partition(":")[0]
        about = {"task": task, "length": given.length, "seed": seed, "how": how}
        if any(about.items() <= row.items() for row in rows):
            continue
        if task == DIGITS:
            found = digits(seed, given.length, how)
        else:
            found = recordings(source, seed, given.length, how)
        made = [about | row for row in found]
        rows += made
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in made)
    for source in given.tasks:
        task = source.partition(":")[0]
        chosen = [row for row in rows if (row["task"], row["length"]) == (task, given.length)]
        printed(f"{task}, length {given.length:g}", chosen)


if __name__ == "__main__":
    main()
