"""Small networks, and what to say where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...errors import TrellisError
from ...train import Weights


def diverged(phase: str) -> TrellisError:
    """What to say where numbers are no longer finite."""
    return TrellisError(
        f"training diverged (loss or weights are not finite) in the phase {phase!r}; look for "
        "recordings with wild coordinates (`trellis data info`), and for rates or weights of the "
        "loss that are far too large"
    )


class Small(NamedTuple):
    """A stack of networks, and their masks."""

    weights: Weights
    masks: Weights

    @property
    def kept(self) -> list[int]:
        """How many connections each network has.

        >>> Small({}, {"w": torch.tensor([[True, False], [True, True]])}).kept
        [1, 2]
        """
        each = [mask.flatten(1).sum(1) for mask in self.masks.values()]
        return [int(count) for count in torch.stack(each).sum(0)]

    def of(self, which: Sequence[int]) -> Small:
        """Some of the networks, in the order in which they are named.

        >>> small = Small({"w": torch.arange(3.0)}, {"w": torch.tensor([True, False, True])})
        >>> small.of([2, 1, 2])
        Small(weights={'w': tensor([2., 1., 2.])}, masks={'w': tensor([ True, False,  True])})
        """
        at = list(which)
        return Small(*({name: each[at] for name, each in part.items()} for part in self))

    @classmethod
    def joined(cls, parts: Sequence[Small]) -> Small:
        """The networks of several stacks, one after another."""
        return cls(*(
            {name: torch.cat([stack[name] for stack in stacks]) for name in stacks[0]}
            for stacks in zip(*parts, strict=True)
        ))  # fmt: skip
