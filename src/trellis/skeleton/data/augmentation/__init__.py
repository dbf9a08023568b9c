"""Data augmentation: random rotation, scale, time warp, crop, noise and mirroring."""

from __future__ import annotations

from .augmenter import Augmenter
from .settings import Augmentation

__all__ = ["Augmentation", "Augmenter"]
