"""Data augmentation for a stack of networks, on the device that they train on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ....errors import TrellisError
from ....training.batches import Noise
from ..layouts import Layout
from .plans import Plans
from .settings import Augmentation


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
