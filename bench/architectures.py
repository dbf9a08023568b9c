"""Trace, prune, audit and compact public architectures: `python bench/architectures.py`.

Prints one line for each as it goes, and writes the table into bench/results/architectures.md.
A failure is a line as well. `python bench/architectures.py Llama BERT` runs those two alone and
writes nothing.
"""

from __future__ import annotations

import argparse
import copy
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch
from public_models import Public, public_models
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import trellis

SPARSITY = 0.9
LIMIT = 300  # seconds for one architecture
PARTS = ("trace", "prune", "audit", "compact")
R = TypeVar("R")


@dataclass
class Row:
    """What was found on one architecture. ``error`` belongs to the first part that failed."""

    package: str
    name: str
    weights: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    live: float = 0.0
    reached: bool = False
    lost: int = 0  # layers that live in the dense network alone
    units: tuple[int, int] = (0, 0)
    failed: str = ""
    error: str = ""

    def timed(self, part: str, work: Callable[[], R]) -> R:
        """Run one part and keep its seconds; a failure is kept under its name."""
        self.failed = part
        start = time.perf_counter()
        found = work()
        self.seconds[part] = time.perf_counter() - start
        self.failed = ""
        return found

    def cells(self) -> list[str]:
        done = [f"{self.seconds[part]:.1f}" if part in self.seconds else "" for part in PARTS]
        pruned = f"{100 * self.live:.0f} %" if "audit" in self.seconds else ""
        sizes = f"{self.units[0]:,} → {self.units[1]:,}" if "compact" in self.seconds else ""
        note = f"{self.failed}: {self.error}" if self.error else ""
        if self.lost and not note:
            note = f"layers lost: {self.lost}"
        weights = f"{self.weights:,}" if self.weights else ""
        return [self.package, self.name, weights, *done[:2], pruned, done[3], sizes, note]


HEAD = ["package", "architecture", "weights", "trace, s", "prune, s", "live", "compact, s",
        "units", "note"]  # fmt: skip


class TooLong(Exception):
    """One architecture took longer than its limit."""


def _stop(*_: Any) -> None:
    raise TooLong(f"longer than {LIMIT} s")


def outputs(model: nn.Module, inputs: Any) -> list[Tensor]:
    with torch.no_grad():
        given = {**inputs} if isinstance(inputs, dict) else {}
        args = (
            () if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else (inputs,)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = model(*args, **given)
    return [y for y in pytree.tree_leaves(result) if isinstance(y, Tensor)]


def same(small: nn.Module, model: nn.Module, inputs: Any) -> None:
    """Raise unless both return the same on the example inputs, to rounding."""
    config = getattr(model, "config", None)
    if hasattr(config, "use_cache"):  # the compacted model returns no key-value cache
        model = copy.deepcopy(model)
        model.config.use_cache = False  # type: ignore[union-attr]
        for module in model.modules():
            if hasattr(getattr(module, "config", None), "use_cache"):
                module.config.use_cache = False  # type: ignore[union-attr]
    for have, want in zip(outputs(small, inputs), outputs(model, inputs), strict=True):
        if want.is_floating_point():
            far = float((have - want).abs().max()) / max(float(want.abs().max()), 1e-3)
            if not far < 1e-3:
                raise ValueError(f"outputs differ by {far:.2g} of the largest")


def examine(public: Public) -> Row:
    row = Row(public.package, public.name)
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(LIMIT)
    try:
        row.failed = "build"
        model, inputs = public.build()
        net = row.timed("trace", lambda: trellis.trace(model, inputs))
        row.weights = net.total
        living = {layer.name for layer in trellis.audit(net).layers if layer.live}
        masks = row.timed("prune", lambda: trellis.prune(net, sparsity=SPARSITY))
        audit = row.timed("audit", lambda: trellis.audit(net))
        row.live = audit.live_fraction
        row.lost = sum(layer.name in living and not layer.live for layer in audit.layers)
        row.failed = "audit"
        if audit.kept != masks.kept or audit.live != audit.kept:
            raise ValueError(f"{audit.live} of {audit.kept} kept weights are live")
        small = row.timed("compact", lambda: trellis.compact(model, inputs))
        row.units = small.report.before.units, small.report.after.units
        row.failed = "compact"
        same(small, model, inputs)
        row.failed = ""
    except Exception as error:  # every failure is a line of the table
        row.error = f"{type(error).__name__}: {' '.join(str(error).split())}"
    finally:
        signal.alarm(0)
    return row


def table(rows: list[list[str]]) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in lines)


def summary(rows: list[Row]) -> str:
    """How many architectures pass each part.

    >>> print(summary([Row("torch", "A", seconds={"trace": 1.0}, failed="prune", error="E")]))
    1 architectures: 1 traced, 0 pruned with every kept weight live, 0 compacted with equal outputs.
    Layers lost in pruning: 0.
    """
    good: Counter[str] = Counter()
    for row in rows:
        for part in PARTS:
            if part == row.failed or part not in row.seconds:
                break
            good[part] += 1
    return (
        f"{len(rows)} architectures: {good['trace']} traced, {good['audit']} pruned with every "
        f"kept weight live, {good['compact']} compacted with equal outputs.\n"
        f"Layers lost in pruning: {sum(row.lost for row in rows)}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures (default: all)")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="folder")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    wanted = [m for m in public_models() if not asked.names or m.name in asked.names]
    rows = []
    for public in wanted:
        rows.append(examine(public))
        print(" | ".join(rows[-1].cells()), flush=True)
    print(summary(rows))
    if not asked.names:
        packages = ("torch", "transformers", "torch-geometric", "timm", "torchvision")
        versions = []
        for package in packages:
            try:
                versions.append(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                versions.append(f"{package} not installed")
        page = f"{summary(rows)}\n\n{', '.join(versions)}; one thread.\n\n"
        asked.out.mkdir(parents=True, exist_ok=True)
        page += table([[*row.cells()[:-1], row.cells()[-1][:160]] for row in rows]) + "\n"
        (asked.out / "architectures.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
