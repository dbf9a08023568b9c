"""Augmentation: every training step sees recordings that are turned, sized and timed anew."""

from __future__ import annotations

from .augmenter import Augmenter
from .settings import Augmentation

__all__ = ["Augmentation", "Augmenter"]
