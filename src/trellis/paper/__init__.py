"""The paper's tables: the plan of a run, the folder of its results, and the tables made of them."""

from __future__ import annotations

from .folder import Folder, stored
from .plan import plan_of
from .run import Progress, Watch, reproduce, write_outputs
from .settings import Data, Settings
from .tables import Report, report_of

__all__ = [
    "Data",
    "Folder",
    "Progress",
    "Report",
    "Settings",
    "Watch",
    "plan_of",
    "report_of",
    "reproduce",
    "stored",
    "write_outputs",
]
