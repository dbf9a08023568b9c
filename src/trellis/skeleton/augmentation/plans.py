"""What becomes of every recording at a step, whatever is in it: which moments, turned how."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .draws import COUNT, MIRROR, SHARE, SIZE, START, TURN, WARP, Draws
from .moves import Rotations, Times
from .settings import Augmentation

# As many networks' steps as are planned at once on a GPU. A plan is some thirty operations on a
# few numbers each, which take a GPU as long to start as to do for one network or for many.
_TOGETHER = 32


class Plan(NamedTuple):
    """For every variant, networks × batch, of a table of moments (recordings * chunks, …).

    Mirrored recordings, where there are any, follow the others in the table.
    """

    which: Tensor  # (variants,): the recording it is made of
    rows: Tensor  # (variants * chunks, 2): the moments that a new chunk lies between
    weights: Tensor  # (variants * chunks, 2): of each of the two
    space: Tensor  # (variants, 3, 3): what a place x y z is multiplied by


class Plans:
    """``plans(step, batch)``: a matter of the seeds and the step alone.

    ``ahead`` is how many steps are planned at once; it changes nothing but how long that takes.
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
        # All that a step needs lies on the device already, so that it never waits for the host.
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
        """(steps, networks, batch, 9) -> a plan for each step."""
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
        """Where in the old recording each chunk of the new one lies, in chunks."""
        if not self.settings.retimes:
            return self.times.even.expand(*drawn.shape[:-1], -1)
        a, b = drawn[..., WARP].unbind(-1)
        # |a| + |b| stays within the limit, so that the speed does.
        warp = torch.stack([a, b * (1 - a.abs() / max(self.settings.warp, 1e-9))], -1)
        share = 1 - (1 - self.settings.crop) / 2 * (drawn[..., SHARE] + 1)
        start = (1 - share) / 2 * (drawn[..., START] + 1)
        return self.times(warp, share, start)
