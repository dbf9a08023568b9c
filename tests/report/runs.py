"""Runs of `trellis reproduce` as they lie on disk, without the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from trellis.paper import Folder, Settings, plan_of
from trellis.paper.folder import opened
from trellis.paper.plan import Cell, architecture_of
from trellis.paper.pruning import is_packed, packed
from trellis.paper.settings import Named, describe
from trellis.skeleton import Fold, Layout, Skeletons
from trellis.skeleton.data.hands.hand import LAYOUT

HANDS = tuple(f"action {i}" for i in range(45))


def hands(
    classes: tuple[str, ...] = HANDS,
    layout: Layout = LAYOUT,
    *,
    each: int = 4,
    source: str = "npz:hands.npz",
    synthetic: bool = True,
    size: tuple[int, int] | None = None,
) -> Skeletons:
    """``each`` recordings a class, of joints that swing; half are tested on. With ``size``, so
    many are trained and tested on."""
    random = np.random.default_rng(0)
    count = each * len(classes) if size is None else sum(size)
    joints = len(layout.joints)
    rest = random.normal(size=(joints, 3)) * 40
    sequences = []
    for _ in range(count):
        time = np.linspace(0, 6, random.integers(20, 60))[:, None, None]
        swing = rest + 30 * np.sin(time + random.normal(size=(1, joints, 1)))
        sequences.append(swing.astype(np.float32))
    half = count // 2 if size is None else size[0]
    every = random.permutation(count)
    return Skeletons(
        source=source,
        sequences=tuple(sequences),
        labels=(np.arange(count) % len(classes)).astype(np.int64),
        classes=classes,
        names=tuple(f"recording {i}" for i in range(count)),
        layout=layout,
        folds=(Fold("1:1", np.sort(every[:half]), np.sort(every[half:])),),
        synthetic=synthetic,
    )


def made_run(path: Path, settings: Settings, data: Skeletons) -> Folder:
    """A finished run whose figures and networks are drawn by chance, the same every time."""
    about = describe(data)
    architecture = architecture_of(settings, about)
    weights = dict(architecture.build(0).named_parameters())
    random = np.random.default_rng(1)
    with opened(path, settings, about) as folder:
        folder.write({"recordings.json": Named.of(data).text()})
        for stack in plan_of(settings, about).stacks:
            kept: dict[Cell, dict[str, torch.Tensor]] = {}
            for cell in stack.cells:
                if cell.row.method is not None and is_packed(cell):
                    kept[cell] = _masks(weights, 1 - cell.row.rate / 100, random)
            if kept:
                cells = list(kept)
                stacked = {n: torch.stack([w.detach()] * len(cells)) for n, w in weights.items()}
                masks = {n: torch.stack([kept[cell][n] for cell in cells]) for n in weights}
                folder.write_networks(stack.number, packed(cells, stacked, masks))
            folder.add([_record(cell, stack.number, architecture.shapes, data, random)
                        for cell in stack.cells])  # fmt: skip
    return folder


def _masks(
    weights: dict[str, torch.nn.Parameter], keep: float, random: np.random.Generator
) -> dict[str, torch.Tensor]:
    """At random; the attention keeps more than its part, so that paths are left."""
    found = {}
    for name, weight in weights.items():
        part = min(1.0, keep * (20 if "attention" in name else 3 if "convolution" in name else 0.8))
        draw = random.random(weight.shape, dtype=np.float32) < part
        draw.flat[0] = True
        found[name] = torch.from_numpy(draw)
    return found


def _record(
    cell: Cell, stack: int, shapes: dict[str, tuple[int, ...]], data: Skeletons,
    random: np.random.Generator,
) -> dict[str, Any]:  # fmt: skip
    fold = data.folds[cell.fold]
    truth = data.labels[fold.test]
    keep = 1 - cell.row.rate / 100
    layers = {name: max(1, int(keep * np.prod(shape))) for name, shape in shapes.items()}
    consistent = cell.row.method is None or cell.row.method.consistent
    live = {n: k if consistent else int(k * keep**0.3) for n, k in layers.items()}
    hit = min(0.95, 0.9 + 0.05 * np.log10(keep) - (0 if consistent else (1 - keep) ** 20 / 2))
    wrong = random.random(len(truth)) > hit
    said = np.where(wrong, random.integers(0, len(data.classes), len(truth)), truth)
    return {
        "cell": cell.key, "row": cell.row.key, "seed": cell.seed, "fold": cell.fold,
        "stack": stack, "device": "made up", "total": sum(map(int, map(np.prod, shapes.values()))),
        "kept": sum(layers.values()), "live": sum(live.values()), "outputs_reached": 1,
        "layers": layers, "live_layers": live, "correct": int((said == truth).sum()),
        "test": len(truth), "mean_class": float((said == truth).mean()), "train_correct": 9,
        "train": 10, "said": said.tolist(), "loss": 0.1, "seconds": 0.5,
    }  # fmt: skip
