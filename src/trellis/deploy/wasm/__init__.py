"""Export to WebAssembly: the same C, built for browsers, and a page that runs it."""

from __future__ import annotations

from .page import Clip, Scene
from .write import WasmExport, export_wasm

__all__ = ["Clip", "Scene", "WasmExport", "export_wasm"]
