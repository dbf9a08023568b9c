"""Making a recogniser small: train, prune gradually, tune; or search how small it may be."""

from .course import COURSES, Course, course_named, options_for
from .maker import Maker
from .mirror import mirror_of
from .run import Outcome, shrink
from .search import Point
from .small import Small

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
