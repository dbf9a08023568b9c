"""ONNX: the compacted dense network, checked against PyTorch before it is written."""

from .export import Exported, export_onnx

__all__ = ["Exported", "export_onnx"]
