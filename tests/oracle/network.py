"""A torch model and the same network unit by unit, side by side."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .scalar import Connection, ScalarGraph


@dataclass(frozen=True, eq=False)
class Network:
    """`graph` is what `model` computes for one example of `inputs`."""

    kind: str
    model: nn.Module
    inputs: tuple[Tensor, ...]
    graph: ScalarGraph

    def weights(self) -> dict[str, Tensor]:
        """The parameters that hold connections: all but the biases."""
        named = dict(self.model.named_parameters())
        return {name: p for name, p in named.items() if not name.endswith("bias")}

    def __repr__(self) -> str:
        sizes = {name: tuple(p.shape) for name, p in self.weights().items()}
        return f"Network({self.kind}, {sizes}, {self.model})"


def as_set(masks: Mapping[str, Tensor]) -> set[Connection]:
    """The connections where the masks say 1.

    >>> sorted(as_set({"w": torch.tensor([[True, False], [False, True]])}))
    [('w', 0), ('w', 3)]
    """
    return {
        (name, int(index)) for name, mask in masks.items() for index in mask.flatten().nonzero()
    }


def as_masks(connections: Set[Connection], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Masks in the shapes of `like` that say 1 at the connections."""
    masks = {name: torch.zeros(t.shape, dtype=torch.bool) for name, t in like.items()}
    for name, index in connections:
        masks[name].view(-1)[index] = True
    return masks


def apply(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Write zeros into the weights where the masks say 0."""
    with torch.no_grad():
        for name, mask in masks.items():
            model.get_parameter(name).mul_(mask)


def random_mask(
    seed: int, weights: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]], density: float = -1.0
) -> dict[str, Tensor]:
    """Each connection kept with the same chance; without `density`, one drawn per call."""
    generator = torch.Generator().manual_seed(seed)
    chance = density if density >= 0 else float(torch.rand((), generator=generator))
    return {
        name: torch.rand(weight.shape, generator=generator) < chance
        for name, weight in dict(weights).items()
    }
