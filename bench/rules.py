"""Rules of a course that depend on the budget or on the recordings, for a fingerprint."""

from __future__ import annotations

from typing import Any

from trellis.skeleton.shrink import Course
from trellis.skeleton.shrink.mirror import SHARE, STILL, TOLD

_TOTAL = 10**6


def rules(course: Course) -> list[Any]:
    """Return what the rules give at four budgets, and the thresholds of mirroring."""
    by_size = course.dropout_at, course.distills, course.waypoint
    kept = [[rule(kept, _TOTAL) for rule in by_size] for kept in (10**5, 10**4, 10**3, 500)]
    return [*kept, (SHARE, TOLD, STILL)]
