"""What augmentation is, one recording and one chunk at a time, and recordings to try it on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trellis.skeleton import Augmentation, Augmenter, Layout
from trellis.skeleton.data.augmentation import MIRROR, SHARE, SIZE, START, TURN, WARP

Floats = NDArray[np.float64]
CPU = torch.device("cpu")
NOTHING = Augmentation(rotation=(0, 0, 0), scale=0, warp=0, crop=1, noise=0)
ALL = Augmentation(
    rotation=(30, 10, 170), scale=0.4, warp=0.7, crop=0.5, noise=0.3, mirror=0.4, left_right=2
)
TORSO = Layout(
    "torso", ("spine", "left", "head", "right"), (-1, 0, 0, 0), roots=(0, 2), mirror=(0, 3, 2, 1)
)


def recordings(
    batch: int = 6, layout: Layout = TORSO, chunks: int = 7, dtype: Any = torch.float32
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(batch)
    shape = (batch, len(layout.joints), chunks * 3)
    return torch.randn(shape, generator=generator, dtype=dtype)


def augmented(
    asked: Augmentation, x: torch.Tensor, seeds: Any = (0,), step: int = 0, layout: Layout = TORSO
) -> torch.Tensor:
    out = torch.full((len(seeds), *x.shape), torch.nan, dtype=x.dtype)
    chunks = x.shape[2] // 3
    Augmenter(seeds, asked, layout, chunks, CPU, x.dtype).onto(out, x, step)
    return out


def points(x: torch.Tensor) -> torch.Tensor:
    """(…, joints, chunks * 3) -> (…, chunks, joints, 3)."""
    return x.unflatten(-1, (-1, 3)).transpose(-3, -2)


def timing(asked: Augmentation, drawn: Floats) -> tuple[float, float, float, float]:
    """The two waves of the warp, the share of the recording that is kept, and its start."""
    a = asked.warp * drawn[WARP][0]
    b = (asked.warp - abs(a)) * drawn[WARP][1]
    share = asked.crop + (1 - asked.crop) * (1 - drawn[SHARE]) / 2
    return a, b, share, (1 - share) * (drawn[START] + 1) / 2


def moment(u: Any, a: float, b: float, share: float, start: float) -> Any:
    """How far through the old recording one is when u of the new one has passed."""
    waves = a * np.sin(np.pi * u) / np.pi + b * np.sin(2 * np.pi * u) / (2 * np.pi)
    return start + share * (u + waves)


def literally(asked: Augmentation, drawn: Floats, x: Floats, layout: Layout) -> Floats:
    """One recording (joints, chunks * 3), noise aside."""
    tracks = x.reshape(len(layout.joints), -1, 3)  # joints, chunks, axes
    last = tracks.shape[1] - 1
    mirrored = (drawn[MIRROR] + 1) / 2 < asked.mirror
    if mirrored:
        assert layout.mirror is not None
        tracks = np.array([tracks[layout.mirror[joint]] for joint in range(len(tracks))])
        tracks[..., asked.left_right] *= -1
    new = np.empty_like(tracks)
    for m in range(last + 1):
        place = last * moment(m / max(last, 1), *timing(asked, drawn))
        before = min(int(place), max(last - 1, 0))
        after = min(before + 1, last)
        new[:, m] = tracks[:, before] + (place - before) * (tracks[:, after] - tracks[:, before])
    roots = list(layout.roots)
    new += tracks[roots].mean((0, 1)) - new[roots].mean((0, 1))
    x_angle, y_angle, z_angle = drawn[TURN] * np.radians(asked.rotation)
    about_x = turned(1, 2, x_angle)
    about_y = turned(2, 0, y_angle)
    about_z = turned(0, 1, z_angle)
    factor = 1 + asked.scale * drawn[SIZE]
    for point in new.reshape(-1, 3):
        point[:] = factor * (about_z @ about_y @ about_x @ point)
    return new.reshape(x.shape)


def turned(one: int, other: int, angle: float) -> Floats:
    """Takes the axis ``one`` towards ``other``."""
    matrix = np.eye(3)
    matrix[one, one] = matrix[other, other] = math.cos(angle)
    matrix[other, one] = math.sin(angle)
    matrix[one, other] = -math.sin(angle)
    return matrix
