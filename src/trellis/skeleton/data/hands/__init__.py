"""hands45, the built-in set: a procedural hand that does 45 things. Synthetic throughout."""

from __future__ import annotations

from .actions import ACTIONS, Action
from .recordings import hands45, some_of_hands45

__all__ = ["ACTIONS", "Action", "hands45", "some_of_hands45"]
