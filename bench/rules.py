"""What a course does by rule rather than by setting: part of what a figure was made with."""

from __future__ import annotations

from typing import Any

from trellis.skeleton.shrink import Course
from trellis.skeleton.shrink.mirror import SHARE, STILL, TOLD

_TOTAL = 10**6


def rules(course: Course) -> list[Any]:
    """Those that hang on how much is kept, and on what recordings say."""
    by_size = course.dropped, course.agreement_at, course.teachers_at, course.waypoint
    kept = [[rule(kept, _TOTAL) for rule in by_size] for kept in (10**5, 10**4, 10**3, 500)]
    return [*kept, (SHARE, TOLD, STILL)]
