"""Small networks, and which of several tries at one is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import TrellisError
from ...train import Weights


def came_to_nothing(who: str) -> TrellisError:
    """What to say where nobody has a loss that is a number."""
    return TrellisError(
        f"training came to nothing: the loss of {who} is not a finite number. Look for recordings "
        "with wild coordinates (`trellis data info`)"
    )


class Small(NamedTuple):
    """A stack of tries at networks, their masks, and their losses on the recordings as they are
    (stack,). The tries at one network follow one another, ``tries[i]`` of them at network i."""

    weights: Weights
    masks: dict[str, Tensor]
    losses: Tensor
    tries: tuple[int, ...]

    def best(self) -> Small:
        """Of the tries at each network the one with the least loss, the first where many have.

        >>> losses = torch.tensor([3.0, 2.0, torch.nan, 5.0, 4.0])
        >>> Small({"w": torch.arange(5.0)}, {}, losses, (2, 1, 2)).best().weights["w"]
        tensor([1., 2., 4.])
        """
        each = self.losses.nan_to_num(nan=torch.inf).split(self.tries)
        return self._chosen([int(losses.argmin()) for losses in each])

    def first(self) -> Small:
        """The first try at each network."""
        return self._chosen([0] * len(self.tries))

    def of(self, which: Sequence[int]) -> Small:
        """All tries at some of the networks, in the order in which they are named.

        >>> small = Small({"w": torch.arange(5.0)}, {}, torch.zeros(5), (2, 1, 2))
        >>> small.of([2, 1]).weights["w"], small.of([2, 1]).tries
        (tensor([3., 4., 2.]), (2, 1))
        """
        rows = torch.arange(len(self.losses)).split(self.tries)
        at = [int(row) for network in which for row in rows[network]]
        return self._rows(at, tuple(self.tries[network] for network in which))

    @classmethod
    def joined(cls, parts: Sequence[Small]) -> Small:
        """The networks of several stacks, one after another."""
        weights, masks = (
            {name: torch.cat([stack[name] for stack in stacks]) for name in stacks[0]}
            for stacks in ([part.weights for part in parts], [part.masks for part in parts])
        )
        losses = torch.cat([part.losses for part in parts])
        return cls(weights, masks, losses, tuple(n for part in parts for n in part.tries))

    def _chosen(self, which: Sequence[int]) -> Small:
        starts = [sum(self.tries[:i]) for i in range(len(self.tries))]
        at = [start + own for start, own in zip(starts, which, strict=True)]
        return self._rows(at, (1,) * len(at))

    def _rows(self, at: Sequence[int], tries: tuple[int, ...]) -> Small:
        weights, masks = (
            {name: tensor[at] for name, tensor in part.items()}
            for part in (self.weights, self.masks)
        )
        return Small(weights, masks, self.losses[at], tries)
