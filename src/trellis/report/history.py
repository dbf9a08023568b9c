"""A model's history in words and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..training.provenance import in_words

Step = Mapping[str, Any]


def taught_by(step: Step) -> str:
    """Describe the teachers of a network that a course trained.

    >>> taught_by({"teachers": 1}), taught_by({"teachers": 0})
    ('1 network with a hundredth of the connections, and labels', 'labels alone')
    """
    given, kind = step, "network{} with a hundredth of the connections,"
    if "teachers" not in step:  # of an earlier release
        given, kind = step.get("course") or {}, "dense network{}"
    count = given.get("teachers", 0)
    if not isinstance(count, int) or count < 1:
        return "labels alone"
    return f"{count} {kind.format('s' * (count > 1))} and labels"


def left_and_right(step: Step) -> str | None:
    """Describe whether a course mirrored left and right, and why; None if not asked for.

    >>> left_and_right({"mirror": "no one said", "course": {"augmentation": {"mirror": 0.0}}})
    'not exchanged: no one said'
    """
    why, course = step.get("mirror"), step.get("course")
    varied = course.get("augmentation") if isinstance(course, Mapping) else None
    if not isinstance(why, str) or not isinstance(varied, Mapping):
        return None
    done = "exchanged in half of the variants" if varied.get("mirror") else "not exchanged"
    return f"{done}: {why}"


def missed(step: Step) -> str | None:
    """Describe a search that found no network of the wanted accuracy; None if it found one.

    >>> missed({"at_least": 0.95, "met": False, "best": 0.9})[-37:]
    'the best had 90.0 %, 5.0 points short'
    >>> missed({"at_least": 0.95, "met": True, "best": 0.96})
    """
    asked, best = step.get("at_least"), step.get("best")
    if step.get("met") is not False or asked is None or best is None:
        return None
    return (
        f"no network of this kind held {100 * asked:.1f} % on the recordings held out: the best "
        f"had {100 * best:.1f} %, {100 * (asked - best):.1f} points short"
    )


def known(history: Sequence[Step], name: str) -> Any:
    return next((step[name] for step in reversed(history) if step.get(name) is not None), None)


def last_metrics(history: Sequence[Step]) -> Mapping[str, Any]:
    """Return what the last step measured; empty if the network changed after it."""
    found: Mapping[str, Any] = history[-1].get("metrics", {}) if history else {}
    return found


def dense_metrics(history: Sequence[Step], is_pruned: bool) -> Mapping[str, Any] | None:
    for step in history:
        if step.get("step") in ("prune", "shrink"):  # what follows is measured of a pruned one
            break
        if "metrics" in step:
            found: Mapping[str, Any] = step["metrics"]
            return found
    return None if is_pruned else {}


def method_of(history: Sequence[Step]) -> str:
    method = known(history, "method") or (known(history, "course") or {}).get("method")
    return str(method) if method else "pruned"


_TRAINS = {"train": "train", "tune": "tune", "shrink": "train, prune and tune"}


def spent(history: Sequence[Step]) -> list[tuple[str, str]]:
    """Return the versions, the device and the time of the training, if the history has them.

    >>> train = {"step": "train", "hardware": "CPU x", "seconds": 600}
    >>> train["versions"] = {"torch": "2.13"}
    >>> spent([train, {"step": "prune"}, train | {"step": "tune", "seconds": 41.3}])[1:]
    [('Hardware', 'CPU x'), ('Time', '10 minutes to train, 41 seconds to tune')]
    >>> spent([train])[0], spent([{"step": "train"}])[0]
    (('Versions', 'torch 2.13'), ('Versions', 'not recorded'))
    """
    steps = [step for step in history if step.get("step") in _TRAINS]
    if not steps:
        return []
    on = dict.fromkeys(str(step["hardware"]) for step in steps if step.get("hardware"))
    by = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in step["versions"].items())
        for step in steps
        if step.get("versions")
    )
    times = [
        f"{in_words(float(step['seconds']))} to {_TRAINS[step['step']]}"
        for step in steps
        if isinstance(step.get("seconds"), int | float)
    ]
    found = {"Versions": "; ".join(by), "Hardware": "; ".join(on), "Time": ", ".join(times)}
    return [(name, text or "not recorded") for name, text in found.items()]


_ELSEWHERE = ("step", "digest", "hardware", "versions", "seconds")  # told, or of no use to read


def told(step: Mapping[str, Any]) -> str:
    """Describe a step of the history on one line; `spent` describes its time and device."""
    parts = []
    for name, value in step.items():
        if name in _ELSEWHERE or value is None or value == {}:
            continue
        if isinstance(value, Mapping):
            if value.get("recipe") == step.get("recipe"):  # of a course: it need not be said twice
                value = {part: own for part, own in value.items() if part != "recipe"}
            parts.append(f"{name}: {_listed(value)}")
        else:
            parts.append(f"{name} {_number(value)}")
    return "; ".join(parts).replace("_", " ")


def _listed(values: Mapping[str, Any]) -> str:
    """
    >>> _listed({"rate": 0.001, "name": "quick", "of": {"a": 1}, "none": None})
    'rate 0.001, name quick, of (a 1)'
    """
    return ", ".join(
        f"{name} ({_listed(value)})" if isinstance(value, Mapping) else f"{name} {_number(value)}"
        for name, value in values.items()
        if value is not None
    )


def _number(value: Any) -> str:
    if isinstance(value, float) and not math.isinf(value):
        return f"{value:g}"
    return str(value)
