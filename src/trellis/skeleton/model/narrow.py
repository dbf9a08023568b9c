"""Only what is there: GCNs without the heads, filters and channels that masks have emptied.

A network that keeps a connection in a thousand keeps a tenth of its filters. A CPU multiplies by
all of them, mostly by zeros; without them it tunes the same network in about an
eighth of the time (bench/narrow.py). The kernels for GPUs want filters by the dozen, and have time
to spare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...training import Forward, Weights
from ...training.stack_pruning import Chooses, Stacked
from .gcn import GCN

_ATTENTION, _CONVOLUTION, _DENSE = "blocks.0.attention", "blocks.0.convolution", "dense.weight"
_LITTLE = 0.9  # of the multiplications: from there down it pays to do without the others


@dataclass(frozen=True, eq=False)
class Narrow:
    """What is used of a stack of networks like ``model``, and where that lies in the whole.

    ``places[name]`` (networks, …) has the shape of a narrow parameter, and is for each of its
    entries that of the whole one, counted flat. ``units`` (networks, units) are the same for what
    classes are read from. Narrow networks see these ``channels`` (channels,).
    """

    model: GCN
    places: dict[str, Tensor]
    units: Tensor
    channels: Tensor

    @classmethod
    def of(cls, model: GCN, masks: Mapping[str, Tensor]) -> Narrow | None:
        """All that any of a stack of ``masks``, (networks, …) each, keeps. None for networks that
        cannot be narrowed: of several blocks, with summed heads, shared convolutions, biases, or
        edges that are given.

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
        """How many multiplications of the convolution are left, of all."""
        places = self.places[_CONVOLUTION]
        return places[0].numel() / self.model.get_parameter(_CONVOLUTION).numel()

    def alike(self) -> GCN:
        """An untrained network of the narrow size."""
        _, heads, channels, filters = self.places[_CONVOLUTION].shape
        return GCN(**self.model.sizes | {"heads": heads, "channels": channels, "filters": filters})

    def narrow(self, stack: Mapping[str, Tensor]) -> Weights:
        """The narrow part of whole parameters, masks, averages: (networks, …) each."""
        return {
            name: stack[name].flatten(1).gather(1, places.flatten(1)).view(places.shape)
            for name, places in self.places.items()
        }

    def whole(self, stack: Mapping[str, Tensor]) -> Weights:
        """Whole ones with these inside, and zero elsewhere."""
        found = {}
        for name, parameter in self.model.named_parameters():
            given, places = stack[name].flatten(1), self.places[name].flatten(1)
            flat = given.new_zeros(len(given), parameter.numel()).scatter_(1, places, given)
            found[name] = flat.view(len(given), *parameter.shape)
        return found

    def forward(self) -> Forward:
        """A stack's function of whole inputs for narrow weights."""
        return lambda weights, x: self.model.stacked(weights, x[..., self.channels])


def narrowed(model: GCN, masks: Mapping[str, Tensor], device: torch.device | str) -> Narrow | None:
    """What to train of a stack with these masks, if not all of it."""
    if torch.device(device).type != "cpu":
        return None
    narrow = Narrow.of(model, masks)
    return narrow if narrow is not None and narrow.share <= _LITTLE else None


def _used(rows: Tensor) -> Tensor:
    """(…, n) bool -> (…, the most that any row uses): which those are, in order. A row that uses
    fewer has others as well, that it does not use.

    >>> _used(torch.tensor([[True, False, True], [False, False, True]])).tolist()
    [[0, 2], [0, 2]]
    """
    most = max(int(rows.sum(-1).max()), 1)
    first = rows.to(torch.uint8).sort(dim=-1, descending=True, stable=True).indices
    return first[..., :most].sort(dim=-1).values


@dataclass(frozen=True)
class Inside:
    """What `chooser` of a narrow network chooses, for a stack that is a part of larger ones: their
    ``sizes`` are what a schedule's shares are of."""

    sizes: Mapping[str, int]
    choose: Chooses

    @property
    def least(self) -> int:
        return self.choose.least

    def __call__(self, worth: Stacked, kept: Stacked, budgets: Sequence[int]) -> dict[str, Tensor]:
        return self.choose(worth, kept, budgets)
