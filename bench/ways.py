"""Ways of making a network small that `shrink.py` compares: the default, one thing changed at a
time, and every other way of choosing what to keep."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from rules import rules

from trellis import skeleton
from trellis.skeleton.shrink import COURSES, Course, options_for

DEFAULT = "default"
LIKE_THE_PAPER = ("magnitude by layer", "chains")  # chosen by magnitude alone
METHODS = {
    "MP by layer": "magnitude by layer",
    "chains": "chains",
    "SynFlow": "synflow",
    "viterbi": "viterbi",
}


def parts(course: Course) -> dict[str, tuple[Course, dict[str, Any]]]:
    """The course, and what is not as `options_for` has it: nothing, or one thing changed; then
    every way of choosing, gradually and at once, taught and not."""
    half = replace(course.recipe, epochs=max(course.recipe.epochs // 2, 1))
    found: dict[str, tuple[Course, dict[str, Any]]] = {
        DEFAULT: (course, {}),
        "ReLU": (course, {"activation": "relu"}),
        "recorded size": (course, {"size": "recorded"}),
        "whole": (course, {"kinds": ("coordinates",), "filters": 128}),
        "moments": (course, {"basis": "chunks", "kinds": ("coordinates",), "filters": 128}),
        "camera's frame": (course, {"frame": "camera"}),
        "not mirrored": (replace(course, mirror=False), {}),
        "nothing dropped": (replace(course, dropout=0.0), {}),
        "smoothed to the end": (
            replace(course, recipe=replace(course.recipe, tune_smoothing=None)),
            {},
        ),
        "not augmented": (replace(course, augmentation=None), {}),
        "not taught": (replace(course, distill=False), {}),
        "by magnitude alone": (replace(course, sensitivity=0.0), {}),
        "pruned from all": (replace(course, surplus=None), {}),
        "trained half as long": (replace(course, recipe=half), {}),
    }
    for when, curve in (("gradual", course.curve), ("at once", "one-shot")):
        for method, key in METHODS.items():
            worth = 0.0 if key in LIKE_THE_PAPER else course.sensitivity
            for taught, distill in (("", False), (", taught", True)):
                begin = course.surplus if key == "viterbi" else None  # others need not be rushed
                way = replace(
                    course, method=key, curve=curve, sensitivity=worth, distill=distill,
                    surplus=begin,
                )  # fmt: skip
                if key == "chains":  # seconds for each: a tenth of the renewals
                    rarer = 10 * way.recipe.prune_every
                    way = replace(way, recipe=replace(way.recipe, prune_every=rarer))
                found[f"{when}, {method}{taught}"] = way, {}
    del found["gradual, viterbi"], found["gradual, viterbi, taught"]  # named above
    return found


def settings(part: str, layout: skeleton.Layout) -> str:
    """A few letters that stand for all that a part is made with."""
    course, own = parts(COURSES["default"])[part]
    told = course.to_dict(), rules(course), options_for(layout) | own
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
