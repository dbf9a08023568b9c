"""Damage every field of compacted models' lists of operations, load and call what is left.

A process of its own, since what this looks for ends the process: ``python -m
tests.deploy.compact.mutants FOLDER`` prints one line of counts, or dies.
"""

from __future__ import annotations

import copy
import dataclasses
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import trellis
from trellis.saving.folder import read_folder
from trellis.saving.model import rebuilt


class Reader(nn.Module):
    """A recurrent layer, of which the last step is read."""

    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.cell = kind(5, 7, batch_first=True, **options)
        self.head = nn.Linear(7 * (2 if self.cell.bidirectional else 1), 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.cell(x)[0][:, -1])
        return out


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))
        return out


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.embedding(x).mean(1))
        return out


def models() -> dict[str, tuple[nn.Module, Tensor]]:
    cnn = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, groups=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip
    steps = torch.zeros(1, 4, 5)
    return {
        "lstm": (Reader(nn.LSTM, num_layers=2, bidirectional=True), steps),
        "gru": (Reader(nn.GRU), steps),
        "attention": (Attention(), torch.zeros(1, 4, 8)),
        "cnn": (cnn, torch.zeros(1, 2, 8, 8)),
        "embedding": (Words(), torch.zeros(1, 4, dtype=torch.int64)),
    }


def fields(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if at:
        yield at, value
    if isinstance(value, dict | list):
        parts: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            yield from fields(part, (*at, key))


def others(value: Any, names: list[str], draw: random.Random) -> list[Any]:
    """What a field may be changed to."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, 2**31, 2**62]
    if isinstance(value, float):
        return [-1.0, {"float": "nan"}]
    if isinstance(value, str):
        return draw.sample(names, 2)
    if isinstance(value, list):
        return [value[::-1], value[:-1], value + value]
    return [None]


def mutants(arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same description with one field changed, one operation dropped or said twice."""
    draw = random.Random(0)
    names = sorted({v for _, v in fields(arguments["program"]) if isinstance(v, str)})
    for path, value in list(fields(arguments)):
        if path[0] == "report":
            continue
        for other in others(value, names, draw):
            changed = copy.deepcopy(arguments)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = other
            yield changed
    for i, op in enumerate(arguments["program"]["ops"]):
        for ops in ([], [op, op]):
            changed = copy.deepcopy(arguments)
            changed["program"]["ops"][i : i + 1] = ops
            yield changed


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    for name, (model, example) in models().items():
        trellis.save(trellis.compact(model, example), folder / name)
        saved = read_folder(folder / name)
        assert saved.architecture is not None
        for arguments in mutants(saved.architecture["arguments"]):
            changed = dataclasses.replace(
                saved, architecture=saved.architecture | {"arguments": arguments}
            )
            try:
                loaded: Any = rebuilt(changed)
            except trellis.TrellisError:
                counts["refused"] += 1
                continue
            with torch.no_grad():
                (x,) = loaded.example()
                for given in (x, torch.cat([x, x, x]), x.movedim(0, 1), x[..., :-1]):
                    try:
                        loaded(given)
                        counts["ran"] += 1
                    except (trellis.TrellisError, RuntimeError, IndexError):
                        counts["refused at the call"] += 1
    print(dict(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
