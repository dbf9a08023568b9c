"""What a model's file says was done to it: one line of its history, as it comes from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_GROUPS = ("recipe", "course", "augmentation", "taught", "metrics", "versions")
_NUMBERS = (
    "weight",
    "temperature",
    "length",
    "at_least",
    "best",
    "agreement",
    "top1",
    "mean_class",
    "train_top1",
)


def sound(step: Mapping[str, Any]) -> dict[str, Any]:
    """The same, if its name is a word, and what is said of a group of settings or of a number is
    one, or is None: a file may hold anything, and who reads on relies on that.

    >>> sound({"step": "shrink", "length": 0.5})
    {'step': 'shrink', 'length': 0.5}
    >>> sound({"step": "shrink", "course": {"agreement": "much"}})
    Traceback (most recent call last):
        ...
    TypeError: agreement='much' in its history is no number
    """
    for name, value in step.items():
        if value is None:
            continue
        if name == "step" and not isinstance(value, str):
            raise TypeError(f"step={value!r:.60} in its history is no word")
        if name in _GROUPS:
            if not isinstance(value, Mapping):
                raise TypeError(f"{name}={value!r:.60} in its history is no group of settings")
            sound(value)
        if name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"{name}={value!r:.60} in its history is no number")
    return dict(step)
