"""From uniform numbers to a rotation in space and a map of time."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# A rotation about an axis is  still + cos · plane + sin · turn.
_STILL = [[[float(i == j == axis) for j in range(3)] for i in range(3)] for axis in range(3)]
_PLANE = [[[float(i == j != axis) for j in range(3)] for i in range(3)] for axis in range(3)]
_TURN = [
    [[0, 0, 0], [0, 0, 1], [0, -1, 0]],
    [[0, 0, -1], [0, 0, 0], [1, 0, 0]],
    [[0, 1, 0], [-1, 0, 0], [0, 0, 0]],
]


class Rotations:
    """Angles about x, y, z in radians (…, 3) -> matrices (…, 3, 3) for rows: ``points @ matrix``.

    A rotation by a positive angle about z takes x to y, about x takes y to z, about y z to x. The
    turn about x comes first, that about z last.

    >>> quarter = torch.tensor([0, 0, math.pi / 2])
    >>> x = torch.tensor([1.0, 0, 0])
    >>> (x @ Rotations(x.device, x.dtype)(quarter)).round()
    tensor([-0., 1., 0.])
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        # (axes, 3, 3) each, made once: making a tensor on a GPU waits for it.
        self.still, self.plane, self.turn = (
            torch.tensor(form, dtype=dtype, device=device) for form in (_STILL, _PLANE, _TURN)
        )

    def __call__(self, angles: Tensor) -> Tensor:
        wide = angles[..., None, None]
        each = torch.addcmul(self.still, wide.cos(), self.plane).addcmul_(wide.sin(), self.turn)
        about_x, about_y, about_z = each.unbind(-3)
        return about_x @ about_y @ about_z


class Times:
    """Where each chunk of the new recording lies in the old one, in chunks: (…, chunks).

    Chunk m of M, at u = m / (M − 1) of the way, is taken from

        start + share · (u + a sin(πu) / π + b sin(2πu) / 2π)

    of the way. The speed there is ``share`` · (1 + a cos(πu) + b cos(2πu)): with |a| + |b| < 1
    time never stands still nor runs back.

    >>> times = Times(5, torch.device("cpu"), torch.float32)
    >>> one, none = torch.ones(1), torch.zeros(1)
    >>> times(torch.zeros(1, 2), one, none)
    tensor([[0., 1., 2., 3., 4.]])
    >>> times(torch.zeros(1, 2), one / 2, one / 4)
    tensor([[1.0000, 1.5000, 2.0000, 2.5000, 3.0000]])
    """

    def __init__(self, chunks: int, device: torch.device, dtype: torch.dtype) -> None:
        self.last = chunks - 1
        even = torch.arange(chunks, dtype=torch.float64)
        half_turns = even * (math.pi / max(self.last, 1))
        waves = [self.last * torch.sin(k * half_turns) / (k * math.pi) for k in (1, 2)]
        for wave in waves:
            wave[-1] = 0  # as sin(kπ) is, and the sine of what is nearest to it is not
        self.even, self.first_wave, self.second_wave = (
            values.to(device, dtype) for values in (even, *waves)
        )

    def __call__(self, warp: Tensor, share: Tensor, start: Tensor) -> Tensor:
        """``warp`` (…, 2) are a and b; ``share`` and ``start`` (…,) of the recording are kept."""
        a, b = warp[..., :1], warp[..., 1:]
        even = torch.addcmul(self.even, a, self.first_wave).addcmul_(b, self.second_wave)
        places = torch.addcmul(self.last * start[..., None], even, share[..., None])
        return places.clamp_(0, self.last)
