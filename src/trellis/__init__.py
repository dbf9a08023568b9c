"""Trellis: prune PyTorch models so that every kept weight is on a path from input to output.

Example:
    >>> import torch, trellis
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
    >>> masks = trellis.prune(model, torch.zeros(1, 8), sparsity=0.9)
    >>> trellis.audit(model, torch.zeros(1, 8)).live_fraction
    1.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .imports import lazy as _lazy
from .imports import watch_imports as _watch_imports
from .version import __version__ as __version__

_watch_imports()  # before torch, whose import takes seconds

if _TYPE_CHECKING:
    from . import methods, skeleton, training
    from .deploy.c import export_c
    from .deploy.compact import Compacted, compact
    from .deploy.exporters import export, register_exporter
    from .deploy.onnx import export_onnx
    from .deploy.runtime import Runtime
    from .deploy.wasm import export_wasm
    from .errors import TrellisError
    from .graph import Inputs, Trellis, rule, trace
    from .masks import Masks, masks_of
    from .methods.method import register_method
    from .methods.prune import prune
    from .paths.audit import Audit, audit
    from .saving import Nested, load, save
    from .training.gradients import saliency
    from .training.pruner import Pruner
    from .training.schedule import Schedule
    from .training.shrink import Shrunk, shrink

# The public names. Everything else in this package may change in any release.
__all__ = [
    "Audit",
    "Compacted",
    "Inputs",
    "Masks",
    "Nested",
    "Pruner",
    "Runtime",
    "Schedule",
    "Shrunk",
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
    "saliency",
    "save",
    "shrink",
    "skeleton",
    "trace",
    "training",
]

# Imported on first use, so that `import trellis` and `trellis --help` are fast.
__getattr__, __dir__ = _lazy(
    __name__,
    {
        "Audit": ".paths.audit",
        "Compacted": ".deploy.compact",
        "Inputs": ".graph",
        "Masks": ".masks",
        "Nested": ".saving",
        "Pruner": ".training.pruner",
        "Runtime": ".deploy.runtime",
        "Schedule": ".training.schedule",
        "Shrunk": ".training.shrink",
        "Trellis": ".graph",
        "TrellisError": ".errors",
        "audit": ".paths.audit",
        "compact": ".deploy.compact",
        "export": ".deploy.exporters",
        "export_c": ".deploy.c",
        "export_onnx": ".deploy.onnx",
        "export_wasm": ".deploy.wasm",
        "load": ".saving",
        "masks_of": ".masks",
        "methods": "",
        "prune": ".methods.prune",
        "saliency": ".training.gradients",
        "register_exporter": ".deploy.exporters",
        "register_method": ".methods.method",
        "rule": ".graph",
        "save": ".saving",
        "shrink": ".training.shrink",
        "skeleton": "",
        "trace": ".graph",
        "training": "",
    },
)
