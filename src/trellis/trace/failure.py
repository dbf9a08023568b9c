"""Where in a model something failed, while its Python ran."""

from __future__ import annotations

import sys
import traceback

from torch import nn

# What is ours, torch's, or what torch computes shapes with; all else is somebody's model.
_MACHINERY = {"torch", "sympy", "mpmath", *sys.stdlib_module_names}
_TRACER = __name__.rpartition(".")[0]


def first_line(error: BaseException) -> str:
    """What an error says, in a line.

    >>> first_line(ValueError("too large: 3\\nand more")), first_line(ValueError())
    ('too large: 3', 'ValueError()')
    """
    said = str(error).strip()
    return said.splitlines()[0][:300] if said else repr(error)


def place(error: BaseException, model: nn.Module) -> str:
    """The innermost module of ``model`` that was at work, and the last line outside torch.

    Either is left out where it cannot be known: no line of a `Sequential` of torch's own layers is
    anybody else's.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    >>> try:
    ...     _ = model(torch.zeros(1, 2))
    ... except RuntimeError as error:
    ...     place(error, model).split(", File")[0]
    " in module '1' (Linear)"
    """
    names = {id(module): name for name, module in model.named_modules()}
    module, line = "", ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        found = frame.f_locals.get("self")
        if isinstance(found, nn.Module) and id(found) in names:
            name, kind = names[id(found)], type(found).__name__
            module = f" in module {name!r} ({kind})" if name else f" in the model ({kind})"
        if _of_a_model(str(frame.f_globals.get("__name__", ""))):
            code = frame.f_code
            line = f', File "{code.co_filename}", line {number}, in {code.co_name}'
    return module + line


def _of_a_model(name: str) -> bool:
    """Whether a line of the Python module of this name may be a model's."""
    return name.partition(".")[0] not in _MACHINERY and not f"{name}.".startswith(f"{_TRACER}.")
