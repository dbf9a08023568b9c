"""Which joints, and which moments, a class still listens to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..skeleton.channels import COORDINATES
from ..skeleton.cosines import cosines
from .messages import Messages


def moments_of(chunks: int, kinds: Sequence[str] = COORDINATES) -> list[int]:
    """The chunk that each three channels of a joint are of, in their order; in the basis of cosines
    the wave. A velocity is of the later of its two chunks.

    >>> moments_of(3), moments_of(3, ("coordinates", "velocity"))
    ([0, 1, 2], [0, 1, 2, 1, 2])
    """
    return [chunk for kind in kinds for chunk in range(kind == "velocity", chunks)]


def shares(messages: Messages, moments: Sequence[int]) -> Tensor:
    """(classes, joints, moments): the part of a class's paths that begin at a joint and moment.

    Parts are of the summed path products, and those of a class add up to one; a class that no path
    reaches has none. ``moments`` say which chunk, or which wave, each three channels are of.

    >>> from ..skeleton import GCN
    >>> from .messages import messages_of
    >>> gcn = GCN(nodes=5, channels=4 * 3, classes=2, heads=2, filters=3)
    >>> found = shares(messages_of(gcn), moments_of(4))
    >>> found.shape, bool(torch.allclose(found.sum((1, 2)), torch.ones(2).double()))
    (torch.Size([2, 5, 4]), True)
    """
    first = messages.backward
    by_three = first.reshape(*first.shape[:2], len(moments), 3).sum(3)
    found = torch.zeros(*first.shape[:2], max(moments) + 1, dtype=first.dtype)
    return found.index_add(2, torch.tensor(moments), by_three)


def over_chunks(waves: Tensor) -> Tensor:
    """Parts by wave (…, chunks) -> parts by chunk (…, chunks), which add up to the same.

    A wave is there at every moment, more where it swings wide: what begins at wave k is spread over
    the chunks by the squares of the wave, C[k, m]², which add up to one over the chunks, because
    rows of C are of length one.

    >>> over_chunks(torch.tensor([[1.0, 0, 0], [0, 1, 0]])).mul(6).round(decimals=4)
    tensor([[2., 2., 2.],
            [3., 0., 3.]])
    """
    squares = torch.from_numpy(cosines(waves.shape[-1])).square()
    found: Tensor = waves @ squares.to(waves.dtype)
    return found
