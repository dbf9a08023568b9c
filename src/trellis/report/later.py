"""A block behind another: what comes from a joint has been to others on its way."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .block import Block, Ends


@dataclass(frozen=True, eq=False)
class Later(Block):
    """Messages around it, all of them whole:

    ``before`` (joints, nodes, channels)
        the paths from a joint up to here;
    ``convolved`` (joints, nodes, heads, filters)
        those, through the convolution; their node is still the one they come from;
    ``wanted`` (classes, nodes, heads, filters)
        the paths to a class from the block's end.
    """

    attention: Tensor
    convolution: Tensor
    before: Tensor
    convolved: Tensor
    wanted: Tensor

    @cached_property
    def carried(self) -> Tensor:
        """(classes, nodes, heads, filters): ``wanted`` and the attention; the node is the one that
        paths come from."""
        return torch.einsum("kuv,oukf->ovkf", self.attention, self.wanted)

    @property
    def backward(self) -> Tensor:
        """(classes, nodes, channels): the paths to a class from the block's beginning."""
        return torch.einsum("ovkf,kcf->ovc", self.carried, self.convolution)

    @cached_property
    def forward(self) -> Tensor:
        return onward(self.attention, self.convolved)

    @property
    def total(self) -> Tensor:
        return self.forward.sum(0)

    @property
    def flow(self) -> Tensor:
        return torch.einsum("ovkf,jvkf->ojk", self.carried, self.convolved)

    @property
    def by_filter(self) -> Tensor:
        return (self.convolved.sum(0) * self.carried.sum(0)).sum(0)

    @property
    def seen(self) -> Tensor:
        return (self.before > 0).any(0)

    @property
    def behind(self) -> Tensor:
        return (self.wanted > 0).any(0)

    def of_attention(self, k: Tensor, u: Tensor, v: Tensor) -> Ends:
        weight = self.attention[k, u, v]
        from_joint = torch.einsum("jvkf,ukf->jkuv", self.convolved, self.wanted.sum(0))
        to_class = torch.einsum("vkf,oukf->okuv", self.convolved.sum(0), self.wanted)
        return weight * from_joint[:, k, u, v], weight * to_class[:, k, u, v]

    def of_convolution(self, k: Tensor, c: Tensor, f: Tensor) -> Ends:
        weight = self.convolution[k, c, f]
        before, behind = self.before[:, :, c], self.carried[:, :, k, f]  # …, nodes, lines
        from_joint = torch.einsum("jve,ve->je", before, behind.sum(0))
        to_class = torch.einsum("ve,ove->oe", before.sum(0), behind)
        return weight * from_joint, weight * to_class


def onward(attention: Tensor, convolved: Tensor) -> Tensor:
    """(joints, nodes, heads, filters), the nodes that paths come from -> those that they go to."""
    found: Tensor = torch.einsum("kuv,jvkf->jukf", attention, convolved)
    return found
