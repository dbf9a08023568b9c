"""Public names that are imported on first use, so that importing a package is fast.

A package declares its names twice: under ``TYPE_CHECKING``, for editors and type checkers, and in a
mapping to their modules, for Python:

    if TYPE_CHECKING:
        from .prune import prune
    __getattr__, __dir__ = lazy(__name__, {"prune": ".prune"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


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
