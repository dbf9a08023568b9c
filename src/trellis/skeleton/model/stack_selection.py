"""Gradual pruning of many GCNs at once."""

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
from ...training.stack_pruning import Chooses, OneByOne, Stacked
from .gcn import GCN

# The largest numbers of many rows at once: each row its own count, without sorting.


_INFINITE = 0x7F800000  # the bits of it


def threshold(values: Tensor, counts: Tensor) -> Tensor:
    """The ``counts[i]``-th largest number of each row; where that is the 0-th, infinity.

    ``values`` (rows, numbers) are float32 and not negative; ``counts`` (rows,). Such floats are in
    the order of their bits, so that halving the range of bits 31 times finds the number itself:
    31 passes over memory, which a GPU makes faster than it sorts. A CPU partitions.

    >>> threshold(torch.tensor([[3.0, 1.0, 2.0], [5.0, 5.0, 0.0]]), torch.tensor([2, 1]))
    tensor([2., 5.])
    """
    if values.device.type == "cpu":
        return torch.stack([_nth(*each) for each in zip(values, counts.tolist(), strict=True)])
    return _halved(values, counts)


def largest(counts: Tensor, values: Tensor, *further: Tensor) -> Tensor:
    """A mask of the ``counts[i]`` largest of each row. Ties go to the larger in ``further``, then
    to the one that comes first. What is zero in ``values`` is never chosen.

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


# What to keep of many one-block GCNs at once: path algebra in closed form.
#
# One by one, `trellis.prune` does this for any network. A stack of small networks that is pruned a
# hundred times while it trains needs it in a few passes over memory for all of them.


NAMES = ("blocks.0.attention", "blocks.0.convolution", "dense.weight")


class Parts(NamedTuple):
    """A number for each connection of N networks, U nodes for V, K heads (1 kernel where it is
    shared), C channels, F filters and O outputs; of the dense layer, one head where they are
    summed."""

    attention: Tensor  # N, K, U, V
    convolution: Tensor  # N, K or 1, C, F
    dense: Tensor  # N, O, U, K or 1, F

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Parts:
        """From a stack's parameters, by name."""
        attention, convolution, dense = (tensors[name] for name in NAMES)
        nodes, filters = attention.shape[2], convolution.shape[3]
        return cls(attention, convolution, dense.unflatten(2, (nodes, -1, filters)))

    def flat(self) -> Tensor:
        """(N, connections)."""
        return torch.cat([part.flatten(1) for part in self], 1)

    def like(self, flat: Tensor) -> Parts:
        """The inverse of `flat`."""
        sizes = [part[0].numel() for part in self]
        pieces = flat.split(sizes, 1)
        return Parts(*(p.view_as(part) for p, part in zip(pieces, self, strict=True)))

    def named(self) -> dict[str, Tensor]:
        """By the names of a stack's parameters."""
        return dict(
            zip(NAMES, (self.attention, self.convolution, self.dense.flatten(2)), strict=True)
        )


Combine = Callable[[Tensor, int], Tensor]  # over one dimension
Extend = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Semiring:
    """How parallel paths combine, and how a path is extended."""

    combine: Combine
    extend: Extend


BEST = Semiring(torch.amax, torch.mul)
ALL = Semiring(torch.sum, torch.mul)
WEAKEST = Semiring(torch.amax, torch.minimum)


@dataclass(frozen=True)
class Messages:
    """What reaches the hidden units, and what they reach: every input is reached alike, so that
    neither depends on channels."""

    rows: Tensor  # N, K, U: of the attention, over nodes
    columns: Tensor  # N, K or 1, F: of the convolution, over channels
    forward: Tensor  # N, U, K or 1, F: into each hidden unit
    backward: Tensor  # N, K or 1, U, F: out of it

    @classmethod
    def of(cls, parts: Parts, semiring: Semiring) -> Messages:
        rows = semiring.combine(parts.attention, 3)
        columns = semiring.combine(parts.convolution, 2)
        by_head = semiring.extend(rows[..., None], columns[:, :, None])  # N, K, U, F
        if parts.dense.shape[3] != by_head.shape[1]:
            by_head = semiring.combine(by_head, 1)[:, None]
        backward = semiring.combine(parts.dense, 1).transpose(1, 2)
        return cls(rows, columns, by_head.transpose(1, 2), backward)


