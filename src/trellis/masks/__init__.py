"""Masks on models: plain names, parametrization and files."""

from __future__ import annotations

from .masked import aliases, plain, plain_tensors
from .masks import Masks, masks_of, weights_hash
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
