"""Trellis: make neural networks tiny without breaking them.

Prune PyTorch models to extreme sparsity so that every weight that is kept still lies on a path
from an input to an output.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .errors import TrellisError
from .interrupt import imported as _imported  # noqa: F401  (before torch, which takes seconds)
from .masks import Masks, masks_of
from .paths.audit import Audit, audit
from .saved import load, save
from .select.prune import prune
from .trace import Trellis, rule, trace

if TYPE_CHECKING:
    from . import skeleton
    from .ship.c import export_c
    from .ship.compact import Compacted, compact
    from .ship.onnx import export_onnx
    from .ship.runtime import Runtime
    from .ship.wasm import export_wasm
    from .train.pruner import Pruner
    from .train.schedule import Schedule

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Compacted",
    "Masks",
    "Pruner",
    "Runtime",
    "Schedule",
    "Trellis",
    "TrellisError",
    "audit",
    "compact",
    "export_c",
    "export_onnx",
    "export_wasm",
    "load",
    "masks_of",
    "prune",
    "rule",
    "save",
    "skeleton",
    "trace",
]


def __getattr__(name: str) -> Any:
    # On first use: whoever only prunes does not wait for readers, networks and
    # training to be imported.
    if name == "skeleton":
        return importlib.import_module(".skeleton", __name__)
    if name in ("Pruner", "Schedule"):
        return getattr(importlib.import_module(f".train.{name.lower()}", __name__), name)
    if name in ("Compacted", "compact"):
        return getattr(importlib.import_module(".ship.compact", __name__), name)
    if name == "export_c":
        return importlib.import_module(".ship.c", __name__).export_c
    if name == "Runtime":
        return importlib.import_module(".ship.runtime", __name__).Runtime
    if name == "export_onnx":
        return importlib.import_module(".ship.onnx", __name__).export_onnx
    if name == "export_wasm":
        return importlib.import_module(".ship.wasm", __name__).export_wasm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
