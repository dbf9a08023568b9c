"""How a model holds its masks: plain names, parametrization, files."""

from trellis.masks.file import weights_hash
from trellis.masks.masks import Masks
from trellis.masks.of import masks_of
from trellis.masks.parametrization import Mask
from trellis.masks.plain import aliases, plain, plain_tensors

__all__ = [
    "Mask",
    "Masks",
    "aliases",
    "masks_of",
    "plain",
    "plain_tensors",
    "weights_hash",
]
