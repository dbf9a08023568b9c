"""Prune and train stacks of one-block GCNs fast: path algebra in closed form, and narrow networks.

`StackSelector` says which connections to keep. It implements
`trellis.training.stack_pruning.Selector` and treats all networks of a stack in a few passes over
memory. Gradual pruning calls it a hundred times while a stack trains. For `viterbi`, it gives the
same masks as `trellis.prune` (tests/skeleton/test_selection.py compares them bit for bit). Closed
magnitudes can differ: here, the best path to every output is always kept.

`Narrow` is a GCN without the heads, filters and channels that masks have emptied. A network that
keeps one connection in a thousand uses a tenth of its filters. Without the others, fine-tuning
takes about an eighth of the time on a CPU (bench/narrow.py). GPUs train whole networks, because
their kernels need filters in multiples of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import TrellisError
from ...methods import available
from ...methods.budget import shares
from ...training import Forward, Weights
from ...training.stack_pruning import Selector, SingleSelector, Stacked
from .gcn import GCN
from .windows import POOLS

# Which connections to keep.


_INFINITE = 0x7F800000  # the bits of infinity in float32


def threshold(values: Tensor, counts: Tensor) -> Tensor:
    """Return the ``counts[i]``-th largest number of row i; infinity where the count is 0.

    Non-negative floats are ordered like their bits. On a GPU, bisection over the bits finds the
    number in 31 passes over memory, which is faster than sorting. A CPU partitions.

    Args:
        values: (rows, numbers), float32 and not negative.
        counts: (rows,).

    >>> threshold(torch.tensor([[3.0, 1.0, 2.0], [5.0, 5.0, 0.0]]), torch.tensor([2, 1]))
    tensor([2., 5.])
    """
    if values.device.type == "cpu":
        return torch.stack([_nth(*each) for each in zip(values, counts.tolist(), strict=True)])
    return _halved(values, counts)


def largest(counts: Tensor, values: Tensor, *further: Tensor) -> Tensor:
    """Return a mask of the ``counts[i]`` largest numbers of row i.

    Ties are broken by the numbers in ``further``, then by position. Zeros in ``values`` are never
    selected.

    >>> tied = torch.tensor([[0.0, 2.0, 2.0, 2.0]])
    >>> largest(torch.tensor([2]), tied).int()
    tensor([[0, 1, 1, 0]], dtype=torch.int32)
    >>> largest(torch.tensor([2]), tied, torch.tensor([[9.0, 1.0, 2.0, 3.0]])).int()
    tensor([[0, 0, 1, 1]], dtype=torch.int32)
    """
    tied = values > 0
    chosen = torch.zeros_like(tied)
    for each in (values, *further):
        left = torch.where(tied, each, 0.0)
        cut = threshold(left, counts)[:, None]
        above = left > cut
        chosen |= above
        counts = counts - above.sum(1)
        tied &= left == cut
    return chosen | (tied & (tied.cumsum(1, dtype=torch.int32) <= counts[:, None]))


def _nth(values: Tensor, count: int) -> Tensor:
    if count == 0:
        return torch.tensor(torch.inf)
    values = values[values > 0]  # a partition takes long where many numbers are the same
    place = len(values) - count
    if place < 0:
        return torch.tensor(0.0)
    return torch.from_numpy(np.partition(values.numpy(), place))[place]


def _halved(values: Tensor, counts: Tensor) -> Tensor:
    bits = values.contiguous().view(torch.int32)
    low = torch.zeros_like(counts, dtype=torch.int32)  # at least `counts` numbers from here up
    high = torch.full_like(low, _INFINITE + 1)  # fewer from here up
    for _ in range(31):
        middle = low + (high - low) // 2
        enough = (bits >= middle[:, None]).sum(1) >= counts
        low = torch.where(enough, middle, low)
        high = torch.where(enough, high, middle)
    return torch.where(counts == 0, _INFINITE, low).to(torch.int32).view(torch.float32)


NAMES = ("blocks.0.attention", "blocks.0.convolution", "dense.weight")


class Parts(NamedTuple):
    """A number for each connection of N networks.

    U and V are nodes, K heads, C channels, F filters and O outputs. A shared convolution has one
    kernel. If heads are summed, the dense layer has one head. A filter that slides over windows has
    two hidden units (P = 2). All windows have the same paths, so that one of them is enough.
    """

    attention: Tensor  # N, K, U, V
    convolution: Tensor  # N, K or 1, C, F
    dense: Tensor  # N, O, U, K or 1, P * F

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Parts:
        """Return the parts of a stack's parameters, given by name."""
        attention, convolution, dense = (tensors[name] for name in NAMES)
        heads, nodes, filters = attention.shape[1], attention.shape[2], convolution.shape[3]
        pools = max(dense.shape[2] // (nodes * heads * filters), 1)
        return cls(attention, convolution, dense.unflatten(2, (nodes, -1, pools * filters)))

    def flat(self) -> Tensor:
        """Return all numbers in one tensor, (N, connections)."""
        return torch.cat([part.flatten(1) for part in self], 1)

    def like(self, flat: Tensor) -> Parts:
        """Return parts of these shapes from a tensor (N, connections); the inverse of `flat`."""
        sizes = [part[0].numel() for part in self]
        pieces = flat.split(sizes, 1)
        return Parts(*(p.view_as(part) for p, part in zip(pieces, self, strict=True)))

    def named(self) -> dict[str, Tensor]:
        """Return the parts by the names of a stack's parameters."""
        return dict(
            zip(NAMES, (self.attention, self.convolution, self.dense.flatten(2)), strict=True)
        )


Combine = Callable[[Tensor, int], Tensor]  # over one dimension
Extend = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Semiring:
    """The two operations of a path algebra: over parallel paths, and along a path."""

    combine: Combine
    extend: Extend


BEST = Semiring(torch.amax, torch.mul)
ALL = Semiring(torch.sum, torch.mul)
WEAKEST = Semiring(torch.amax, torch.minimum)


@dataclass(frozen=True)
class Messages:
    """Forward and backward messages at the hidden units.

    All inputs have the same message, so that messages do not depend on channels.
    """

    rows: Tensor  # N, K, U: of the attention, over nodes
    columns: Tensor  # N, K or 1, F: of the convolution, over channels
    forward: Tensor  # N, U, K or 1, P * F: into each hidden unit
    backward: Tensor  # N, K or 1, U, F: out of the hidden units of each filter

    @classmethod
    def of(cls, parts: Parts, semiring: Semiring) -> Messages:
        """Return the messages for these weights."""
        rows = semiring.combine(parts.attention, 3)
        columns = semiring.combine(parts.convolution, 2)
        by_head = semiring.extend(rows[..., None], columns[:, :, None])  # N, K, U, F
        if parts.dense.shape[3] != by_head.shape[1]:
            by_head = semiring.combine(by_head, 1)[:, None]
        backward = semiring.combine(parts.dense, 1).transpose(1, 2)
        if (pools := backward.shape[3] // columns.shape[2]) > 1:
            by_head = torch.cat([by_head] * pools, 3)
            backward = semiring.combine(backward.unflatten(3, (pools, -1)), 3)
        return cls(rows, columns, by_head.transpose(1, 2), backward)


def through(parts: Parts, semiring: Semiring) -> Parts:
    """Return the score of every connection: forward ⊗ own ⊗ backward, ⊕ over its uses."""
    plus, times = semiring.combine, semiring.extend
    said = Messages.of(parts, semiring)
    onward = plus(times(said.columns[:, :, None], said.backward), 3)  # N, K or 1, U
    used = plus(times(said.rows[..., None], said.backward), 2)  # N, K, F
    if parts.convolution.shape[1] != used.shape[1]:
        used = plus(used, 1)[:, None]
    return Parts(
        times(parts.attention, onward[..., None]),
        times(parts.convolution, used[:, :, None]),
        times(parts.dense, said.forward[:, None]),
    )


def live(kept: Parts) -> Parts:
    """Return which of the ``kept`` connections (bool) are live."""
    bits = Parts(*(part.float() for part in kept))
    return Parts(*(part > 0 for part in through(bits, WEAKEST)))


def reached(kept: Parts) -> Tensor:
    """Return the number of outputs on a live path, (N,)."""
    return live(kept).dense.flatten(2).any(2).sum(1)


def best_paths(parts: Parts) -> Parts:
    """Return masks of the best path to every output that can be reached."""
    said = Messages.of(parts, BEST)
    networks, outputs = parts.dense.shape[:2]
    kernels, units = parts.dense.shape[3:]
    strength = (parts.dense * said.forward[:, None]).flatten(2)  # N, O, U * K * P * F
    best, place = strength.max(2)
    reached = best > 0
    node, head = place // units // kernels, place // units % kernels  # N, O each
    hidden = place % units
    filt = hidden % parts.convolution.shape[3]
    n = torch.arange(networks, device=place.device)[:, None].expand_as(place)
    if kernels != said.rows.shape[1]:  # summed heads: the best of them leads there
        shared = said.columns.shape[1] == 1
        by_head = said.rows[n, :, node] * (
            said.columns[n, 0, filt][..., None] if shared else said.columns[n, :, filt]
        )
        head = by_head.argmax(2)
    kernel = head if parts.convolution.shape[1] > 1 else torch.zeros_like(head)
    channel = parts.convolution[n, kernel, :, filt].argmax(2)
    source = parts.attention[n, head, node].argmax(2)
    marks = Parts(*(torch.zeros_like(part, dtype=torch.bool) for part in parts))
    out = torch.arange(outputs, device=place.device).expand_as(place)
    dense_head = head if kernels > 1 else torch.zeros_like(head)
    for mark, at in (
        (marks.attention, (n, head, node, source)),
        (marks.convolution, (n, kernel, channel, filt)),
        (marks.dense, (n, out, node, dense_head, hidden)),
    ):
        mark[tuple(index[reached] for index in at)] = True
    return marks


def singles(kept: Parts) -> Parts:
    """Return the connections (bool) that would be live if added alone.

    They lead from a unit that an input reaches to a unit that reaches an output.
    """
    bits = Parts(*(part.float() for part in kept))
    said = Messages.of(bits, WEAKEST)
    ones = Parts(*(torch.ones_like(part) for part in bits))
    onward = torch.minimum(said.columns[:, :, None], said.backward).amax(3)
    used = torch.minimum(said.rows[..., None], said.backward).amax(2)
    if bits.convolution.shape[1] != used.shape[1]:
        used = used.amax(1)[:, None]
    return Parts(
        ones.attention * onward[..., None] > 0,
        ones.convolution * used[:, :, None] > 0,
        ones.dense * said.forward[:, None] > 0,
    )


def consistent(worth: Parts, path: Semiring | None, budgets: Tensor) -> tuple[Parts, Tensor]:
    """Select ``budgets[i]`` connections of network i, all live, that reach every output possible.

    Connections are ranked by the paths through them in the semiring ``path`` and closed: the score
    of a connection becomes the weakest link of the best path through it. The selection fails for a
    network if single connections cannot fill its budget.

    Args:
        worth: Saliencies, not negative; 0 for connections that may not be kept.
        path: The semiring of the ranking (None: rank by the saliencies alone).
        budgets: (N,).

    Returns:
        Masks, and for which networks (bool) they meet the budget.
    """
    score = worth if path is None else through(worth, path)
    closed = through(score, WEAKEST).flat()
    closed = torch.where(best_paths(worth).flat(), torch.inf, closed)
    cut = threshold(closed, budgets)[:, None]
    at_least = (closed >= cut) & (closed > 0)
    fits = (at_least.sum(1) <= budgets)[:, None]
    kept = torch.where(fits, at_least, closed > cut)
    free = singles(worth.like(kept)).flat() & ~kept
    missing = (budgets - kept.sum(1)).clamp(min=0)
    kept |= largest(missing, torch.where(free, closed, 0.0), worth.flat())
    found = worth.like(kept)
    able = Parts(*(part > 0 for part in worth))
    sound = (kept.sum(1) == budgets) & (live(found).flat() == kept).all(1)
    return found, sound & (reached(found) == reached(able))


def by_layer(worth: Parts, budgets: Sequence[int]) -> Parts:
    """Select the same share of each parameter: the paper's magnitude pruning."""
    sizes = {name: part[0].numel() for name, part in worth.named().items()}
    total = sum(sizes.values())
    counts = [
        shares({name: Fraction(budget, total) for name in sizes}, dict(sizes), budget)
        for budget in budgets
    ]
    masks = []
    for name, part in worth.named().items():
        wanted = torch.tensor([count[name] for count in counts], device=part.device)
        masks.append(largest(wanted, part.flatten(1)))
    return worth.like(torch.cat(masks, 1))


# What ranks connections (None: their magnitude). The ranking is closed: everything kept is live.
PATHS: dict[str, Semiring | None] = {
    "viterbi": BEST,
    "synflow": ALL,
    "closed": None,
    "magnitude": None,
}
BY_LAYER = "magnitude by layer"  # the paper's baseline: kept connections may be dead


def check_method(method: str) -> None:
    """Raise if a method is neither registered nor "magnitude by layer".

    Nothing is imported, since the name may come from a file.
    """
    known = (*available(), BY_LAYER)
    if method not in known:
        raise TrellisError(
            f"expected a method ({', '.join(known)}), got {method!r}; a method of your own must be "
            "imported first"
        )


class StackSelector:
    """Select for all networks of a stack of one-block GCNs at once.

    This implements `trellis.training.stack_pruning.Selector`. Networks that single connections
    cannot fill to their budget are rare; `SingleSelector` selects for them.

    Args:
        model: A network of the stack's architecture.
        method: A key of `PATHS`, or `BY_LAYER`.

    Example:
        >>> gcn = GCN(nodes=4, channels=6, classes=3, heads=2, filters=5)
        >>> StackSelector(gcn, "viterbi").least
        9
    """

    def __init__(self, model: GCN, method: str = "viterbi") -> None:
        self.model, self.method = model, method
        weights = dict(model.named_parameters())
        self.sizes = {name: weights[name].numel() for name in NAMES}
        self.least = 0 if method == BY_LAYER else 3 * model.sizes["classes"]

    @cached_property
    def single(self) -> SingleSelector:
        """The selector for one network at a time."""
        sizes = self.model.sizes
        example = torch.zeros(1, sizes["nodes"], sizes["channels"])
        return SingleSelector(self.model, example, method=self.method)

    @torch.no_grad()
    def __call__(self, worth: Stacked, kept: Stacked, budgets: Sequence[int]) -> dict[str, Tensor]:
        """Return masks that keep ``budgets[i]`` of the kept connections of network i."""
        able = Parts.of({name: (worth[name] * kept[name]).float() for name in self.sizes})
        if self.method == BY_LAYER:
            return by_layer(able, budgets).named()
        before = Parts.of(kept)
        wanted = torch.tensor(budgets, device=able.dense.device)
        chosen, sound = consistent(able, PATHS[self.method], wanted)
        all_of_them = before.flat().sum(1) <= wanted
        masks = {
            name: torch.where(all_of_them.view(-1, *[1] * (mask.dim() - 1)), kept[name], mask)
            for name, mask in chosen.named().items()
        }
        for i in (~(sound | all_of_them)).nonzero().flatten().tolist():
            for name, mask in self.single.one(i, worth, kept, budgets[i]).items():
                masks[name][i] = mask.to(masks[name].device)
        return masks


def selector(model: GCN, method: str = "viterbi") -> Selector:
    """Return the fastest selector for a stack of networks like ``model``.

    Raises:
        TrellisError: The method is unknown.
    """
    check_method(method)
    block = model.blocks[0]
    names = {name for name, _ in model.named_parameters()}
    fast = method == BY_LAYER or method in PATHS
    if fast and len(model.blocks) == 1 and block.edges is None and set(NAMES) <= names:
        return StackSelector(model, method)
    sizes = model.sizes
    example = torch.zeros(1, sizes["nodes"], sizes["channels"])
    if method == BY_LAYER:
        return SingleSelector(model, example, method="magnitude", scope="layer", consistent=False)
    return SingleSelector(model, example, method=method)


# Narrow networks.


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
        per_window: How many of them each window has.
    """

    model: GCN
    places: dict[str, Tensor]
    units: Tensor
    channels: Tensor
    per_window: int = 0

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
        windows, size = sizes.get("windows", 0), sizes.get("per_window", 0)
        convolution = masks[_CONVOLUTION]
        pools = POOLS if windows else 1
        read = masks[_DENSE].reshape(-1, classes, nodes, heads, pools, filters)
        used = convolution.any(2) | read.any(4).any(2).any(1)  # networks, heads, filters
        head = _used(used.any(2) | masks[_ATTENTION].flatten(2).any(2))
        filter_ = _used(used.gather(1, head[..., None].expand(-1, -1, filters)))
        row = convolution.any(3).any(1).any(0)
        rows = _used(row)
        if windows:  # at least one of each window, and one of the whole
            rows = torch.cat([_used(row[:size]), size + _used(row[size:])])
        node = torch.arange(nodes, device=head.device)
        pool = torch.arange(pools, device=head.device)[:, None]
        unit = (head[..., None, None] * pools + pool) * filters + filter_[:, :, None]
        unit = unit.flatten(2)  # networks, heads, pools * filters: of a node
        units = (node[:, None, None] * (heads * pools * filters) + unit[:, None]).flatten(1)
        by_head = head[:, :, None, None]
        of_class = torch.arange(classes, device=head.device)[:, None]
        of_class = of_class * (nodes * heads * pools * filters)
        places = {
            _ATTENTION: (by_head * nodes + node[:, None]) * nodes + node,
            _CONVOLUTION: (by_head * len(row) + rows[:, None]) * filters + filter_[:, :, None],
            _DENSE: of_class + units[:, None],
        }
        if not windows:
            return cls(model, places, units, rows)
        local = rows[rows < size]
        each = torch.arange(windows, device=head.device)[:, None] * size + local
        channels = torch.cat([each.flatten(), rows[rows >= size] + (windows - 1) * size])
        return cls(model, places, units, channels, len(local))

    @property
    def share(self) -> float:
        """The share of the convolution's multiplications that are left."""
        places = self.places[_CONVOLUTION]
        return places[0].numel() / self.model.get_parameter(_CONVOLUTION).numel()

    def alike(self) -> GCN:
        """Return an untrained network of the narrow size."""
        _, heads, _, filters = self.places[_CONVOLUTION].shape
        own = {"heads": heads, "channels": len(self.channels), "filters": filters}
        if self.per_window:
            own["per_window"] = self.per_window
        return GCN(**self.model.sizes | own)

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
