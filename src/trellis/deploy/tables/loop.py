"""Loops: a layer over planes (images, sequences) whose weights are stored once.

A step of the tables names every unit that it reads. A loop names each weight once, and slides it
over the positions of a plane. It is what convolutions, pooling, residual sums and linear layers of
a CNN become.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .activation import Activation

LOOPS = ("conv", "peak", "mean")
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
_AT_ONCE = 1 << 21  # numbers, so that large planes need little memory


@dataclass(frozen=True, eq=False)
class Loop:
    """Planes of ``shape`` (channels, height, width), computed one after another.

    Tap ``(p, ky, kx)`` of position (y, x) reads the address ``sources[p] + ky · reach[0] + kx ·
    reach[1] + y · stride[0] + x · stride[1]``. It is stored as ``(p · window[0] + ky) · window[1] +
    kx``. With ``shared``, all channels have the same taps, of weight one, and channel c reads plane
    c alone.

    ==========  =====================================================================
    kind        value, before ``act``
    ==========  =====================================================================
    ``"conv"``  bias[c] + scale[c] · Σ weights[t] · x[tap t]  (+ x[extras[c] + position])
    ``"peak"``  bias[c] + scale[c] · max x[tap t], shared
    ``"mean"``  bias[c] + scale[c] · Σ over the window, shared; it has no taps
    ==========  =====================================================================

    Position (y, x) of channel c lies at ``out[0] + c · out[1] + y · out[2] + x · out[3]``. Where
    ``border`` is (rows, gap, height, width), zeros surround each plane of that height and width:
    ``gap`` numbers between its rows, and ``rows`` rows between planes. Convolutions read them as
    padding.
    """

    kind: str
    act: Activation
    shape: tuple[int, int, int]
    out: tuple[int, int, int, int]
    stride: tuple[int, int]
    window: tuple[int, int]
    reach: tuple[int, int]
    sources: Ints
    shared: bool
    fan: Ints  # (channels,), or (1,) if shared
    taps: Ints  # (Σ fan,), ascending within a channel
    weights: NDArray[Any]  # (Σ fan,) float32, float16 or int8; empty if shared
    scale: Floats  # (channels,)
    bias: Floats  # (channels,)
    extras: Ints  # (channels,), −1 for none; empty if no channel has one
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    name: str = ""

    @property
    def positions(self) -> int:
        return self.shape[1] * self.shape[2]

    @property
    def uses(self) -> int:
        """Number of multiplications; additions and comparisons of pooling count alike."""
        if self.kind == "mean":
            return self.shape[0] * self.positions * self.window[0] * self.window[1]
        return int(self.fan.sum()) * self.positions * (self.shape[0] if self.shared else 1)

    def places(self) -> Ints:
        """Return the address of each position of the first plane, (positions,)."""
        _, height, width = self.shape
        rows = np.arange(height)[:, None] * self.out[2] + np.arange(width) * self.out[3]
        return rows.reshape(-1) + self.out[0]

    def positions_read(self) -> Ints:
        """Return how far each position reads from the first, (positions,)."""
        _, height, width = self.shape
        rows = np.arange(height)[:, None] * self.stride[0] + np.arange(width) * self.stride[1]
        return rows.reshape(-1)

    def window_read(self) -> Ints:
        """Return how far each entry of the window reads from the first, (entries,)."""
        kh, kw = self.window
        reach = np.arange(kh)[:, None] * self.reach[0] + np.arange(kw) * self.reach[1]
        return reach.reshape(-1)

    def tap_addresses(self, channel: int) -> Ints:
        """Return what the taps of a channel read for its first position."""
        entries = self.window[0] * self.window[1]
        if self.kind == "mean":
            return self.window_read() + int(self.sources[channel])
        if self.shared:
            return self.window_read()[self.taps] + int(self.sources[channel])
        taps = self.taps[self.spans(channel)]
        return self.sources[taps // entries] + self.window_read()[taps % entries]

    def spans(self, channel: int) -> slice:
        """Return where the taps of a channel lie."""
        if self.shared:
            return slice(0, len(self.taps))
        ends = np.cumsum(self.fan)
        return slice(int(ends[channel] - self.fan[channel]), int(ends[channel]))

    def cleared(self) -> Ints:
        """Return the addresses of the zeros around the planes."""
        rows, gap, height, width = self.border
        if rows == 0 and gap == 0:
            return np.zeros(0, np.int64)
        pitch = width + gap
        one = np.zeros((height + rows, pitch), bool)
        one[:height, :width] = True
        zeros = np.flatnonzero(~one.reshape(-1))
        planes = (np.arange(self.shape[0])[:, None] * self.out[1] + zeros).reshape(-1)
        before = np.arange(-(rows * pitch + gap), 0)
        return np.concatenate([before, planes]) + self.out[0]

    def group_of_term(self) -> Ints:
        """Return the channel of each tap; 0 if shared."""
        return np.repeat(np.arange(len(self.fan)), self.fan)

    def not_finite(self) -> str | None:
        """Return the name of an array that is not finite in float32, or None."""
        for name in ("bias", "scale", "weights"):
            if not np.isfinite(getattr(self, name).astype(np.float32)).all():
                return name
        if len(self.weights):
            with np.errstate(over="ignore"):
                scaled = self.weights.astype(np.float32) * self.scale[self.group_of_term()]
            if not np.isfinite(scaled).all():
                return "scaled weight"
        return None


def advance_loop(loop: Loop, memory: Floats) -> None:
    """Compute one loop on memory (size, batch), in single precision."""
    positions, places = loop.positions_read(), loop.places()
    for channel in range(loop.shape[0]):
        taps = loop.tap_addresses(channel)
        weights = np.ones(len(taps), np.float32)
        if not loop.shared:
            weights = loop.weights[loop.spans(channel)].astype(np.float32)
        total = np.zeros((len(positions), memory.shape[1]), np.float32)
        if loop.kind == "peak":
            total = memory[taps[:, None] + positions].max(axis=0)
        most = max(_AT_ONCE // max(total.size, 1), 1)
        for some in range(0, 0 if loop.kind == "peak" else len(taps), most):
            read = memory[taps[some : some + most, None] + positions]
            if loop.shared:
                total += read.sum(axis=0)
            else:
                total += np.einsum("tpb,t->pb", read, weights[some : some + most])
        result = total * loop.scale[channel] + loop.bias[channel]
        at = places + channel * loop.out[1]
        if len(loop.extras) and loop.extras[channel] >= 0:
            result += memory[at - (channel * loop.out[1] + loop.out[0]) + loop.extras[channel]]
        memory[at] = loop.act(result)
    memory[loop.cleared()] = 0
