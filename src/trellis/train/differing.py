"""What differs between settings that were stored and those that are asked for now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST = 3  # that are named


def differing(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """In words; "" where nothing does. Settings inside of settings are named with dots.

    >>> differing({"rate": 1, "course": {"curve": "cubic"}}, {"rate": 2, "course": {}})
    "rate was 1 and is 2; course was None and is {}; course.curve was 'cubic' and is None"
    >>> differing({"rate": 1}, {"rate": 1})
    ''
    """
    before, now = _flat(stored), _flat(wanted)
    differ = [
        f"{name:.80} was {before.get(name)!r:.80} and is {now.get(name)!r:.80}"
        for name in dict.fromkeys([*now, *before])
        if before.get(name) != now.get(name)
    ]
    more = f" and {len(differ) - _MOST} more" if len(differ) > _MOST else ""
    return "; ".join(differ[:_MOST]) + more


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = isinstance(value, Mapping) and bool(value)
        found |= _flat(value, f"{before}{name}.") if inner else {f"{before}{name}": value}
    return found
