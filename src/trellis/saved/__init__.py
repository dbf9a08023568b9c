"""A model as a folder: weights and masks in safetensors, what they are in JSON. Never pickle."""

from .model import load, save
from .registry import registered

__all__ = ["load", "registered", "save"]
