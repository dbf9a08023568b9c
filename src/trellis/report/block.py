"""What the report asks of each block of a network, its messages known."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

Ends = tuple[Tensor, Tensor]  # (joints, lines) and (classes, lines)


class Block(ABC):
    """|w| of a block, ``attention`` (heads, nodes, nodes) and ``convolution`` (heads, channels,
    filters), and the messages around it."""

    attention: Tensor
    convolution: Tensor

    @property
    @abstractmethod
    def forward(self) -> Tensor:
        """(joints, nodes, heads, filters): the paths from a joint to the block's end."""

    @property
    @abstractmethod
    def total(self) -> Tensor:
        """(nodes, heads, filters): the same, of all joints together."""

    @property
    @abstractmethod
    def flow(self) -> Tensor:
        """(classes, joints, heads): the paths from a joint to a class through each head."""

    @property
    @abstractmethod
    def by_filter(self) -> Tensor:
        """(heads, filters): all that runs through a filter."""

    @property
    @abstractmethod
    def seen(self) -> Tensor:
        """(nodes, channels): whether anything gets to the block's beginning."""

    @property
    @abstractmethod
    def behind(self) -> Tensor:
        """(nodes, heads, filters): whether its end leads to a class."""

    @abstractmethod
    def of_attention(self, k: Tensor, u: Tensor, v: Tensor) -> Ends:
        """What runs from each joint, and to each class, from node v to node u in head k."""

    @abstractmethod
    def of_convolution(self, k: Tensor, c: Tensor, f: Tensor) -> Ends:
        """What runs from each joint, and to each class, by channel c to filter f of head k."""
