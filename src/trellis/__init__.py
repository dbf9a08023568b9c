"""Trellis: prune PyTorch models so that every kept weight is on a path from input to output.

Example:
    >>> import torch, trellis
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
    >>> masks = trellis.prune(model, torch.zeros(1, 8), sparsity=0.9)
    >>> trellis.audit(model, torch.zeros(1, 8)).live_fraction
    1.0
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

from .interrupt import imported as _imported  # noqa: F401  (before torch, which takes seconds)

# isort: split
from . import methods
from .errors import TrellisError
from .graph import Inputs, Trellis, rule, trace
from .masks import Masks, masks_of
from .methods.method import register_method
from .methods.prune import prune
from .paths.audit import Audit, audit
from .saving import load, save
from .version import __version__ as __version__

if _TYPE_CHECKING:
    from . import skeleton, training
    from .deploy.c import export_c
    from .deploy.compact import Compacted, compact
    from .deploy.exporters import export, register_exporter
    from .deploy.onnx import export_onnx
    from .deploy.runtime import Runtime
    from .deploy.wasm import export_wasm
    from .training.pruner import Pruner
    from .training.schedule import Schedule

# The public names. Everything else in this package may change in any release.
__all__ = [
    "Audit",
    "Compacted",
    "Inputs",
    "Masks",
    "Pruner",
    "Runtime",
    "Schedule",
    "Trellis",
    "TrellisError",
    "audit",
    "compact",
    "export",
    "export_c",
    "export_onnx",
    "export_wasm",
    "load",
    "masks_of",
    "methods",
    "prune",
    "register_exporter",
    "register_method",
    "rule",
    "save",
    "skeleton",
    "trace",
    "training",
]

# Imported on first use, so that `import trellis` is fast.
_MODULES = ("skeleton", "training")
_HOMES = {
    "Compacted": ".deploy.compact",
    "Pruner": ".training.pruner",
    "Runtime": ".deploy.runtime",
    "Schedule": ".training.schedule",
    "compact": ".deploy.compact",
    "export": ".deploy.exporters",
    "export_c": ".deploy.c",
    "export_onnx": ".deploy.onnx",
    "export_wasm": ".deploy.wasm",
    "register_exporter": ".deploy.exporters",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _importlib.import_module(f".{name}", __name__)
    if name in _HOMES:
        return getattr(_importlib.import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__version__"]
