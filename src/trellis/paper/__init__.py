"""The paper's tables: the plan of a run, the folder of its results, and the tables made of them."""

from __future__ import annotations

from .figures import Report
from .folder import Folder, stored
from .plan import plan_of
from .run import reproduce, write_outputs
from .settings import Data, Settings
from .stacks import Progress, Watch
from .tables import report_of

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
