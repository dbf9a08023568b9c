"""What `trellis.shrink(..., quantize="int8")` gives where int8 arithmetic rounds.

``python bench/quantize.py --seeds 3 --out FOLDER`` shrinks small networks with and without
quantisation-aware fine-tuning: same weights at first, same steps, same batches. Each is exported in
int8 arithmetic, calibrated on 256 training inputs, and run on the test inputs by `trellis.Runtime`.
The table gives accuracy and loss on test data, in floats and in int8 arithmetic, mean over seeds,
and the paired difference of the loss in int8 arithmetic.

Most networks classify scikit-learn's digits, with inputs between 0 and 1, or far from 0: a byte
must be able to say 0, so that few of its levels are then left for them. One computes the position
of an arm from the angles of its three joints, a smooth function of which 256 levels are a coarse
picture. Finished rows are stored in FOLDER/quantize.jsonl and not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from shrink_any import Data, Shuffled, cnn, digits, mlp, optimizer
from torch import Tensor, nn
from torch.nn import functional as F

import trellis

CALIBRATION = 256


def narrow() -> nn.Module:
    """A CNN of 3,584 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


def separable() -> nn.Module:
    """Six depthwise separable blocks."""

    def block() -> list[nn.Module]:
        depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        pointwise = nn.Conv2d(8, 8, 1, bias=False)
        return [depthwise, nn.BatchNorm2d(8), nn.ReLU(), pointwise, nn.BatchNorm2d(8), nn.ReLU()]

    first = [nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    blocks = [layer for _ in range(6) for layer in block()]
    return nn.Sequential(*first, *blocks, nn.Flatten(), nn.Linear(512, 10))


def perceptron(act: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 64), act(), nn.Linear(64, 64), act(), nn.Linear(64, 64), act(),
        nn.Linear(64, 2),
    )  # fmt: skip


def images(offset: float) -> Data:
    """The digits, with inputs between ``offset`` and ``offset + 1``."""
    found = digits((1, 8, 8))
    return found._replace(x=(found.x + 1) / 2 + offset, test_x=(found.test_x + 1) / 2 + offset)


def arm() -> Data:
    """The position of an arm of three parts, from its joints' angles."""

    def drawn(count: int, seed: int) -> tuple[Tensor, Tensor]:
        x = 2 * torch.rand(count, 3, generator=torch.Generator().manual_seed(seed)) - 1
        angles, lengths = (1.5 * x).cumsum(1), torch.tensor([1.0, 0.7, 0.4])
        return x, torch.stack([(lengths * angles.cos()).sum(1), (lengths * angles.sin()).sum(1)], 1)

    return Data(*drawn(4000, 1), *drawn(2000, 2))


class Case(NamedTuple):
    """A network, its data, how much of it is removed, and the optimizer steps."""

    make: Callable[[], nn.Module]
    data: Callable[[], Data]
    sparsity: float
    steps: int


CASES = {
    "CNN, inputs from 0 to 1": Case(cnn, lambda: images(0), 0.95, 1200),
    "MLP, inputs from 0 to 1": Case(mlp, lambda: images(0), 0.95, 2000),
    "separable CNN, inputs from 0 to 1": Case(separable, lambda: images(0), 0.9, 2000),
    "narrow CNN, inputs from 0 to 1": Case(narrow, lambda: images(0), 0.95, 1200),
    "narrow CNN, inputs from 8 to 9": Case(narrow, lambda: images(8), 0.95, 1200),
    "narrow CNN, inputs from 30 to 31": Case(narrow, lambda: images(30), 0.95, 1200),
    "arm, MLP with ReLU": Case(lambda: perceptron(nn.ReLU), arm, 0.9, 3000),
    "arm, MLP with tanh": Case(lambda: perceptron(nn.Tanh), arm, 0.9, 3000),
}


def measured(name: str, seed: int, quantize: str | None) -> dict[str, Any]:
    """Shrink one network; return the row of the result."""
    case = CASES[name]
    given = case.data()
    torch.manual_seed(seed)
    model = case.make()
    began = time.perf_counter()
    found = trellis.shrink(
        model, Shuffled(given.x, given.y), sparsity=case.sparsity, steps=case.steps, seed=seed,
        optimizer=optimizer, trained=False, device="cpu", progress=False, quantize=quantize,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    model.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        written = trellis.export_c(
            model, given.x[:1], folder, arithmetic="int8", calibration=given.x[:CALIBRATION]
        )
        runtime = trellis.Runtime(Path(folder) / "model.trellis")
        whole = torch.from_numpy(runtime.predict(given.test_x.numpy()))
        single = model(given.test_x)
    assert written.loss is not None
    row = {"case": name, "seed": seed, "quantize": quantize, "kept": found.masks.kept}
    for form, scores in (("float", single), ("int8", whole)):
        row[form] = {"accuracy": accuracy(scores, given), "loss": loss(scores, given)}
    return row | {"deviation": written.loss.typical, "seconds": round(seconds, 1)}


def accuracy(scores: Tensor, given: Data) -> float | None:
    if given.test_y.is_floating_point():
        return None
    return float((scores.argmax(1) == given.test_y).double().mean())


def loss(scores: Tensor, given: Data) -> float:
    """Cross entropy of classes, or the root of the mean squared error."""
    if given.test_y.is_floating_point():
        return float(F.mse_loss(scores, given.test_y).sqrt())
    return float(F.cross_entropy(scores, given.test_y))


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    ways: tuple[tuple[str | None, str], ...] = (
        (None, "float"), (None, "int8"), ("int8", "float"), ("int8", "int8")
    )  # fmt: skip
    lines = [
        "| network | pruned | accuracy, %: float, int8 | with quantize: float, int8 | "
        "loss: float, int8 | with quantize: float, int8 | difference in int8 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["case"] for row in rows):
        at = {(row["quantize"], row["seed"]): row for row in rows if row["case"] == name}
        seeds = sorted({seed for _, seed in at if {(None, seed), ("int8", seed)} <= at.keys()})
        if not seeds:
            continue
        cells = []
        for key, scale, places in (("accuracy", 100, 2), ("loss", 1, 5)):
            values = [[at[way, seed][form][key] for seed in seeds] for way, form in ways]
            known = None not in values[0]
            told = [
                f"{scale * statistics.fmean(each):.{places}f}" if known else "" for each in values
            ]
            cells += [", ".join(told[:2]) if known else "", ", ".join(told[2:]) if known else ""]
        apart = [after - before for before, after in zip(values[1], values[3], strict=True)]
        error = statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
        cells.append(f"{statistics.fmean(apart):+.5f} ± {error:.5f}")
        lines.append(f"| {name} | {100 * CASES[name].sparsity:g} % | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--out", type=Path, default=Path("runs/quantize"), help="folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    path = given.out / "quantize.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["case"], row["seed"], row["quantize"]) for row in rows}
    for name in given.cases:
        for seed in range(given.seeds):
            for quantize in (None, "int8"):
                if (name, seed, quantize) in done:
                    continue
                rows.append(measured(name, seed, quantize))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                with path.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(table([row for row in rows if row["case"] in given.cases]))


if __name__ == "__main__":
    main()
