"""Shrink a recognizer: train, prune gradually and fine-tune it, or search the smallest one."""

from __future__ import annotations

from .course import COURSES, Course, course_named, filters_for, options_for
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
    "filters_for",
    "mirror_of",
    "options_for",
    "shrink",
]
