"""A few small recordings, and the settings of a table that takes a second."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.paper import Settings
from trellis.skeleton import Fold, Layout, Skeletons
from trellis.training import recipe_named


def waves(
    *,
    folds: int = 1,
    classes: tuple[str, ...] = ("still", "slow", "fast"),
    source: str = "npz:waves.npz",
    synthetic: bool = False,
    recordings: int = 36,
    seed: int = 0,
) -> Skeletons:
    """Five joints that swing, at a frequency that is the class's; some noise."""
    random = np.random.default_rng(seed)
    labels = np.arange(recordings) % len(classes)
    sequences = []
    for label in labels:
        time = np.arange(random.integers(6, 13))[:, None, None]
        joint = np.arange(5)[None, :, None]
        swing = np.sin(time * label / 2 + joint) + np.zeros((1, 1, 3))
        sequences.append((swing + 0.2 * random.normal(size=swing.shape)).astype(np.float32))
    every = np.arange(recordings)
    parts = [every[i :: folds + 1] for i in range(folds + 1)]
    return Skeletons(
        source=source,
        sequences=tuple(sequences),
        labels=labels.astype(np.int64),
        classes=classes,
        names=tuple(f"wave {i}" for i in every),
        layout=Layout("arm", tuple("abcde"), parents=(-1, 0, 1, 2, 3)),
        folds=tuple(
            Fold(f"fold {i}", np.setdiff1d(every, parts[i]), parts[i]) for i in range(folds)
        ),
        synthetic=synthetic,
    )


def small(table: str = "table2", **changes: Any) -> Settings:
    given: dict[str, Any] = {
        "data": "npz:waves.npz", "seeds": 2, "rates": (50.0, 90.0), "rows": ("mp", "tc", "lamp"),
        "recipe": recipe_named("default", epochs=8, tune_epochs=6), "chunks": 4, "heads": 2,
        "filters": 4, "stack": 4,
    }  # fmt: skip
    if table == "table3":
        given |= {"rates": (90.0,), "inverse_alphas": (1.0, 10.0)}
    return Settings(table, **given | changes)
