"""A model as WebAssembly: the same C, and a page that runs it."""

from __future__ import annotations

from .page import Clip, Scene
from .write import WasmExport, export_wasm

__all__ = ["Clip", "Scene", "WasmExport", "export_wasm"]
