"""From ``package.module:factory`` to a model."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from trellis.cli.aside import aside
from trellis.errors import TrellisError


def load_model(target: str) -> nn.Module:
    """Import and, unless it is a module already, call what ``target`` names.

    Whatever the user's code prints goes to stderr, so that stdout is ours alone.

    >>> load_model("torch.nn:Identity")
    Identity()
    """
    module, colon, path = target.partition(":")
    if not (colon and path and module) or not all(map(str.isidentifier, module.split("."))):
        raise TrellisError(
            f"{target!r} names no model: write package.module:factory, such as "
            "shop.models:detector, or the folder of a saved one"
        )
    with _current_folder_first(), aside():
        found = _attribute(_import(module), path, target)
        model = found if isinstance(found, nn.Module) else _call(found, target)
    if not isinstance(model, nn.Module):
        raise TrellisError(f"{target!r} returned {model!r:.60}; it must return a torch.nn.Module")
    return model


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """As ``python -m`` does; installed scripts do not look in the current folder."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The module itself or a package on the way to it; anything else is missing inside it.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TrellisError(
                f"there is no module {error.name!r}, neither in the current folder nor installed"
            ) from error
        raise TrellisError(f"importing {name!r} failed: {_say(error)}") from error
    except (Exception, SystemExit) as error:
        raise TrellisError(f"importing {name!r} failed: {_say(error)}") from error


def _attribute(module: Any, path: str, target: str) -> Any:
    found = module
    for name in path.split("."):
        if not hasattr(found, name):
            owner = f"module {module.__name__!r}" if found is module else f"{found!r:.60}"
            offered = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            hint = f"; it has {', '.join(sorted(offered)[:8])}" if offered else ""
            raise TrellisError(f"{target!r}: {owner} has no attribute {name!r}{hint}")
        found = getattr(found, name)
    return found


def _call(factory: Any, target: str) -> Any:
    if not callable(factory):
        raise TrellisError(
            f"{target!r} is {_kind(factory)}; it must be a torch.nn.Module, or a function or "
            "class that returns one"
        )
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise TrellisError(
            f"{target!r} cannot be called with no arguments ({error}): name a function that can"
        ) from error
    except ValueError:  # some built-in callables have no signature; calling will tell
        pass
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise TrellisError(f"{target!r} raised {_say(error)}") from error


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _say(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}" if text else type(error).__name__
