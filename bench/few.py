"""Few clips of a gesture: what augmentation and first weights from `hands45` are worth.

    python bench/few.py PATH

Real hands: 5, 10 and 20 segments of each class of MTM-1 (PATH as for `mtm1:`) are drawn from the
training videos. The network is that of `trellis live`, dense. Top-1 on the segments of the test
videos, for eight seeds, each with another draw. Writes `bench/results/few.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trellis.live.training import CHUNKS, SIZES
from trellis.skeleton import GCN, Fold, Recognizer, Skeletons, load_dataset
from trellis.skeleton.data.layouts import MEDIAPIPE_HAND
from trellis.skeleton.shrink import Course, Maker, course_named, options_for
from trellis.training import unstack

RESULTS = Path(__file__).parent / "results" / "few.json"
ORDER = (0, 1, 6, 7, 8, 2, 9, 10, 11, 3, 12, 13, 14, 4, 15, 16, 17, 5, 18, 19, 20)  # to MediaPipe's
CLIPS, SEEDS = (5, 10, 20), range(8)


def trained(
    data: Skeletons, fold: Fold, course: Course, seed: int, first: GCN | None = None
) -> Recognizer:
    """Return a dense recogniser."""
    options: dict[str, Any] = options_for(data.layout) | SIZES
    fresh = Recognizer.fresh(data, fold, chunks=CHUNKS, seed=seed, **options)
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
    every = Fold("all", np.arange(len(known)), known.folds[0].test)
    first = trained(known, every, course, 0).model
    print("first weights are ready", flush=True)
    data = load_dataset(f"mtm1:{path}")
    test = data.folds[0].test
    own = data.folds[0].train
    plain = course_named("quick", augmentation=None, mirror=False)
    ways: dict[str, tuple[Course, GCN | None]] = {
        "no augmentation": (plain, None),
        "augmentation": (course, None),
        "augmentation, first weights from hands45": (course, first),
    }
    found: dict[str, dict[str, list[float]]] = {}
    for clips in CLIPS:
        top1 = found[str(clips)] = {name: [] for name in ways}
        for seed in SEEDS:
            random = np.random.default_rng(seed)
            train = np.concatenate([
                random.permutation(own[data.labels[own] == label])[:clips]
                for label in np.unique(data.labels[own])
            ])  # fmt: skip
            for name, (settings, start) in ways.items():
                one = trained(data, Fold("few", train, test), settings, seed, start)
                said = one.probabilities([data.sequences[i] for i in test]).argmax(axis=1)
                top1[name].append(float((said == data.labels[test]).mean()))
        for name, values in top1.items():
            gain = np.subtract(values, top1["augmentation"])
            error = gain.std(ddof=1) / len(gain) ** 0.5
            print(
                f"{clips} clips, {name}: {100 * np.mean(values):.1f} %, "
                f"beside augmentation {100 * gain.mean():+.1f} ± {100 * error:.1f}",
                flush=True,
            )
    RESULTS.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
