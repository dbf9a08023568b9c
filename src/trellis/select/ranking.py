"""The best m of all connections, by score, then saliency, then order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..paths import kernels

SAMPLE = 1 << 17


@dataclass(frozen=True, eq=False)
class Ranking:
    """Connections from best to worst. ``scores`` and ``saliency`` are float32 in the
    parameters' shapes; ``allowed`` (bool) leaves the rest out of the ranking altogether."""

    scores: Mapping[str, Tensor]
    saliency: Mapping[str, Tensor]
    allowed: Mapping[str, Tensor] | None = None

    @property
    def size(self) -> int:
        if self.allowed is None:
            return sum(s.numel() for s in self.scores.values())
        return count(self.allowed)

    def top(self, m: int, among: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Masks of the best ``m`` (all, if there are fewer), of those marked in ``among``."""
        masks = _both(self.allowed, among)
        parts = {
            name: score if masks is None else score[masks[name]]
            for name, score in self.scores.items()
        }
        size = sum(p.numel() for p in parts.values())
        if m >= size:
            return {
                n: torch.ones_like(s, dtype=torch.bool) if masks is None else masks[n].clone()
                for n, s in self.scores.items()
            }
        if m <= 0:
            return {n: torch.zeros_like(s, dtype=torch.bool) for n, s in self.scores.items()}
        cut, reaching = kth_largest([p.reshape(-1) for p in parts.values()], m)
        chosen = {name: score >= cut for name, score in self.scores.items()}
        if masks is not None:
            for name, mask in chosen.items():
                mask &= masks[name]
        if reaching > m:
            self.break_ties(chosen, cut, reaching - m)
        return chosen

    def top_each(self, counts: Mapping[str, int]) -> dict[str, Tensor]:
        """Masks of the best so many of each tensor, by saliency."""
        found: dict[str, Tensor] = {}
        for name, count in counts.items():
            worth = {name: self.saliency[name]}
            mine = None if self.allowed is None else {name: self.allowed[name]}
            found |= Ranking(worth, worth, mine).top(count)
        return found

    def break_ties(self, chosen: dict[str, Tensor], cut: float, extra: int) -> None:
        """Of the chosen that score exactly ``cut`` drop ``extra``: by saliency, then order."""
        tied = [
            torch.nonzero((chosen[name] & (score == cut)).reshape(-1))[:, 0]
            for name, score in self.scores.items()
        ]
        values = [
            self.saliency[name].reshape(-1)[places] if len(places) else places.to(torch.float32)
            for name, places in zip(self.scores, tied, strict=True)
        ]
        order = torch.sort(torch.cat(values), descending=True, stable=True).indices
        drop = torch.zeros(len(order), dtype=torch.bool, device=order.device)
        drop[order[len(order) - extra :]] = True
        parts = drop.split([len(t) for t in tied])
        for name, places, mine in zip(self.scores, tied, parts, strict=True):
            chosen[name].view(-1)[places[mine]] = False


def kth_largest(parts: list[Tensor], m: int) -> tuple[float, int]:
    """The m-th largest of all values, exactly, and how many are at least as large.

    A sample says where to look; only values above that are gathered and partitioned.

    >>> kth_largest([torch.tensor([5.0, 1.0]), torch.tensor([3.0, 4.0])], 2)
    (4.0, 2)
    """
    size = sum(p.numel() for p in parts)
    stride = max(size // SAMPLE, 1)
    floor = float("-inf")
    if stride > 1:
        sample = torch.cat([p[::stride] for p in parts]).sort(descending=True).values
        expected = m / stride
        place = int(expected + 6 * expected**0.5 + 16)
        if place < len(sample):
            floor = float(sample[place])
    while True:
        if parts[0].device.type == "cpu":  # numpy gathers several times faster than torch here
            arrays = [p.numpy() for p in parts]
            above = np.concatenate([a if floor == -np.inf else a[a >= floor] for a in arrays])
            if len(above) >= m:
                above.partition(len(above) - m)
                cut = above[len(above) - m]
                return float(cut), int(np.count_nonzero(above >= cut))
        else:
            found = torch.cat([p if floor == -np.inf else p[p >= floor] for p in parts])
            if len(found) >= m:
                edge = found.sort(descending=True).values[m - 1]
                return float(edge), int(torch.count_nonzero(found >= edge))
        floor = -np.inf


def count(masks: Mapping[str, Tensor]) -> int:
    """How many connections masks keep."""
    return sum(kernels.count(mask) for mask in masks.values())


def _both(
    a: Mapping[str, Tensor] | None, b: Mapping[str, Tensor] | None
) -> Mapping[str, Tensor] | None:
    if a is None or b is None:
        return a if b is None else b
    return {name: a[name] & b[name] for name in a}
