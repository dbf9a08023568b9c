"""Import the package quickly: public names on first use, and Ctrl-C while torch is imported."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping

# Public names that are imported on first use.
#
# A package declares its names twice: under ``TYPE_CHECKING``, for editors and type checkers, and in
# a mapping to their modules, for Python:
#
#     if TYPE_CHECKING:
#         from .prune import prune
#     __getattr__, __dir__ = lazy(__name__, {"prune": ".prune"})


def lazy(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package.

    Args:
        package: The ``__name__`` of the package.
        homes: The module of each name, relative to the package. A module that is a public name
            itself, such as ``trellis.methods``, maps to an empty string. `dir` lists those in
            the package's ``__all__``.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        module = importlib.import_module(home or f".{name}", package)
        found = getattr(module, name) if home else module
        setattr(sys.modules[package], name, found)  # from now on without this function
        return found

    def names() -> list[str]:
        own = vars(sys.modules[package])
        return [*own["__all__"], *(name for name in ("__doc__", "__version__") if name in own)]

    return get, names


# Ctrl-C while the command ``trellis`` imports torch, which takes seconds: no traceback.


def watch_imports() -> None:
    """Let Ctrl-C end the command ``trellis`` with status 130, until `imported` is called.

    Does nothing in other programs that import the package.
    """
    named = os.path.basename(sys.argv[0]) if sys.argv else ""
    by_module = named == "-m" and "trellis" in sys.orig_argv
    is_command = named in ("trellis", "trellis.exe") or by_module
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nohup ignores it
    if is_command and usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _leave)


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os._exit(130)
