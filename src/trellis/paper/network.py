"""The network of a run: its shape, its weights for a seed, and the memory it takes to train."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property

import torch

from ..skeleton import GCN
from .settings import Data, Settings

# What a stack of networks may take. Fixed for a kind of device, never what happens to be free:
# the plan of a run must be the same when it goes on, wherever that is. Little on a CPU, where
# large stacks win nothing and their memory is asked of the system anew at every step.
LIMITS = {"cpu": 1 << 28, "cuda": 12 << 30}


@dataclass(frozen=True)
class Architecture:
    """The sizes of a `GCN`.

    >>> paper = Architecture(nodes=21, channels=96, classes=45, heads=16, filters=128)
    >>> paper.connections
    2139024
    >>> paper.fitting("cuda", batch=600) > paper.fitting("cpu", batch=600)
    True
    """

    nodes: int
    channels: int
    classes: int
    heads: int
    filters: int
    blocks: int = 1
    shared: bool = False

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter, by name: as `build` makes them, without making any."""
        found: dict[str, tuple[int, ...]] = {}
        channels, kernels = self.channels, 1 if self.shared else self.heads
        for block in range(self.blocks):
            found[f"blocks.{block}.attention"] = (self.heads, self.nodes, self.nodes)
            found[f"blocks.{block}.convolution"] = (kernels, channels, self.filters)
            channels = self.heads * self.filters
        return found | {"dense.weight": (self.classes, self.nodes * channels)}

    @property
    def connections(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    def build(self, seed: int) -> GCN:
        """The network that this seed starts from, on the CPU: the same for every device."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return GCN(**asdict(self))

    def bytes(self, batch: int) -> int:
        """About what training one network takes, in float32: weights, gradients, the optimizer's
        two moments and masks; and what a batch leaves behind for the way back."""
        units, channels = self.nodes * self.channels, self.channels
        for _ in range(self.blocks):
            units += self.nodes * self.heads * (min(channels, self.filters) + self.filters)
            channels = self.heads * self.filters
        return 4 * (6 * self.connections + 3 * batch * units)

    def fitting(self, device: str, batch: int) -> int:
        """How many networks a stack may hold, at least one."""
        return max(1, LIMITS[device] // self.bytes(batch))


def architecture_of(settings: Settings, data: Data) -> Architecture:
    return Architecture(
        nodes=data.joints,
        channels=settings.chunks * 3,
        classes=data.classes,
        heads=settings.heads,
        filters=settings.filters,
        blocks=settings.blocks,
        shared=settings.shared,
    )
