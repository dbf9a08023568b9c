"""How accurate `trellis.shrink` leaves small networks of four kinds, beside gradual pruning.

``python bench/shrink_any.py --seeds 3 --out FOLDER`` trains a CNN and an MLP on scikit-learn's
digits, an LSTM that reads their rows one by one, and a transformer that reads them as tokens. Each
is pruned by `trellis.shrink` with its defaults, and by gradual magnitude pruning (GMP: global,
cubic, one cosine) in the same number of steps, with the same optimizer, from the same weights. It
prints accuracy on test data, mean and standard error over seeds, and the paired difference.
Finished rows are stored in FOLDER/shrink_any.jsonl and not made again. ``--set distill=0.5 --name
distilled`` changes an option of shrink.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import trellis

SPARSITIES = (0.95, 0.99)
BATCH = 64
Batches = list[tuple[Tensor, Tensor]]


class Data(NamedTuple):
    """Training and test data."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


class Shuffled:
    """Batches in a new order at every epoch, drawn from torch's generator."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x) // BATCH

    def __iter__(self) -> Any:
        order = torch.randperm(len(self.x))
        for i in range(len(self)):
            chosen = order[i * BATCH : (i + 1) * BATCH]
            yield self.x[chosen], self.y[chosen]


def digits(shape: tuple[int, ...]) -> Data:
    """Scikit-learn's digits: 1,797 images of 8 x 8, every fourth for the test."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.data, dtype=torch.float32).div(8).sub(1).reshape(-1, *shape)
    y = torch.tensor(found.target, dtype=torch.long)
    test = torch.arange(len(x)) % 4 == 0
    return Data(x[~test], y[~test], x[test], y[test])


def tokens() -> Data:
    """The digits as sixteen tokens of 17 grey levels, each the mean of four pixels."""
    found = digits((1, 8, 8))

    def read(x: Tensor) -> Tensor:
        return F.avg_pool2d((x + 1) * 8, 2).round().long().flatten(1)

    return Data(read(found.x), found.y, read(found.test_x), found.test_y)


class Lstm(nn.Module):
    """Reads rows of an image; the last state names the class."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 64, batch_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.lstm(x)[0][:, -1]
        found: Tensor = self.head(hidden)
        return found


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        each = (
            self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        found = F.scaled_dot_product_attention(each[0], each[1], each[2])
        x = x + self.out(found.transpose(1, 2).reshape(batch, length, width))
        moved: Tensor = x + self.narrow(F.gelu(self.wide(self.between(x))))
        return moved


class Transformer(nn.Module):
    """Two blocks over tokens; the mean over positions names the class."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(17, width)
        self.places = nn.Parameter(0.1 * torch.randn(16, width))
        self.blocks = nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.norm(self.blocks(self.tokens(x) + self.places).mean(1)))
        return found


def cnn() -> nn.Module:
    def layer(before: int, after: int, stride: int) -> list[nn.Module]:
        conv = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(after), nn.ReLU()]

    return nn.Sequential(
        *layer(1, 32, 1), *layer(32, 64, 2), *layer(64, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, 10),
    )  # fmt: skip


class Kind(NamedTuple):
    """A network and its data."""

    make: Callable[[], nn.Module]
    data: Callable[[], Data]
    steps: int


KINDS = {
    "CNN": Kind(cnn, lambda: digits((1, 8, 8)), 1200),
    "MLP": Kind(mlp, lambda: digits((1, 8, 8)), 2000),
    "LSTM": Kind(Lstm, lambda: digits((8, 8)), 1200),
    "transformer": Kind(Transformer, tokens, 1200),
}
RATE = 3e-3


def optimizer(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=RATE)


@torch.no_grad()
def accuracy(model: nn.Module, data: Data) -> float:
    model.eval()
    return float((model(data.test_x).argmax(1) == data.test_y).double().mean())


def dense(model: nn.Module, data: Data, sparsity: float, steps: int, seed: int) -> None:
    """Train for all steps, without pruning."""
    gmp(model, data, 0.0, steps, seed)


def gmp(model: nn.Module, data: Data, sparsity: float, steps: int, seed: int) -> None:
    """Gradual magnitude pruning, global and cubic (Zhu & Gupta, 2017), under one cosine."""
    torch.manual_seed(seed)
    schedule = trellis.Schedule(
        "cubic", begin=steps // 5, end=steps * 3 // 4, every=max(steps // 100, 1)
    )
    pruner = trellis.Pruner(
        model, data.x[:1], sparsity=sparsity, schedule=schedule, method="magnitude",
        consistent=False,
    )  # fmt: skip
    adam = optimizer([{"params": list(model.parameters())}])
    warm, step = steps // 50, 0
    while step < steps:
        for x, y in Shuffled(data.x, data.y):
            rate = min((step + 1) / warm, 1) * 0.5 * (1 + math.cos(math.pi * step / steps))
            adam.param_groups[0]["lr"] = RATE * rate
            model.train()
            adam.zero_grad()
            F.cross_entropy(model(x), y).backward()
            adam.step()
            pruner.step()
            step += 1
            if step == steps:
                break


