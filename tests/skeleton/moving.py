"""A tiny set of recordings: three motions of an arm, told apart by how fast it goes round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trellis.skeleton import Fold, Layout, Skeletons

ARM = Layout("arm", ("shoulder", "elbow", "wrist", "hand"), parents=(-1, 0, 1, 2))
CLASSES = ("wave", "point", "grab")


def arms(count: int = 48, seed: int = 0, noise: float = 0.3) -> Skeletons:
    """Every fourth recording is to test on."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    sequences = []
    for label in labels:
        time = np.linspace(0, 1, random.integers(5, 30))[:, None, None]
        angle = 2 * np.pi * (label + 1) * time + np.arange(3)
        frames = np.sin(angle) * np.arange(1, 5)[:, None] + random.normal(size=(1, 1, 3))
        sequences.append((frames + noise * random.normal(size=frames.shape)).astype(np.float32))
    test = np.arange(count) % 4 == 0
    fold = Fold("every fourth", np.flatnonzero(~test), np.flatnonzero(test))
    names = tuple(f"arm {i}" for i in range(count))
    return Skeletons(
        "arms", tuple(sequences), labels.astype(np.int64), CLASSES, names, ARM, (fold,)
    )


def write_npz(path: Path, data: Skeletons) -> None:
    (fold,) = data.folds
    own = {"body": data.layout.body, "mirror": data.layout.mirror}
    told: dict[str, Any] = {name: np.array(joints) for name, joints in own.items() if joints}
    np.savez(
        path,
        **told,
        frames=np.concatenate(data.sequences),
        lengths=[len(frames) for frames in data.sequences],
        labels=data.labels,
        classes=np.array(data.classes),
        test=np.isin(np.arange(len(data)), fold.test),
        joints=np.array(data.layout.joints),
        parents=np.array(data.layout.parents),
    )


def write_csv(path: Path, data: Skeletons, index: int) -> None:
    head = [f"{joint}_{axis}" for joint in data.layout.joints for axis in "xyz"]
    rows = data.sequences[index].reshape(len(data.sequences[index]), -1)
    lines = [",".join(head), *(",".join(map(str, row)) for row in rows.tolist())]
    path.write_text("\n".join(lines) + "\n")
