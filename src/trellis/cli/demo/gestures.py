"""Made-up hand gestures: a skeleton of 21 joints that bends its fingers as its class says.

Synthetic, and meant to look it: no recording of any hand is in here.
"""

from __future__ import annotations

import torch
from torch import Tensor

FINGERS, BONES, FRAMES = 5, 4, 8
JOINTS = 1 + FINGERS * BONES  # a wrist, and four joints a finger
CHANNELS = FRAMES * 3
CLASSES = 16


def gestures(count: int, seed: int, noise: float = 0.35) -> tuple[Tensor, Tensor]:
    """``count`` sequences of every class: x (CLASSES·count, JOINTS, CHANNELS), y (CLASSES·count,).

    A class is a pattern: for each finger, how far it bends and when. A sample follows its class's
    pattern with a speed, a tilt of the hand and a trembling of its own.

    >>> x, y = gestures(2, seed=0)
    >>> tuple(x.shape), tuple(y.shape)
    ((32, 21, 24), (32,))
    """
    bends, starts = _patterns()
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(CLASSES).repeat_interleave(count)
    n = len(y)

    def normal(*shape: int) -> Tensor:
        return torch.randn(n, *shape, generator=generator)

    speed = 1 + 0.2 * normal(1, 1)
    time = torch.linspace(0, 1, FRAMES)[None, :, None] * speed  # (n, frames, 1)
    rise = torch.sigmoid(8 * (time - starts[y][:, None]))  # (n, frames, fingers)
    bend = (bends[y] + 0.2 * normal(FINGERS))[:, None] * rise
    hand = _pose(bend)  # (n, frames, joints, 3)
    hand = _tilted(hand, 0.3 * normal()) + noise * normal(FRAMES, JOINTS, 3)
    return hand.permute(0, 2, 1, 3).reshape(n, JOINTS, CHANNELS), y


def _patterns() -> tuple[Tensor, Tensor]:
    """How far (radians a joint) and when (0 to 1) each class bends each finger."""
    generator = torch.Generator().manual_seed(20)
    bends = 1.2 * torch.rand(CLASSES, FINGERS, generator=generator) - 0.2
    return bends, 0.2 + 0.6 * torch.rand(CLASSES, FINGERS, generator=generator)


def _pose(bend: Tensor) -> Tensor:
    """Joints of a hand whose fingers bend by ``bend`` (..., fingers) at each joint."""
    spread = torch.linspace(-0.6, 0.6, FINGERS)
    angle = bend[..., None] * torch.arange(BONES)  # (..., fingers, bones)
    steps = torch.stack(
        [
            spread.sin()[:, None] * angle.cos(),
            spread.cos()[:, None] * angle.cos(),
            -angle.sin(),
        ],
        -1,
    )
    joints = steps.cumsum(-2).flatten(-3, -2)
    return torch.cat([torch.zeros_like(joints[..., :1, :]), joints], -2)


def _tilted(hand: Tensor, angle: Tensor) -> Tensor:
    """Each sample turned about the vertical by its own angle (n,)."""
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    x, y, z = hand.unbind(-1)
    return torch.stack([cos * x - sin * z, y, sin * x + cos * z], -1)
