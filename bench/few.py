"""Ten clips of a gesture: what augmentation and first weights from `hands45` are worth.

    python bench/few.py PATH

Real hands: ten segments of each class of MTM-1 (PATH as for `mtm1:`) are drawn from the training
videos. The network is that of `trellis live`, dense. Top-1 on the segments of
the test videos, for seeds 0 to 2.
Writes `bench/results/few.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trellis.live.training import CHUNKS, FILTERS, HEADS
from trellis.skeleton import GCN, Fold, Recognizer, Skeletons, load_dataset
from trellis.skeleton.data.layouts import MEDIAPIPE_HAND
from trellis.skeleton.shrink import Course, Maker, course_named, options_for
from trellis.training import unstack

RESULTS = Path(__file__).parent / "results" / "few.json"
ORDER = (0, 1, 6, 7, 8, 2, 9, 10, 11, 3, 12, 13, 14, 4, 15, 16, 17, 5, 18, 19, 20)  # to MediaPipe's
CLIPS, SEEDS = 10, (0, 1, 2)


def trained(
    data: Skeletons, fold: Fold, course: Course, seed: int, first: GCN | None = None
) -> Recognizer:
    """Return a dense recogniser."""
    options: dict[str, Any] = options_for(data.layout)
    fresh = Recognizer.fresh(
        data, fold, chunks=CHUNKS, seed=seed, heads=HEADS, filters=FILTERS, **options
    )
    x = torch.from_numpy(fresh.places([data.sequences[i] for i in fold.train]))
    y = torch.from_numpy(data.labels[fold.train])
    weights = Maker(fresh, x, y, course, first=first).train([seed])
    unstack({name: weight.cpu() for name, weight in weights.items()}, [fresh.model])
    return fresh


def main(path: str) -> None:
    hands = load_dataset("hands45")
    turned = tuple(frames[:, ORDER] for frames in hands.sequences)
    known = Skeletons(
        "hands45", turned, hands.labels, hands.classes, hands.names, MEDIAPIPE_HAND, hands.folds
    )
    course = course_named("quick")
    first = trained(known, known.folds[0], course, 0).model
    print("first weights are ready", flush=True)
    data = load_dataset(f"mtm1:{path}")
    test = data.folds[0].test
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        own = data.folds[0].train
        train = np.concatenate([
            random.permutation(own[data.labels[own] == label])[:CLIPS]
            for label in np.unique(data.labels[own])
        ])  # fmt: skip
        fold = Fold("few", train, test)
        plain = course_named("quick", augmentation=None, mirror=False)
        for name, settings, start in (
            ("no augmentation", plain, None),
            ("augmentation", course, None),
            ("augmentation, first weights from hands45", course, first),
        ):
            one = trained(data, fold, settings, seed, start)
            said = one.probabilities([data.sequences[i] for i in test]).argmax(axis=1)
            found.setdefault(name, []).append(float((said == data.labels[test]).mean()))
            print(seed, name, f"{100 * found[name][-1]:.1f} %", flush=True)
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
