"""Masks that keep few connections, written as where those are.

At 99 % a mask says "no" a hundred times for every "yes". Positions of what is kept are a
twelfth of its bytes, and whoever only asks about the kept need not look at the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from .kernels import where


class Places(Mapping[str, Tensor]):
    """``{parameter name: bool tensor}`` like any masks, made when asked for. ``places`` holds
    the flat positions of what is kept, in ascending order.

    >>> few = Places({"w": (2, 2)}, {"w": torch.tensor([3])})
    >>> few["w"], few.count
    (tensor([[False, False],
            [False,  True]]), 1)
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], places: Mapping[str, Tensor]) -> None:
        self.shapes, self.places = shapes, places
        self._masks: dict[str, Tensor] = {}

    @classmethod
    def of(cls, masks: Mapping[str, Tensor]) -> Places:
        """The places of masks as they are."""
        shapes = {name: tuple(mask.shape) for name, mask in masks.items()}
        return cls(shapes, {name: where(mask) for name, mask in masks.items()})

    @property
    def count(self) -> int:
        return sum(len(places) for places in self.places.values())

    @property
    def device(self) -> torch.device:
        return next(iter(self.places.values())).device

    def among(self, masks: Mapping[str, Tensor], marks: Mapping[str, Tensor]) -> Places:
        """Those of the places that are in ``masks`` or marked themselves."""
        found = {}
        for name, places in self.places.items():
            mine = marks.get(name, torch.zeros(len(places), dtype=torch.bool, device=self.device))
            if name in masks:
                mine = mine | masks[name].reshape(-1)[places]
            found[name] = places if bool(mine.all()) else places[mine]
        return Places(self.shapes, found)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._masks:
            places = self.places[name]
            mask = torch.zeros(self.shapes[name], dtype=torch.bool, device=places.device)
            mask.view(-1)[places] = True
            self._masks[name] = mask
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)