def shrunk(
    model: nn.Module, data: Data, sparsity: float, steps: int, seed: int, options: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"optimizer": optimizer, "progress": False, "device": "cpu"}
    loader = Shuffled(data.x, data.y)
    trellis.shrink(model, loader, sparsity=sparsity, steps=steps, seed=seed, **(given | options))


def measured(kind: str, sparsity: float, seed: int, way: str, options: dict[str, Any]) -> Any:
    """Train and prune one network; return the row of the result."""
    torch.manual_seed(seed)
    random.seed(seed)
    model, data, steps = KINDS[kind].make(), KINDS[kind].data(), KINDS[kind].steps
    began = time.perf_counter()
    if way == "dense":
        dense(model, data, sparsity, steps, seed)
    elif way == "GMP":
        gmp(model, data, sparsity, steps, seed)
    else:
        shrunk(model, data, sparsity, steps, seed, options)
    seconds = time.perf_counter() - began
    found = trellis.audit(model, data.x[:1])
    dead_layers = sum(layer.live == 0 for layer in found.layers)
    return {
        "kind": kind, "sparsity": sparsity, "seed": seed, "way": way,
        "accuracy": accuracy(model, data), "kept": found.kept, "live": found.live_fraction,
        "dead_layers": dead_layers, "seconds": round(seconds, 1),
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown: accuracies in percent, mean and standard error."""
    ways = list(dict.fromkeys(row["way"] for row in rows if row["way"] not in ("dense", "GMP")))
    lines = [
        f"| network | pruned | dense | GMP | {' | '.join(ways)} | difference | live: GMP, ours | "
        "empty layers: GMP, ours |",
        "|---|---|---|---|" + "---|" * len(ways) + "---|---|---|",
    ]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for sparsity in sorted({row["sparsity"] for row in rows if row["sparsity"]}):
            at = {
                (row["way"], row["seed"]): row
                for row in rows
                if row["kind"] == kind and row["sparsity"] in (sparsity, 0.0)
            }
            seeds = sorted({seed for _, seed in at})

            def mean(way: str, key: str, at: Any = at, seeds: Any = seeds) -> list[float]:
                return [at[way, s][key] for s in seeds if (way, s) in at]

            told = [_told([100 * a for a in mean(w, "accuracy")]) for w in ("dense", "GMP", *ways)]
            last = ways[-1] if ways else "GMP"
            apart = [
                100 * (at[last, s]["accuracy"] - at["GMP", s]["accuracy"])
                for s in seeds
                if (last, s) in at and ("GMP", s) in at
            ]
            live = ", ".join(
                f"{100 * statistics.fmean(mean(w, 'live')):.1f} %" for w in ("GMP", last)
                if mean(w, "live")
            )  # fmt: skip
            empty = ", ".join(
                f"{statistics.fmean(mean(w, 'dead_layers')):.1f}" for w in ("GMP", last)
                if mean(w, "dead_layers")
            )  # fmt: skip
            lines.append(
                f"| {kind} | {100 * sparsity:g} % | {' | '.join(told)} | {_told(apart, '+')} | "
                f"{live} | {empty} |"
            )
    return "\n".join(lines)


def _told(values: list[float], sign: str = "") -> str:
    if not values:
        return ""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.fmean(values):{sign}.2f} ± {error:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--sparsities", nargs="+", type=float, default=SPARSITIES)
    parser.add_argument("--out", type=Path, help="folder for finished rows")
    parser.add_argument("--name", default="shrink", help="name of the way, with --set")
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE")
    given = parser.parse_args()
    options = {}
    for each in given.set:
        name, _, value = each.partition("=")
        try:
            options[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            options[name] = value
    rows: list[dict[str, Any]] = []
    path = None if given.out is None else given.out / "shrink_any.jsonl"
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            rows = [json.loads(line) for line in path.read_text().splitlines()]
    done = {(r["kind"], r["sparsity"], r["seed"], r["way"]) for r in rows}
    ways = [("dense", (0.0,)), ("GMP", given.sparsities), (given.name, given.sparsities)]
    for kind in given.kinds:
        for seed in range(given.seeds):
            for way, sparsities in ways:
                for sparsity in sparsities:
                    if (kind, sparsity, seed, way) in done:
                        continue
                    row = measured(kind, sparsity, seed, way, options)
                    print(json.dumps(row), file=sys.stderr, flush=True)
                    rows.append(row)
                    if path is not None:
                        with path.open("a") as file:
                            file.write(json.dumps(row) + "\n")
    print(table([row for row in rows if row["kind"] in given.kinds]))


if __name__ == "__main__":
    main()
