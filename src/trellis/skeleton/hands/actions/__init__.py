"""The 45 actions, in the order of their labels."""

from .action import Action
from .people import PEOPLE
from .surfaces import SURFACES
from .tools import TOOLS
from .turning import TURNING
from .vessels import VESSELS

ACTIONS: tuple[Action, ...] = (*TURNING, *VESSELS, *TOOLS, *SURFACES, *PEOPLE)

__all__ = ["ACTIONS", "Action"]
