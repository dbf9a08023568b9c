"""Motion as a sum of waves: the cosine transform of what each joint does over its chunks.

A weight on a chunk sees a joint at one moment. A weight on a coefficient sees one wave of the whole
motion: where it is on average, from where to where it goes, whether it comes back. A dense network
can make either out of the other; one that keeps a weight in a thousand cannot, and is more accurate
on waves (docs/results.md).
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def cosines(chunks: int) -> NDArray[np.float64]:
    """(chunks, chunks): row k is half k waves over the chunks, rows orthonormal (the DCT-II).

    >>> cosines(2).round(3).tolist()
    [[0.707, 0.707], [0.707, -0.707]]
    >>> bool(np.allclose(cosines(5) @ cosines(5).T, np.eye(5)))
    True
    """
    k, m = np.arange(chunks)[:, None], np.arange(chunks)
    waves = np.sqrt(2 / chunks) * np.cos(np.pi * (m + 0.5) * k / chunks)
    waves[0] = np.sqrt(1 / chunks)
    found: NDArray[np.float64] = waves
    return found


def in_cosines(x: Tensor) -> Tensor:
    """(…, chunks * 3), x y z of each chunk -> (…, chunks * 3), x y z of each coefficient.

    >>> still = torch.tensor([1.0, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3])        # at four moments
    >>> in_cosines(still).round(decimals=3).tolist()[:6]
    [2.0, 4.0, 6.0, 0.0, 0.0, 0.0]
    """
    with torch.autocast(x.device.type, enabled=False):  # a rounded wave is not the wave
        found: Tensor = x @ _by_axis(x.shape[-1] // 3, x.dtype, x.device)
    return found


@functools.cache
def _by_axis(chunks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(chunks * 3, chunks * 3): the transform, transposed, of x, y and z each. Kept, because a
    captured graph cannot copy it from the host."""
    with torch.inference_mode(False):
        return torch.from_numpy(np.kron(cosines(chunks).T, np.eye(3))).to(device, dtype)
