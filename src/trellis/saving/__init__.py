"""A model as a folder: weights and masks in safetensors, what they are in JSON. Never pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..imports import lazy

if TYPE_CHECKING:
    from .model import load, registered, save
    from .nested import Nested

__all__ = ["Nested", "load", "registered", "save"]

__getattr__, __dir__ = lazy(
    __name__,
    {"Nested": ".nested", "load": ".model", "registered": ".model", "save": ".model"},
)
