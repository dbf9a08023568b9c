"""The first block, whose nodes are the joints themselves.

What has come from a joint by its convolution is still at that joint, and the same for every joint.
So no message has joints and nodes both, and a few sums over kept connections tell everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .block import Block, Ends
from .weights import Connections, added_up


@dataclass(frozen=True, eq=False)
class First(Block):
    """``wanted`` are the paths to each class from the block's end."""

    attention: Tensor
    convolution: Tensor
    wanted: Connections

    @cached_property
    def kernel(self) -> Tensor:
        """(heads, filters): all channels of a joint together, one path each."""
        return self.convolution.sum(1)

    @cached_property
    def hearing(self) -> Tensor:
        """(heads, nodes): all that a node hears of joints."""
        return self.attention.sum(2)

    @cached_property
    def by_node(self) -> Tensor:
        """(classes, nodes, heads): the paths to a class from a node in each head, convolved."""
        classes, nodes, heads, filters = self.wanted.shape
        kernel = self.kernel.flatten()[self.wanted.places % (heads * filters)]
        found = added_up(
            self.wanted.places // filters, self.wanted.weight * kernel, classes * nodes * heads
        )
        return found.reshape(classes, nodes, heads)

    @cached_property
    def by_class(self) -> Tensor:
        """(classes, heads, filters): the paths to a class from a filter, from all joints."""
        classes, nodes, heads, filters = self.wanted.shape
        width = heads * filters
        hearing = self.hearing.T.flatten()[self.wanted.places // filters % (nodes * heads)]
        to = self.wanted.places // (nodes * width) * width + self.wanted.places % width
        found = added_up(to, self.wanted.weight * hearing, classes * width)
        return found.reshape(classes, heads, filters)

    @cached_property
    def leading(self) -> Tensor:
        """(nodes, heads, filters): the paths to all classes from the block's end."""
        shape = self.wanted.shape[1:]
        size = math.prod(shape)
        return added_up(self.wanted.places % size, self.wanted.weight, size).reshape(shape)

    @property
    def by_channel(self) -> Tensor:
        """(classes, channels): the paths to a class that begin at a channel, at any joint."""
        return torch.einsum("okf,kcf->oc", self.by_class, self.convolution)

    @cached_property
    def forward(self) -> Tensor:
        return torch.einsum("kuj,kf->jukf", self.attention, self.kernel)

    @property
    def total(self) -> Tensor:
        return self.hearing.T[:, :, None] * self.kernel

    @cached_property
    def flow(self) -> Tensor:
        return torch.einsum("ouk,kuj->ojk", self.by_node, self.attention)

    @property
    def by_filter(self) -> Tensor:
        return self.by_class.sum(0) * self.kernel

    @property
    def seen(self) -> Tensor:
        nodes, channels = self.attention.shape[2], self.convolution.shape[1]
        return torch.ones(nodes, channels, dtype=torch.bool)

    @property
    def behind(self) -> Tensor:
        return self.leading > 0

    def of_attention(self, k: Tensor, u: Tensor, v: Tensor) -> Ends:
        to_class = self.attention[k, u, v] * self.by_node[:, u, k]
        from_joint = torch.zeros(self.attention.shape[2], len(v), dtype=torch.float64)
        from_joint[v, torch.arange(len(v))] = to_class.sum(0)
        return from_joint, to_class

    def of_convolution(self, k: Tensor, c: Tensor, f: Tensor) -> Ends:
        weight = self.convolution[k, c, f]
        by_joint = torch.einsum("kuj,ukf->jkf", self.attention, self.leading)
        return weight * by_joint[:, k, f], weight * self.by_class[:, k, f]
