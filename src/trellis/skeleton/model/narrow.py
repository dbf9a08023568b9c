"""GCNs without the heads, filters and channels that masks have emptied.

A network that keeps one connection in a thousand uses a tenth of its filters. Without the others,
fine-tuning takes about an eighth of the time on a CPU (bench/narrow.py). GPUs train whole networks,
because their kernels need filters in multiples of 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...training import Forward, Weights
from ...training.stack_pruning import Selector, Stacked
from .gcn import GCN

_ATTENTION, _CONVOLUTION, _DENSE = "blocks.0.attention", "blocks.0.convolution", "dense.weight"
_LITTLE = 0.9  # train narrow networks if they need at most this share of the multiplications


@dataclass(frozen=True, eq=False)
class Narrow:
    """The used parts of a stack of networks like ``model``, and their places in the whole.

    Args:
        model: A network of the stack's architecture.
        places: For each parameter, the flat indices of the narrow entries in the whole parameter.
            They have the shape of the narrow parameter, (networks, …).
        units: The units that the dense layer of the narrow networks reads, (networks, units).
        channels: The input channels of the narrow networks, (channels,).
    """

    model: GCN
    places: dict[str, Tensor]
    units: Tensor
    channels: Tensor

    @classmethod
    def of(cls, model: GCN, masks: Mapping[str, Tensor]) -> Narrow | None:
        """Return the parts that any network of the stack uses by its ``masks``, (networks, …).

        Returns None for networks with several blocks, summed heads, shared convolutions, biases or
        given edges.

        >>> gcn = GCN(nodes=2, channels=6, classes=2, heads=3, filters=4)
        >>> weights = {name: weight[None] for name, weight in gcn.named_parameters()}
        >>> masks = {name: torch.zeros_like(weight).bool() for name, weight in weights.items()}
        >>> masks["blocks.0.attention"][0, 1, 0, 1] = True      # head 1, node 0 from node 1
        >>> masks["blocks.0.convolution"][0, 1, 5, 2] = True    # head 1, channel 5, filter 2
        >>> masks["dense.weight"].view(2, 2, 3, 4)[:, 0, 1, 2] = True
        >>> narrow = Narrow.of(gcn, masks)
        >>> [tuple(weight.shape[1:]) for weight in narrow.narrow(weights).values()]
        [(1, 2, 2), (1, 1, 1), (2, 2)]
        """
        sizes, told = model.sizes, model.described()
        plain = {_ATTENTION, _CONVOLUTION, _DENSE}
        if (
            {name for name, _ in model.named_parameters()} != plain
            or masks.keys() != plain
            or sizes["combine"] != "concat"
            or sizes["shared"]
            or told["limited"]
        ):
            return None
        classes, nodes, heads, filters = (
            sizes[name] for name in ("classes", "nodes", "heads", "filters")
        )
        convolution = masks[_CONVOLUTION]
        read = masks[_DENSE].reshape(-1, classes, nodes, heads, filters).any(2).any(1)
        used = convolution.any(2) | read  # networks, heads, filters
        head = _used(used.any(2) | masks[_ATTENTION].flatten(2).any(2))
        filter_ = _used(used.gather(1, head[..., None].expand(-1, -1, filters)))
        channels = _used(convolution.any(3).any(1).any(0))
        node = torch.arange(nodes, device=head.device)
        unit = head[..., None] * filters + filter_  # networks, heads, filters: of a node
        units = (node[:, None, None] * (heads * filters) + unit[:, None]).flatten(1)
        by_head = head[:, :, None, None]
        of_class = torch.arange(classes, device=head.device)[:, None] * (nodes * heads * filters)
        places = {
            _ATTENTION: (by_head * nodes + node[:, None]) * nodes + node,
            _CONVOLUTION: (by_head * sizes["channels"] + channels[:, None]) * filters
            + filter_[:, :, None],
            _DENSE: of_class + units[:, None],
        }
        return cls(model, places, units, channels)

    @property
    def share(self) -> float:
        """The share of the convolution's multiplications that are left."""
        places = self.places[_CONVOLUTION]
        return places[0].numel() / self.model.get_parameter(_CONVOLUTION).numel()

    def alike(self) -> GCN:
        """Return an untrained network of the narrow size."""
        _, heads, channels, filters = self.places[_CONVOLUTION].shape
        return GCN(**self.model.sizes | {"heads": heads, "channels": channels, "filters": filters})

    def narrow(self, stack: Mapping[str, Tensor]) -> Weights:
        """Return the narrow part of whole parameters, masks or averages, (networks, …) each."""
        return {
            name: stack[name].flatten(1).gather(1, places.flatten(1)).view(places.shape)
            for name, places in self.places.items()
        }

    def whole(self, stack: Mapping[str, Tensor]) -> Weights:
        """Return whole tensors that hold the narrow ones, and zeros elsewhere."""
        found = {}
        for name, parameter in self.model.named_parameters():
            given, places = stack[name].flatten(1), self.places[name].flatten(1)
            flat = given.new_zeros(len(given), parameter.numel()).scatter_(1, places, given)
            found[name] = flat.view(len(given), *parameter.shape)
        return found

    def forward(self) -> Forward:
        """Return the function of the narrow stack, which takes whole inputs."""
        return lambda weights, x: self.model.stacked(weights, x[..., self.channels])


def narrowed(model: GCN, masks: Mapping[str, Tensor], device: torch.device | str) -> Narrow | None:
    """Return the parts to train of a stack with these masks; None for all of it."""
    if torch.device(device).type != "cpu":
        return None
    narrow = Narrow.of(model, masks)
    return narrow if narrow is not None and narrow.share <= _LITTLE else None


def _used(rows: Tensor) -> Tensor:
    """Return the indices of the True entries of each row, in order.

    All rows get as many indices as the row with the most True entries: rows with fewer are filled
    with indices of False entries.

    Shapes: (…, n) -> (…, most).

    >>> _used(torch.tensor([[True, False, True], [False, False, True]])).tolist()
    [[0, 2], [0, 2]]
    """
    most = max(int(rows.sum(-1).max()), 1)
    first = rows.to(torch.uint8).sort(dim=-1, descending=True, stable=True).indices
    return first[..., :most].sort(dim=-1).values


@dataclass(frozen=True)
class Inside:
    """The `Selector` of narrow networks, with the ``sizes`` of the whole networks.

    A schedule counts its sparsity in connections of the whole networks.
    """

    sizes: Mapping[str, int]
    select: Selector

    @property
    def least(self) -> int:
        """The smallest budget for which a selection exists inside every larger one."""
        return self.select.least

    def __call__(self, worth: Stacked, kept: Stacked, budgets: Sequence[int]) -> dict[str, Tensor]:
        """Return masks that keep ``budgets[i]`` of the kept connections of network i."""
        return self.select(worth, kept, budgets)
