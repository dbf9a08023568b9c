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


def by_joint(messages: Messages) -> Tensor:
    """(classes, joints): the part of a class's paths that begin at a joint.

    Parts are of the summed path products, and those of a class add up to one; a class that no path
    reaches has none.

    >>> from ..skeleton import GCN
    >>> from .messages import messages_of
    >>> from .weights import weights_of
    >>> found = messages_of(weights_of(GCN(nodes=5, channels=12, classes=2, heads=2, filters=3)))
    >>> by_joint(found).shape, bool(torch.allclose(by_joint(found).sum(1), torch.ones(2).double()))
    (torch.Size([2, 5]), True)
    >>> by_moment(found, moments_of(4)).shape
    torch.Size([2, 4])
    """
    return messages.first.flow.sum(2)


def by_moment(messages: Messages, moments: Sequence[int]) -> Tensor:
    """(classes, moments): the part that begins at a moment. ``moments`` say which chunk, or which
    wave, each three channels are of."""
    channels = messages.first.by_channel
    by_three = channels.reshape(len(channels), len(moments), 3).sum(2)
    found = torch.zeros(len(channels), max(moments) + 1, dtype=channels.dtype)
    return found.index_add(1, torch.tensor(moments), by_three)


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
