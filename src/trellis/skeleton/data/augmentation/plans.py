"""The random rotations, scales, time maps and mirrors of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ....training.batches import stream
from .settings import Augmentation

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
