"""One network as the page shows it: its lines, what its classes listen to, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..skeleton import Layout
from ..skeleton.channels import BASES
from ..skeleton.view import branches
from .drawing import drawing
from .messages import messages_of
from .multiplications import multiplications
from .shares import by_joint, by_moment, over_chunks
from .weights import Weights

FULL_SHARE = 10_000  # shares are told in these parts


def shown_network(
    weights: Weights, layout: Layout, moments: Sequence[int], basis: str = BASES[0]
) -> dict[str, Any]:
    """``joints`` and ``chunks`` are the shares of each class, in parts that add up to `FULL_SHARE`;
    in the basis of cosines also ``waves``."""
    messages = messages_of(weights)
    in_time = by_moment(messages, moments)
    waves = basis == "cosines"
    return {
        "drawing": drawing(messages, branches(layout)),
        "joints": whole_parts(by_joint(messages)),
        "chunks": whole_parts(over_chunks(in_time) if waves else in_time),
        "waves": whole_parts(in_time) if waves else None,
        "multiplications": multiplications(messages),
    }


def whole_parts(values: Tensor) -> list[list[int]]:
    """Rows that add up to one -> rows of whole numbers that add up to `FULL_SHARE`, as near as can.

    >>> import torch
    >>> whole_parts(torch.tensor([[1 / 3, 1 / 3, 1 / 3], [0.0, 0.0, 0.0]]))
    [[3334, 3333, 3333], [0, 0, 0]]
    """
    scaled = values.double() * FULL_SHARE
    whole = scaled.floor()
    left = (scaled.sum(1) - whole.sum(1)).round().long()
    ranked = (scaled - whole).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    result: list[list[int]] = (whole.long() + (ranked < left[:, None])).tolist()
    return result
