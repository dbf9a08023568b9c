"""Small networks, and what to say where they came to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import TrellisError
from ...train import Weights


def came_to_nothing(who: str) -> TrellisError:
    """What to say of a loss that is no number."""
    return TrellisError(
        f"training came to nothing: the loss of {who} is not a finite number. Look for recordings "
        "with wild coordinates (`trellis data info`)"
    )


class Small(NamedTuple):
    """A stack of networks, their masks, and their losses on the recordings as they are (stack,)."""

    weights: Weights
    masks: dict[str, Tensor]
    losses: Tensor

    def of(self, which: Sequence[int]) -> Small:
        """Some of the networks, in the order in which they are named.

        >>> small = Small({"w": torch.arange(3.0)}, {}, torch.zeros(3))
        >>> small.of([2, 1, 2]).weights["w"]
        tensor([2., 1., 2.])
        """
        at = list(which)
        weights, masks = (
            {name: tensor[at] for name, tensor in part.items()}
            for part in (self.weights, self.masks)
        )
        return Small(weights, masks, self.losses[at])

    @classmethod
    def joined(cls, parts: Sequence[Small]) -> Small:
        """The networks of several stacks, one after another."""
        weights, masks = (
            {name: torch.cat([stack[name] for stack in stacks]) for name in stacks[0]}
            for stacks in ([part.weights for part in parts], [part.masks for part in parts])
        )
        return cls(weights, masks, torch.cat([part.losses for part in parts]))
