"""How a masked weight computes: the kept connections pass, the others are +0.0."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Mask(nn.Module):
    """Keeps the connections where ``mask`` is True; the others read +0.0.

    A parametrization for ``torch.nn.utils.parametrize``. Selecting, where a product would do for
    most weights, settles three things at once: no -0.0, no NaN or infinity that shines through a
    pruned connection, and a gradient of exactly zero there. What the optimizer still does to a
    pruned entry (weight decay, momentum left from before) changes the stored parameter only and
    never what the layer computes.

    >>> mask = Mask(torch.tensor([True, False, False]))
    >>> mask(torch.tensor([-1.0, -2.0, torch.nan]))
    tensor([-1.,  0.,  0.])
    """

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        return torch.where(self.mask, weight, 0)

    def right_inverse(self, weight: Tensor) -> Tensor:
        # The identity: registering keeps the very same Parameter, so an optimizer made before
        # pruning goes on working, and `layer.weight = value` is allowed on a masked layer.
        return weight

    def extra_repr(self) -> str:
        return f"shape={tuple(self.mask.shape)}"
