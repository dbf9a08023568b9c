"""A model as a folder: weights and masks in safetensors, what they are in JSON. Never pickle."""

from __future__ import annotations

from .model import load, registered, save

__all__ = ["load", "registered", "save"]
