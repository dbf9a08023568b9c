"""The packages that writing ONNX needs, which not everybody has."""

from __future__ import annotations

import importlib
from typing import Any

from ...errors import TrellisError

PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def needed(name: str) -> Any:
    """Import one of `PACKAGES`, or say how to get them."""
    for package in PACKAGES:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise TrellisError(
                f"ONNX needs the package {package!r}, which cannot be imported ({error}): "
                "pip install 'trellis-prune[onnx]'"
            ) from error
    return importlib.import_module(name)
