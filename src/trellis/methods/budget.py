"""How many connections to keep, and which are the best: exact budgets and rankings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from ..errors import TrellisError
from ..paths import kernels
from ..paths.kernels import TAKES_ALL, Places, is_cpu
from ..paths.scores import BestPaths


def kept_share(total: int, sparsity: Any = None, keep: Any = None) -> Fraction:
    """Return the fraction to keep, exactly. `budget` has accepted the arguments.

    >>> kept_share(10, sparsity=0.9), kept_share(10, keep=3)
    (Fraction(1, 10), Fraction(3, 10))
    >>> import numpy as np
    >>> kept_share(1000, sparsity=np.float32(0.99))
    Fraction(1, 100)
    """
    if sparsity is None:
        return Fraction(int(keep), total)
    if isinstance(sparsity, Fraction | Decimal):
        return 1 - Fraction(sparsity)
    return 1 - Fraction(as_written(sparsity))


def as_written(number: Any) -> str:
    """Return a number as its user wrote it.

    numpy's float32 0.99 is another number in float64, and 0.99 is meant.

    >>> import numpy as np
    >>> as_written(np.float32(0.99)), as_written(np.float64(0.99)), as_written(1)
    ('0.99', '0.99', '1.0')
    """
    return str(number) if getattr(number, "itemsize", 8) < 8 else repr(float(number))


def budget(total: int, sparsity: Any = None, keep: Any = None) -> int:
    """Return the number of connections to keep: ``keep``, or total × (1 − sparsity) rounded down.

    The arithmetic is exact and decimal.

    Raises:
        TrellisError: If not exactly one of the two is given, or it is out of range.

    >>> budget(10, sparsity=0.9), budget(2139024, sparsity=0.999)
    (1, 2139)
    """
    if (sparsity is None) == (keep is None):
        raise TrellisError(
            "give either sparsity (the fraction removed, such as 0.99) or keep (the number of "
            f"connections); got sparsity={sparsity!r}, keep={keep!r}"
        )
    if keep is not None:
        if isinstance(keep, bool) or not isinstance(keep, Integral):
            raise TrellisError(f"keep={keep!r} is not a whole number of connections")
        count = int(keep)
    else:
        if isinstance(sparsity, bool) or not isinstance(sparsity, Real | Decimal):
            raise TrellisError(f"sparsity={sparsity!r} is not a number")
        if not 0 <= float(sparsity) < 1:
            raise TrellisError(
                f"sparsity={sparsity!r} is out of range: expected the fraction to remove, "
                "0 <= sparsity < 1"
            )
        count = math.floor(total * kept_share(total, sparsity))
    if count < 1:
        raise TrellisError(
            f"a budget of {count} of {total} connections keeps nothing; "
            f"keep at least 1 (sparsity below {1 - 1 / max(total, 1):.6g})"
        )
    if count > total:
        raise TrellisError(f"keep={count} is more than the {total} connections there are")
    return count


def shares(
    fractions: Mapping[str, float | Fraction], sizes: dict[str, int], count: int
) -> dict[str, int]:
    """Split ``count`` over tensors by fractions.

    Each share is rounded down and limited to the tensor's size. The rest goes to the largest
    remainders.

    >>> shares({"a": 0.5, "b": 0.5}, {"a": 3, "b": 4}, 3)
    {'a': 1, 'b': 2}
    """
    exact = {name: fractions[name] * sizes[name] for name in sizes}
    counts = {
        name: min(math.floor(part if isinstance(part, Fraction) else part + 1e-9), sizes[name])
        for name, part in exact.items()
    }
    order = sorted(sizes, key=lambda name: counts[name] - exact[name])
    while (rest := count - sum(counts.values())) != 0:
        sign = 1 if rest > 0 else -1
        changed = False
        for name in order if sign > 0 else reversed(order):
            if rest and 0 <= counts[name] + sign <= sizes[name]:
                counts[name] += sign
                rest -= sign
                changed = True
        if not changed:
            break
    return counts


# Scopes: one ranking for all tensors, the same rate in each, ERK, LAMP, balanced, or counts.


SCOPES = ("global", "layer", "erk", "lamp", "balanced")
_BALANCE = 0.25  # the share of ERK in a balanced scope


def check_scope(scope: Any, sizes: Mapping[str, int]) -> None:
    """Refuse a scope that is unknown, or that does not fit tensors of these sizes."""
    if isinstance(scope, Mapping):
        for name, n in scope.items():
            if name not in sizes:
                raise TrellisError(
                    f"scope names {name!r}, which holds no connections; expected one of "
                    f"{', '.join(sizes)}"
                )
            if isinstance(n, bool) or not isinstance(n, int):
                raise TrellisError(
                    f"scope asks for {n!r} of {name!r}, which is not a whole number of connections"
                )
            if not 0 <= n <= sizes[name]:
                raise TrellisError(
                    f"scope asks for {n!r} of {name!r}; it has {sizes[name]} connections"
                )
    elif scope not in SCOPES:
        raise TrellisError(
            f"scope={scope!r} is unknown: expected one of {', '.join(SCOPES)}, or a mapping of "
            "parameter names to counts"
        )


def counts(
    scope: str | Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
    sizes: Mapping[str, int],
    budget: int,
    share: Fraction,
) -> dict[str, int]:
    """Return the number of connections that each tensor keeps, for scopes that set it.

    ``sizes`` is how many each may keep. For "layer", as in the paper, each keeps ``share`` of its
    connections, rounded down. The rest goes to the largest remainders.
    """
    if isinstance(scope, Mapping):
        return {name: scope.get(name, 0) for name in sizes}
    if scope == "layer":
        whole = all(sizes[name] == math.prod(shapes[name]) for name in sizes)
        rate = share if whole else Fraction(budget, max(sum(sizes.values()), 1))
        return shares({name: rate for name in sizes}, dict(sizes), budget)
    return shares(erk(shapes, sizes, budget), dict(sizes), budget)


def erk(
    shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int], budget: int
) -> dict[str, float]:
    """Return Erdős–Rényi kernel densities: proportional to Σ dims / ∏ dims, at most 1.

    >>> erk({"a": (2, 2), "b": (8, 8)}, {"a": 4, "b": 64}, 20)
    {'a': 1.0, 'b': 0.25}
    """
    raw = {n: sum(shapes[n]) / max(math.prod(shapes[n]), 1) for n in sizes}
    return capped(raw, sizes, budget)


def capped(raw: Mapping[str, float], sizes: Mapping[str, int], budget: int) -> dict[str, float]:
    """Return densities proportional to ``raw``, at most 1, that add up to the budget.

    >>> capped({"a": 3.0, "b": 1.0}, {"a": 10, "b": 10}, 15)
    {'a': 1.0, 'b': 0.5}
    """
    full: set[str] = set()
    while True:
        left = budget - sum(sizes[n] for n in full)
        mass = sum(raw[n] * sizes[n] for n in sizes if n not in full)
        scale = left / mass if mass else 0.0
        over = {n for n in sizes if n not in full and raw[n] * scale > 1}
        if not over:
            return {n: 1.0 if n in full else max(raw[n] * scale, 0.0) for n in sizes}
        full |= over


def balanced(
    ranking: Ranking, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int], budget: int
) -> dict[str, int]:
    """Return counts by densities between those of one ranking for all and those of ERK.

    The density of a tensor is the weighted geometric mean of the two, with a quarter of ERK. A
    tensor of which one ranking keeps nothing counts as half a connection there.
    """
    best = ranking.top(budget)
    among = {n: max(int(torch.count_nonzero(best[n])), 0.5) / max(sizes[n], 1) for n in sizes}
    spread = erk(shapes, sizes, budget)
    raw = {n: among[n] ** (1 - _BALANCE) * spread[n] ** _BALANCE for n in sizes}
    return shares(capped(raw, sizes, budget), dict(sizes), budget)


def by_thresholds(
    saliency: Mapping[str, Tensor],
    allowed: Mapping[str, Tensor] | None,
    wanted: Mapping[str, int],
) -> dict[str, Tensor]:
    """Return each saliency relative to that of the last connection within its tensor's count.

    So 1 and above is within the count. This needs no sorting.

    >>> by_thresholds({"a": torch.tensor([4.0, 1.0, 2.0])}, None, {"a": 2})["a"]
    tensor([2.0000, 0.5000, 1.0000])
    """
    scores = {}
    for name, given in saliency.items():
        low = min(float(given.min()), 0.0) if given.numel() else 0.0
        s = given - low if low < 0 else given
        among = None if allowed is None else {name: allowed[name]}
        few = wanted[name] < 1  # of a tensor without a share, the first has a half
        found = Ranking({name: s}, {name: s}).best(max(wanted[name], 1), among)
        some = found[name][1]
        cut = kth_largest([some], min(max(wanted[name], 1), len(some))) if len(some) else 1.0
        cut = max(2 * cut if few else cut, torch.finfo(torch.float32).tiny)
        scores[name] = (s / cut).clamp_(max=torch.finfo(torch.float32).max)
    return scores


def lamp(saliency: Tensor) -> Tensor:
    """Return layer-adaptive magnitudes: s² over the sum of squares of all that are as large."""
    flat = saliency.reshape(-1).cpu().to(torch.float64) ** 2
    order = torch.sort(flat, stable=True)
    tail = torch.flip(torch.cumsum(torch.flip(order.values, [0]), 0), [0])
    score = torch.empty_like(flat)
    score[order.indices] = torch.where(tail > 0, order.values / tail, torch.zeros_like(tail))
    return score.to(torch.float32).reshape(saliency.shape).to(saliency.device)


def scoped(
    scope: str | Mapping[str, int],
    saliency: Mapping[str, Tensor],
    allowed: Mapping[str, Tensor] | None,
    budget: int,
    share: Fraction,
) -> tuple[Ranking, dict[str, int] | None]:
    """Return the ranking of a scope, and the number to keep in each tensor if the scope sets it."""
    if scope == "global":
        return Ranking(saliency, saliency, allowed), None
    if scope == "lamp":
        return Ranking({n: lamp(s) for n, s in saliency.items()}, saliency, allowed), None
    shapes = {n: tuple(s.shape) for n, s in saliency.items()}
    sizes = {
        n: s.numel() if allowed is None else int(torch.count_nonzero(allowed[n]))
        for n, s in saliency.items()
    }
    if scope == "balanced":
        wanted = balanced(Ranking(saliency, saliency, allowed), shapes, sizes, budget)
        return Ranking(by_thresholds(saliency, allowed, wanted), saliency, allowed), wanted
    wanted = counts(scope, shapes, sizes, budget, share)
    scores = {}
    for name, s in saliency.items():
        # Rank within the tensor: a score of 1 or more means "within its count".
        flat = (
            s.reshape(-1)
            if allowed is None
            else torch.where(allowed[name], s, torch.full_like(s, -math.inf)).reshape(-1)
        )
        order = torch.sort(flat, descending=True, stable=True).indices
        rank = torch.empty(flat.numel(), dtype=torch.float64, device=s.device)
        rank[order] = torch.arange(1, flat.numel() + 1, dtype=torch.float64, device=s.device)
        scores[name] = (max(wanted[name], 0.5) / rank).to(torch.float32).reshape(s.shape)
    return Ranking(scores, saliency, allowed), wanted


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
        if masks is not None and self.total <= TAKES_ALL and not is_cpu(self.device):
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
    if is_cpu(values):  # numpy partitions several times faster than torch sorts
        array = values.numpy()
        array.partition(len(array) - m)
        return float(array[len(array) - m])
    return float(values.sort(descending=True).values[m - 1])


FEW = 1 << 13  # entries: of 4,000 tensors with over 0.1 % zeros, they miss all zeros in one


def zeros(weight: Tensor) -> float:
    """Return the share of zeros; for a large tensor, 0.0 if a sample has none."""
    flat = weight.reshape(-1)
    if not flat.numel():  # a layer without outputs
        return 0.0
    if flat.numel() > FEW and not bool((flat[:: flat.numel() // FEW | 1] == 0).any()):
        return 0.0
    return 1 - int(torch.count_nonzero(flat)) / flat.numel()


def count(masks: Mapping[str, Tensor]) -> int:
    """Return the number of connections that masks keep."""
    return kernels.count_all(masks.values())


def _both(
    a: Mapping[str, Tensor] | None, b: Mapping[str, Tensor] | None
) -> Mapping[str, Tensor] | None:
    if a is None or b is None:
        return a if b is None else b
    return {name: a[name] & b[name] for name in a}
