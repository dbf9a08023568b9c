"""Data augmentation: random rotation, scale, time warp, crop, noise and mirroring.

`Augmentation` has the settings, `Plans` the random numbers of a step. `Augmenter` applies them to
a stack of networks, on the device that they train on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import TrellisError
from ...training.batches import Noise, stream
from .layouts import Layout

__all__ = ["Augmentation", "Augmenter"]


AXES = "xyz"


@dataclass(frozen=True)
class Augmentation:
    """The limits of random variants, which are drawn uniformly for each recording and step.

    The defaults were chosen on recordings held out of four training sets
    (docs/results/choosing.md).

    Args:
        rotation: The largest angles in degrees about the x, y and z axis through the root, either
            way. Rotations are applied in this order.
        scale: The largest relative change of size; 0.2 is from 0.8 to 1.2 times.
        warp: The largest relative change of speed within a recording, from 0 to below 1. The first
            and the last moment stay.
        crop: The smallest share of a recording that is kept and stretched to its whole length.
        noise: The standard deviation of the noise on every coordinate, where that of normalized
            coordinates is 1.
        mirror: The probability of mirroring: joints are exchanged as the layout says, and the axis
            ``left_right`` is negated.
        left_right: The axis from left to right: 0, 1 or 2 for x, y or z.

    Raises:
        TrellisError: A setting is out of range.

    Example:
        >>> Augmentation(crop=0.8).rotation
        (30.0, 30.0, 30.0)
        >>> Augmentation(warp=1.5)
        Traceback (most recent call last):
        trellis.errors.TrellisError: warp=1.5 is not a number from 0 to below 1
    """

    rotation: tuple[float, float, float] = (30.0, 30.0, 30.0)
    scale: float = 0.2
    warp: float = 0.7
    crop: float = 0.75
    noise: float = 0.05
    mirror: float = 0.0
    left_right: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.rotation, tuple | list) or len(self.rotation) != 3:
            raise TrellisError(
                f"rotation={self.rotation!r} is not three numbers of degrees, about the x, y and "
                "z axis: give for example (20, 20, 20)"
            )
        for axis, degrees in zip(AXES, self.rotation, strict=True):
            if not (_is_number(degrees) and 0 <= degrees <= 180):
                raise TrellisError(
                    f"rotation={self.rotation!r}: about the {axis} axis it is {degrees!r}, not a "
                    "number of degrees from 0 to 180"
                )
        object.__setattr__(self, "rotation", tuple(self.rotation))
        for name in ("scale", "warp"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 <= value < 1):
                raise TrellisError(f"{name}={value!r} is not a number from 0 to below 1")
        if not (_is_number(self.crop) and 0 < self.crop <= 1):
            raise TrellisError(
                f"crop={self.crop!r} is not a share of the recording above 0 and up to 1, which "
                "keeps all of it"
            )
        if not (_is_number(self.noise) and 0 <= self.noise < math.inf):
            raise TrellisError(f"noise={self.noise!r} is not a finite number from 0 up")
        if not (_is_number(self.mirror) and 0 <= self.mirror <= 1):
            raise TrellisError(f"mirror={self.mirror!r} is not a probability from 0 to 1")
        if isinstance(self.left_right, bool) or self.left_right not in (0, 1, 2):
            raise TrellisError(
                f"left_right={self.left_right!r} is not an axis: 0, 1 or 2 for x, y or z"
            )

    def check(self, layout: Layout) -> None:
        """Raise if mirroring is on and the layout has no mirror image."""
        if self.mirror > 0 and layout.mirror is None:
            raise TrellisError(
                f"mirror={self.mirror!r} and layout {layout.name!r} defines no mirror: set "
                "mirror=0 (the mirror image of one hand is the other hand)"
            )

    @property
    def retimes(self) -> bool:
        """Whether it changes the time axis."""
        return self.warp > 0 or self.crop < 1

    @property
    def moves(self) -> bool:
        """Whether it does more than add noise."""
        return self.retimes or any(self.rotation) or self.scale > 0 or self.mirror > 0

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them."""
        return {**vars(self), "rotation": list(self.rotation)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


# The random rotations, scales, time maps and mirrors of a step.


# Places of the random numbers that are drawn for every network and recording.
TURN, SIZE, WARP, SHARE, START, MIRROR = slice(0, 3), 3, slice(4, 6), 6, 7, 8
COUNT = 9


class Draws:
    """Uniform random numbers from −1 to 1, (networks, recordings, 9).

    They depend on a network's seed and the step only. All nine are always drawn, so that changing
    one setting does not change the random numbers of the others.

    >>> draws = Draws([7, 8], torch.device("cpu"), torch.float32)
    >>> alone = Draws([8], torch.device("cpu"), torch.float32)
    >>> torch.equal(draws(3, 600)[1], alone(3, 600)[0])
    True
    """

    def __init__(self, seeds: Sequence[int], device: torch.device, dtype: torch.dtype) -> None:
        self.seeds, self.device, self.dtype = list(seeds), device, dtype
        self.generator = torch.Generator(device)

    def __call__(self, step: int, recordings: int) -> Tensor:
        drawn = torch.empty(
            len(self.seeds), recordings, COUNT, dtype=self.dtype, device=self.device
        )
        for own, seed in zip(drawn, self.seeds, strict=True):
            # The noise of the steps 0, 1, 2 … takes the streams 0, 1, 2 …; these are −1, −2, …
            self.generator.manual_seed(stream(seed, -1 - step))
            own.uniform_(-1, 1, generator=self.generator)
        return drawn


# A rotation about an axis is  still + cos · plane + sin · turn.
_STILL = [[[float(i == j == axis) for j in range(3)] for i in range(3)] for axis in range(3)]
_PLANE = [[[float(i == j != axis) for j in range(3)] for i in range(3)] for axis in range(3)]
_TURN = [
    [[0, 0, 0], [0, 0, 1], [0, -1, 0]],
    [[0, 0, -1], [0, 0, 0], [1, 0, 0]],
    [[0, 1, 0], [-1, 0, 0], [0, 0, 0]],
]


class Rotations:
    """Rotation matrices for rows (``points @ matrix``) from angles in radians about x, y and z.

    A positive angle about z rotates x to y, about x rotates y to z, about y rotates z to x. The
    rotation about x comes first, that about z last.

    Shapes: (…, 3) -> (…, 3, 3).

    >>> quarter = torch.tensor([0, 0, math.pi / 2])
    >>> x = torch.tensor([1.0, 0, 0])
    >>> (x @ Rotations(x.device, x.dtype)(quarter)).round()
    tensor([-0., 1., 0.])
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        # (axes, 3, 3) each, made once: creating a tensor on a GPU synchronizes.
        self.still, self.plane, self.turn = (
            torch.tensor(form, dtype=dtype, device=device) for form in (_STILL, _PLANE, _TURN)
        )

    def __call__(self, angles: Tensor) -> Tensor:
        wide = angles[..., None, None]
        each = torch.addcmul(self.still, wide.cos(), self.plane).addcmul_(wide.sin(), self.turn)
        about_x, about_y, about_z = each.unbind(-3)
        return about_x @ about_y @ about_z


class Times:
    """The place of each new chunk in the old recording, in chunks, (…, chunks).

    Chunk m of M, at u = m / (M − 1) of the way, is taken from

        start + share · (u + a sin(πu) / π + b sin(2πu) / 2π)

    of the way. The speed there is ``share`` · (1 + a cos(πu) + b cos(2πu)). It is positive if
    |a| + |b| < 1.

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
            wave[-1] = 0  # exactly: the sine of the float nearest to kπ is not 0
        self.even, self.first_wave, self.second_wave = (
            values.to(device, dtype) for values in (even, *waves)
        )

    def __call__(self, warp: Tensor, share: Tensor, start: Tensor) -> Tensor:
        """Return the places for warps a and b (…, 2), and the kept ``share`` and its ``start``."""
        a, b = warp[..., :1], warp[..., 1:]
        even = torch.addcmul(self.even, a, self.first_wave).addcmul_(b, self.second_wave)
        places = torch.addcmul(self.last * start[..., None], even, share[..., None])
        return places.clamp_(0, self.last)


# Networks times steps that are planned at once on a GPU. A plan is about thirty small operations,
# whose launch takes longer than their work.
_TOGETHER = 32


class Plan(NamedTuple):
    """How to make every variant (networks × batch) from a table with a row for each chunk.

    Mirrored recordings, if any, follow the others in the table.
    """

    which: Tensor  # (variants,): the recording it is made of
    rows: Tensor  # (variants * chunks, 2): the moments that a new chunk lies between
    weights: Tensor  # (variants * chunks, 2): of each of the two
    space: Tensor  # (variants, 3, 3): what a place x y z is multiplied by


class Plans:
    """The plans of all steps; ``plans(step, batch)`` depends on the seeds and the step only.

    ``ahead`` is the number of steps that are planned at once; results do not depend on it.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        settings: Augmentation,
        chunks: int,
        device: torch.device,
        dtype: torch.dtype,
        ahead: int | None = None,
    ) -> None:
        self.settings, self.chunks = settings, chunks
        self.ahead = ahead or (1 if device.type == "cpu" else max(1, _TOGETHER // len(seeds)))
        self.draws = Draws(seeds, device, dtype)
        self.rotations = Rotations(device, dtype)
        self.times = Times(chunks, device, dtype)
        # Everything is on the device already, so that a step never waits for the host.
        limits = torch.ones(COUNT, dtype=torch.float64)
        limits[TURN] = torch.tensor(settings.rotation, dtype=torch.float64) * (math.pi / 180)
        limits[SIZE], limits[WARP] = settings.scale, settings.warp
        self.limits = limits.to(device, dtype)
        flips = torch.eye(3, dtype=dtype).repeat(2, 1, 1)
        flips[1, settings.left_right, settings.left_right] = -1
        self.flips = flips.to(device)
        self.planned: tuple[int, int] | None = None  # the first step, and recordings in a batch
        self.plans: list[Plan] = []

    def __call__(self, step: int, batch: int) -> Plan:
        first = step - step % self.ahead
        if self.planned != (first, batch):
            steps = range(first, first + self.ahead)
            drawn = torch.stack([self.draws(each, batch) for each in steps])
            self.plans = self._made(drawn * self.limits)
            self.planned = (first, batch)
        return self.plans[step - first]

    def _made(self, drawn: Tensor) -> list[Plan]:
        """Return a plan for each step from random numbers (steps, networks, batch, 9)."""
        mirrored = (drawn[..., MIRROR] < 2 * self.settings.mirror - 1).long()
        batch = drawn.shape[2]
        which = mirrored * batch + torch.arange(batch, device=drawn.device)
        places = self._places(drawn)  # steps, networks, batch, chunks
        before = places.floor()
        weight = places - before
        before = before.long()
        after = (before + 1).clamp_(max=self.chunks - 1)
        rows = torch.stack([before, after], -1) + self.chunks * which[..., None, None]
        weights = torch.stack([1 - weight, weight], -1)
        space = self.rotations(drawn[..., TURN]) * (1 + drawn[..., SIZE, None, None])
        if self.settings.mirror > 0:
            space = self.flips[mirrored] @ space
        parts = (which.flatten(1), rows.view(len(drawn), -1, 2), weights.view(len(drawn), -1, 2),
                 space.flatten(1, 2))  # fmt: skip
        return [Plan(*each) for each in zip(*parts, strict=True)]

    def _places(self, drawn: Tensor) -> Tensor:
        """Return the place of each new chunk in the old recording, in chunks."""
        if not self.settings.retimes:
            return self.times.even.expand(*drawn.shape[:-1], -1)
        a, b = drawn[..., WARP].unbind(-1)
        # |a| + |b| stays within the limit, so that the speed does.
        warp = torch.stack([a, b * (1 - a.abs() / max(self.settings.warp, 1e-9))], -1)
        share = 1 - (1 - self.settings.crop) / 2 * (drawn[..., SHARE] + 1)
        start = (1 - share) / 2 * (drawn[..., START] + 1)
        return self.times(warp, share, start)


# The recordings of a stack, augmented.


class Augmenter:
    """Random variants of a batch for every network of a stack.

    Recordings must be chunked and normalized: the mean position of the root is the origin of
    rotation and scale, and the standard deviation of the coordinates is 1.

    Rotation, scale and mirroring are linear in space. They commute exactly with chunking, and with
    `Normalization` in the camera's frame. Warp and crop do not: a new chunk is interpolated
    linearly between two old ones, and the recording is then shifted so that the mean position of
    the root stays.

    A network gets the same variants whichever stack it is part of: they depend on its seed and the
    step only. With noise alone, the result is that of `Noise`, bit for bit.

    Args:
        seeds: One seed per network.
        settings: The limits of the variants.
        layout: The skeleton.
        chunks: The number of chunks.
        device: The device of the recordings.
        dtype: Their type.
        ahead: The number of steps that are planned at once (default: 1 on a CPU, more on a GPU).

    Raises:
        TrellisError: Mirroring is on and the layout has no mirror image.

    Example:
        >>> from trellis.skeleton.data.layouts import FPHA
        >>> settings = Augmentation(crop=0.7)
        >>> augmenter = Augmenter([0, 1], settings, FPHA, chunks=32, device=torch.device("cpu"))
        >>> x, out = torch.randn(600, 21, 96), torch.empty(2, 600, 21, 96)
        >>> augmenter.onto(out, x, step=0)
    """

    def __init__(
        self,
        seeds: Sequence[int],
        settings: Augmentation,
        layout: Layout,
        chunks: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        ahead: int | None = None,
    ) -> None:
        settings.check(layout)
        self.settings, self.chunks = settings, chunks
        self.joints, self.networks = len(layout.joints), len(seeds)
        self.dtype = dtype
        self.noise = Noise(seeds, settings.noise, device)
        self.plans = Plans(seeds, settings, chunks, device, dtype, ahead)
        self.roots = torch.tensor(layout.roots, device=device)
        self.other = torch.tensor(layout.mirror or (), dtype=torch.long, device=device)

    @torch.no_grad()
    def onto(self, out: Tensor, x: Tensor, step: int) -> None:
        """Write variants of x (batch, joints, chunks * 3) into out (networks, batch, …)."""
        self._check(out, x)
        if not self.settings.moves:
            self.noise.onto(out, x, step)
            return
        which, rows, weights, space = self.plans(step, len(x))
        table = self._table(x)  # recordings * chunks, joints * 4
        # One pass gathers and interpolates: a new chunk is a bag of two weighted rows.
        moved = F.embedding_bag(rows, table, per_sample_weights=weights, mode="sum")
        if self.settings.retimes:
            shift = (self._root(table)[which] - self._root(moved))[:, None] @ space
        else:
            shift = torch.zeros_like(space[:, :1])
        turned = torch.bmm(
            moved.view(len(space), self.chunks * self.joints, 4), torch.cat([space, shift], 1)
        )
        by_joint = turned.view(self.networks, len(x), self.chunks, self.joints, 3).transpose(2, 3)
        self.noise.onto(out.view(by_joint.shape), by_joint, step)

    def _table(self, x: Tensor) -> Tensor:
        """Return a row for each chunk of each recording, and again mirrored if needed.

        A joint is x y z 1, so that one matrix both rotates and shifts it.
        """
        points = x.reshape(len(x), self.joints, self.chunks, 3).transpose(1, 2)
        points = F.pad(points, (0, 1), value=1.0)
        if self.settings.mirror > 0:
            # Joints are exchanged here; the matrix negates the axis.
            points = torch.cat([points, points[:, :, self.other]])
        return points.reshape(-1, self.joints * 4)

    def _root(self, moments: Tensor) -> Tensor:
        """Return the mean root, (recordings * chunks, joints * 4) -> (recordings, 3)."""
        points = moments.view(-1, self.chunks, self.joints, 4)
        return points[:, :, self.roots, :3].mean((1, 2))

    def _check(self, out: Tensor, x: Tensor) -> None:
        wanted = (self.joints, self.chunks * 3)
        if x.dim() != 3 or x.shape[1:] != wanted:
            raise TrellisError(
                f"recordings of the shape {tuple(x.shape)}: augmentation is for (batch, "
                f"{wanted[0]}, {wanted[1]}), {self.joints} joints and {self.chunks} chunks of 3"
            )
        if out.shape != (self.networks, *x.shape) or not out.is_contiguous():
            raise TrellisError(
                f"variants of {tuple(x.shape)} for {self.networks} networks do not go into a "
                f"tensor of the shape {tuple(out.shape)}"
            )
        if x.dtype != self.dtype or out.dtype != self.dtype:
            raise TrellisError(
                f"augmentation was set up for {self.dtype}, and was given {x.dtype} to write into "
                f"{out.dtype}"
            )
