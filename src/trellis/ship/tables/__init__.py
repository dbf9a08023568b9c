"""The sparse form: a network as tables of which unit reads which, and with what weight."""

from .build import tables
from .form import Step, Tables
from .interpret import interpreted

__all__ = ["Step", "Tables", "interpreted", "tables"]
