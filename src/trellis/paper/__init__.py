"""The paper's tables: a plan of networks, a folder they are stored in, and what they come to."""

from .folder import Folder, stored
from .outputs import write_outputs
from .plan import plan_of
from .progress import Progress, Watch
from .report import Report
from .run import reproduce
from .settings import Data, Settings
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
