"""Export to WebAssembly: the same C, built for browsers, and a page that runs it."""

from __future__ import annotations

from .write import Clip, Scene, WasmExport, export_wasm

__all__ = ["Clip", "Scene", "WasmExport", "export_wasm"]
