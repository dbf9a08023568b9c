"""Rankings: the best m of all connections, by score, then saliency, then position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..paths import kernels
from ..paths.kernels import TAKES_ALL, on_cpu
from ..paths.scores import BestPaths
from ..paths.sparse import Places

# A whole ranking at once, for a GPU: a few sorts.


def order(ranking: Ranking, among: Mapping[str, Tensor]) -> Tensor:
    """Return the flat places of the connections in ``among``, best first.

    Places count through all parameters. The order is by score, then saliency, then place.
    """
    places = torch.nonzero(_flat(ranking, among))[:, 0]
    for values in (ranking.saliency, ranking.scores):  # the last sort decides first
        worth = _flat(ranking, values)[places] + 0.0  # so that -0.0 is 0.0
        places = places[torch.sort(worth, descending=True, stable=True).indices]
    return places


def masks_at(ranking: Ranking, places: Tensor) -> dict[str, Tensor]:
    """Return masks that keep the connections at these flat places."""
    flat = torch.zeros(ranking.total, dtype=torch.bool, device=places.device)
    flat[places] = True
    parts = flat.split([math.prod(shape) for shape in ranking.shapes.values()])
    return {
        name: part.view(shape)
        for (name, shape), part in zip(ranking.shapes.items(), parts, strict=True)
    }


def _flat(ranking: Ranking, tensors: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([tensors[name].reshape(-1) for name in ranking.shapes])


SAMPLE = 1 << 17
SPARSE = 16  # below one kept in 16, lists of places are faster than masks
Found = dict[str, tuple[Tensor, Tensor]]  # flat places, ascending, and their scores


@dataclass(frozen=True, eq=False)
class Ranking:
    """Connections from best to worst.

    ``scores`` and ``saliency`` are float32 in the parameters' shapes. Connections outside
    ``allowed`` (bool) are not ranked.
    """

    scores: Mapping[str, Tensor]
    saliency: Mapping[str, Tensor]
    allowed: Mapping[str, Tensor] | None = None

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        if isinstance(self.scores, BestPaths):
            return dict(self.scores.net.connections)
        return {name: tuple(score.shape) for name, score in self.scores.items()}

    @cached_property
    def device(self) -> torch.device:
        if isinstance(self.scores, BestPaths):
            return self.scores.device
        return next(iter(self.scores.values())).device

    @cached_property
    def total(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    @cached_property
    def size(self) -> int:
        return self.total if self.allowed is None else count(self.allowed)

    @cached_property
    def _order(self) -> Tensor:
        """Flat places of the allowed connections, best first. For a GPU, and where most tie."""
        return order(self, self.all if self.allowed is None else self.allowed)

    def top(self, m: int, among: Mapping[str, Tensor] | None = None) -> Mapping[str, Tensor]:
        """Return masks of the best ``m`` connections in ``among``, or of all if there are fewer."""
        masks = _both(self.allowed, among)
        if masks is not None and self.total <= TAKES_ALL and not on_cpu(self.device):
            return masks_at(self, (self._order if among is None else order(self, masks))[:m])
        if m >= (self.total if masks is None else count(masks)):
            return self.all if masks is None else {n: mask.clone() for n, mask in masks.items()}
        if among is None and "_order" in self.__dict__:
            return self._first(m)
        found = self.best(max(m, 1), masks)
        cut = kth_largest([values for _, values in found.values()], max(m, 1))
        kept = {name: values >= cut for name, (_, values) in found.items()}
        extra = count(kept) - m
        if among is None and extra > max(m, SAMPLE):  # a head of zeros: sort once, not every time
            return self._first(m)
        self.break_ties(found, kept, cut, extra)
        if m * SPARSE > self.total:
            return {name: self.mask(name, found[name][0], mask) for name, mask in kept.items()}
        places = {name: found[name][0][kernels.where(mask)] for name, mask in kept.items()}
        return Places(self.shapes, places)

    def _first(self, m: int) -> Mapping[str, Tensor]:
        """Return the best ``m`` by the order of all connections."""
        chosen = self._order[:m]
        if m * SPARSE > self.total:
            return masks_at(self, chosen)
        chosen = chosen.sort().values
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        ends = torch.tensor([0, *sizes]).cumsum(0).to(chosen.device)
        cuts = torch.searchsorted(chosen, ends).tolist()
        places = {
            name: chosen[a:b] - start
            for name, a, b, start in zip(self.shapes, cuts, cuts[1:], ends.tolist(), strict=False)
        }
        return Places(self.shapes, places)

    def mask(self, name: str, places: Tensor, values: Tensor) -> Tensor:
        """Return a mask with these values at these flat places, False elsewhere."""
        mask = torch.zeros(self.shapes[name], dtype=torch.bool, device=self.device)
        mask.view(-1)[places] = values
        return mask

    @property
    def all(self) -> dict[str, Tensor]:
        return {
            name: torch.ones(shape, dtype=torch.bool, device=self.device)
            for name, shape in self.shapes.items()
        }

    def best(self, m: int, masks: Mapping[str, Tensor] | None) -> Found:
        """Return at least the best ``m``, and few more. A sample gives the threshold."""
        stride = max(self.total // SAMPLE, 1)
        expected = m / stride
        place = int(expected + 6 * expected**0.5 + 16)
        sample = self.samples(stride, place, masks) if stride > 1 else []
        if place <= sum(len(some) for some in sample):
            floor = kth_largest(sample, place)
            found = {name: self.at_least(name, floor, masks) for name in self.shapes}
            if sum(len(places) for places, _ in found.values()) >= m:
                return found
        return {name: self.at_least(name, -math.inf, masks) for name in self.shapes}

    def samples(self, stride: int, many: int, masks: Mapping[str, Tensor] | None) -> list[Tensor]:
        """Return every ``stride``-th score in ``masks``, at least the ``many`` best of them."""
        if isinstance(self.scores, BestPaths) and masks is None:
            return self.scores.samples(stride, many)
        some = {name: self.scores[name].reshape(-1)[::stride] for name in self.shapes}
        if masks is None:
            return list(some.values())
        return [value[masks[name].reshape(-1)[::stride]] for name, value in some.items()]

    def at_least(
        self, name: str, floor: float, masks: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """Return places and scores of at least ``floor``, in ``masks``."""
        if isinstance(self.scores, BestPaths) and masks is None:
            return self.scores.at_least(name, floor)
        score = self.scores[name]
        reach = score >= floor
        places = kernels.where(reach if masks is None else reach & masks[name])
        return places, score.reshape(-1)[places]

    def top_each(self, counts: Mapping[str, int]) -> dict[str, Tensor]:
        """Return masks of the best ``counts[name]`` connections of each tensor, by saliency."""
        found: dict[str, Tensor] = {}
        for name, count in counts.items():
            worth = {name: self.saliency[name]}
            mine = None if self.allowed is None else {name: self.allowed[name]}
            found |= Ranking(worth, worth, mine).top(count)
        return found

    def break_ties(self, found: Found, kept: dict[str, Tensor], cut: float, extra: int) -> None:
        """Drop ``extra`` connections that score exactly ``cut``: smallest saliency first."""
        if extra <= 0:
            return
        tied = {name: kernels.where(values == cut) for name, (_, values) in found.items()}
        worth = [
            self.saliency[name].reshape(-1)[found[name][0][which]]
            for name, which in tied.items()
            if len(which)
        ]
        order = torch.sort(torch.cat(worth), descending=True, stable=True).indices
        drop = torch.zeros(len(order), dtype=torch.bool, device=order.device)
        drop[order[len(order) - extra :]] = True
        for (name, which), mine in zip(
            tied.items(), drop.split([len(t) for t in tied.values()]), strict=True
        ):
            kept[name][which[mine]] = False


def kth_largest(parts: list[Tensor], m: int) -> float:
    """Return the m-th largest of all values.

    >>> kth_largest([torch.tensor([5.0, 1.0]), torch.tensor([3.0, 4.0])], 2)
    4.0
    """
    values = torch.cat(parts)
    if on_cpu(values):  # numpy partitions several times faster than torch sorts
        array = values.numpy()
        array.partition(len(array) - m)
        return float(array[len(array) - m])
    return float(values.sort(descending=True).values[m - 1])


def count(masks: Mapping[str, Tensor]) -> int:
    """Return the number of connections that masks keep."""
    return kernels.count_all(masks.values())


def _both(
    a: Mapping[str, Tensor] | None, b: Mapping[str, Tensor] | None
) -> Mapping[str, Tensor] | None:
    if a is None or b is None:
        return a if b is None else b
    return {name: a[name] & b[name] for name in a}
