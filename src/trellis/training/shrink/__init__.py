"""Shrink any model: train it, prune it gradually and fine-tune it, in one call."""

from __future__ import annotations

from .course import Course, Phase, waypoints
from .result import Point, Shrunk
from .run import shrink

__all__ = ["Course", "Phase", "Point", "Shrunk", "shrink", "waypoints"]
