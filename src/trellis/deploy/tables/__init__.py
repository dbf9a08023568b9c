"""The sparse form: a network as tables of which unit reads which, and with what weight."""

from __future__ import annotations

from .form import Step, Tables, interpreted
from .lower import tables

__all__ = ["Step", "Tables", "interpreted", "tables"]