def through(parts: Parts, semiring: Semiring) -> Parts:
    """Forward ⊗ own ⊗ backward for every connection, ⊕ over its uses."""
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
    """Which of the ``kept`` (bool) lie on a path."""
    bits = Parts(*(part.float() for part in kept))
    return Parts(*(part > 0 for part in through(bits, WEAKEST)))


def reached(kept: Parts) -> Tensor:
    """How many outputs are on a path: (N,)."""
    return live(kept).dense.flatten(2).any(2).sum(1)


def best_paths(parts: Parts) -> Parts:
    """The best path to every output, as masks (bool); an output that has none is left out."""
    said = Messages.of(parts, BEST)
    networks, outputs = parts.dense.shape[:2]
    kernels, filters = parts.dense.shape[3:]
    strength = (parts.dense * said.forward[:, None]).flatten(2)  # N, O, U * K * F
    best, place = strength.max(2)
    reached = best > 0
    unit = place // filters
    node, head, filt = unit // kernels, unit % kernels, place % filters  # N, O each
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
        (marks.dense, (n, out, node, dense_head, filt)),
    ):
        mark[tuple(index[reached] for index in at)] = True
    return marks


def singles(kept: Parts) -> Parts:
    """Connections that could be added one by one and be live: from a unit that is reached to one
    that reaches an output (bool)."""
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
    """``budgets[i]`` connections of network i, all live, with every output reached that can be:
    masks, and for which networks (bool) they are so.

    ``worth`` is not negative, and 0 where a connection may not be kept. Connections are ranked by
    the paths through them in the semiring ``path`` (None: by their worth alone) and closed: a
    connection counts as much as the weakest link of the best path that it lies on. It fails where
    it takes more to meet the budget than connections that are live as soon as they are added.
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
    """The largest of each parameter, the same share of each: the paper's magnitude pruning."""
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


# What ranks connections; None: their magnitude. All are closed, so that all that is kept is live.
PATHS: dict[str, Semiring | None] = {"viterbi": BEST, "synflow": ALL, "magnitude": None}
BY_LAYER = "magnitude by layer"  # as the paper prunes, and nothing is promised


def check_method(method: str) -> None:
    """Refuse a method that is neither registered nor "magnitude by layer".

    Nothing is imported, since the name may come from a file.
    """
    known = (*available(), BY_LAYER)
    if method not in known:
        raise TrellisError(
            f"expected a method ({', '.join(known)}), got {method!r}; a method of your own must be "
            "imported first"
        )


class Together:
    """A stack of one-block GCNs, in a few passes over memory. The rare network that needs more
    than that to meet its budget is seen to by itself.

    >>> gcn = GCN(nodes=4, channels=6, classes=3, heads=2, filters=5)
    >>> Together(gcn, "viterbi").least
    9
    """

    def __init__(self, model: GCN, method: str = "viterbi") -> None:
        self.model, self.method = model, method
        weights = dict(model.named_parameters())
        self.sizes = {name: weights[name].numel() for name in NAMES}
        self.least = 0 if method == BY_LAYER else 3 * model.sizes["classes"]

    @cached_property
    def alone(self) -> OneByOne:
        sizes = self.model.sizes
        example = torch.zeros(1, sizes["nodes"], sizes["channels"])
        return OneByOne(self.model, example, method=self.method)

    @torch.no_grad()
    def __call__(self, worth: Stacked, kept: Stacked, budgets: Sequence[int]) -> dict[str, Tensor]:
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
            for name, mask in self.alone.one(i, worth, kept, budgets[i]).items():
                masks[name][i] = mask.to(masks[name].device)
        return masks


def chooser(model: GCN, method: str = "viterbi") -> Chooses:
    """The fastest way to prune a stack of networks like ``model``."""
    check_method(method)
    block = model.blocks[0]
    names = {name for name, _ in model.named_parameters()}
    fast = method == BY_LAYER or method in PATHS
    if fast and len(model.blocks) == 1 and block.edges is None and set(NAMES) <= names:
        return Together(model, method)
    sizes = model.sizes
    example = torch.zeros(1, sizes["nodes"], sizes["channels"])
    if method == BY_LAYER:
        return OneByOne(model, example, method="magnitude", scope="layer", consistent=False)
    return OneByOne(model, example, method=method)
