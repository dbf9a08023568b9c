"""Making a recogniser small: train, prune gradually, tune; or search how small it may be."""

from __future__ import annotations

from .course import COURSES, Course, course_named, options_for
from .mirror import mirror_of
from .run import Outcome, Point, shrink
from .stages import Maker, Small

__all__ = [
    "COURSES",
    "Course",
    "Maker",
    "Outcome",
    "Point",
    "Small",
    "course_named",
    "mirror_of",
    "options_for",
    "shrink",
]
