"""Masks on models: plain names, parametrization and files."""

from __future__ import annotations

from .file import weights_hash
from .masks import Masks, masks_of
from .plain import aliases, plain, plain_tensors
from .slots import Mask

__all__ = [
    "Mask",
    "Masks",
    "aliases",
    "masks_of",
    "plain",
    "plain_tensors",
    "weights_hash",
]
