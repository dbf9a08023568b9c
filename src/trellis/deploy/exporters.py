"""The registry of export targets: which function writes ``c``, ``onnx`` and so on.

The built-in targets and those of users register in the same way, with :func:`register_exporter`.
An installed package can offer targets through the entry point group ``trellis.exporters``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

from ..errors import TrellisError
from ..plugins import Registry

Export = Callable[..., Any]
E = TypeVar("E", bound=Export)

EXPORTERS: Registry[Export] = Registry(
    "exporter",
    "trellis.exporters",
    "@trellis.register_exporter",
    {name: f"trellis.deploy.{name}" for name in ("c", "onnx", "wasm")},
)


def register_exporter(name: str) -> Callable[[E], E]:
    """Register a function that writes a model, under the name of its target.

    The function is called as ``write(model, example_inputs, path, **options)``. What it returns
    should print well: the command line prints it. The first line of its docstring is the help of
    ``trellis export NAME``.

    Args:
        name: Lower-case letters, digits, ``-`` and ``_``. `trellis.export` and the command
            ``trellis export NAME`` then know the target.

    Returns:
        A decorator that registers the function and returns it unchanged.

    Raises:
        TrellisError: If the name is invalid, or another exporter has it.

    >>> import torch, trellis
    >>> @register_exporter("doctest-count")
    ... def write_count(model, example_inputs, path):
    ...     '''Count the weights, and write nothing.'''
    ...     return trellis.audit(model, example_inputs).total
    >>> trellis.export(nn.Linear(3, 2), torch.zeros(1, 3), "nowhere", target="doctest-count")
    6
    """
    EXPORTERS.check_name(name)

    def register(write: E) -> E:
        EXPORTERS.add(name, write, write)
        return write

    return register


def export(
    model: nn.Module,
    example_inputs: Any,
    path: str | os.PathLike[str],
    *,
    target: str,
    **options: Any,
) -> Any:
    """Write a model for a target, by the target's name.

    Args:
        model: The model: masked, baked or compacted.
        example_inputs: Example inputs, as for `trellis.audit`.
        path: The file or folder to write.
        target: ``"c"``, ``"onnx"``, ``"wasm"``, or a name given to `register_exporter`.
        **options: Options of the target, as of `export_c`, `export_onnx` and `export_wasm`.

    Returns:
        What the target's function returns: a summary of what it wrote.

    Raises:
        TrellisError: If the target is unknown, or the model cannot be written for it.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(nn.Linear(3, 2), torch.zeros(1, 3), folder, target="c", values="fp16").weights
    6
    """
    write = EXPORTERS.get(target)
    if write is None:
        raise TrellisError(
            f"unknown export target {target!r}; known: {', '.join(EXPORTERS.names())}"
        )
    return write(model, example_inputs, path, **options)
