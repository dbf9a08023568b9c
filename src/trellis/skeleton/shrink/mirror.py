"""Whether actions stay what they are in a mirror, as the recordings themselves tell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from ..layout import Layout

SHARE = 0.5  # of the variants, that exchange left and right where this means nothing
_STILL = 0.5  # mirrored recordings are like their own class so often, of what others are
_MOST = 2000  # recordings that are looked at
_LEFT_RIGHT = 0  # the axis x


class Mirror(NamedTuple):
    """The ``share`` of variants that exchange left and right, and in words ``why``."""

    share: float
    why: str


def mirror_of(x: Tensor, y: Tensor, layout: Layout, classes: Sequence[str]) -> Mirror:
    """For training recordings x (recordings, joints, chunks * 3) with labels y (recordings,).

    Somebody else may throw with the other hand: where left and right mean nothing, half of the
    variants are mirrored, and networks learn what an action is from either side. That is so for
    layouts that have a mirror image, of one person or one hand, unless recordings say otherwise. A
    recording is like the one nearest to it. Left and right mean something if mirrored recordings
    are like their own class less than half as often as recordings are as they came (people who
    always use the same hand), or if there are two classes whose mirrored recordings are like the
    other more often than like their own (swipes to the left and to the right).

    >>> from ..layouts import FPHA
    >>> mirror_of(torch.zeros(2, 21, 96), torch.tensor([0, 1]), FPHA, ("wave", "point"))
    Mirror(share=0.0, why="layout 'fpha' has no mirror image")
    """
    if layout.mirror is None:
        return Mirror(0.0, f"layout {layout.name!r} has no mirror image")
    if len(layout.roots) > 1:
        return Mirror(0.0, f"layout {layout.name!r} is of {len(layout.roots)}, who change sides")
    if len(x) < 2:
        return Mirror(0.0, "one recording alone is like no other")
    chosen = torch.linspace(0, len(x) - 1, min(len(x), _MOST)).round().long()
    x, y = x[chosen.to(x.device)].cpu().float(), y[chosen.to(y.device)].cpu()
    other = x.view(*x.shape[:2], -1, 3)[:, list(layout.mirror)].clone()
    other[..., _LEFT_RIGHT] *= -1
    plain, mirrored = (_like(each, x, y, len(classes)) for each in (x, other))
    for one, two in combinations(range(len(classes)), 2):
        if _trade(mirrored, one, two) and not _trade(plain, one, two):
            return Mirror(
                0.0, f"in a mirror {classes[one]!r} is like {classes[two]!r}, and this like that"
            )
    own, before = (float(each.diagonal().sum()) for each in (mirrored, plain))
    told = f"{own:.0f} of {len(x)} recordings are like their own class in a mirror, {before:.0f} as"
    told += " they came"
    return Mirror(SHARE if own >= _STILL * before else 0.0, told)


def _like(given: Tensor, x: Tensor, y: Tensor, classes: int) -> Tensor:
    """(classes, classes): how many recordings ``given``, of each class, are nearest to one of x of
    each class, other than the one that they were made of."""
    away = torch.cdist(given.flatten(1), x.flatten(1)).fill_diagonal_(torch.inf)
    pairs = y * classes + y[away.argmin(1)]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def _trade(like: Tensor, one: int, two: int) -> bool:
    """Whether each is like the other more often than like itself."""
    return bool(like[one, two] > like[one, one] and like[two, one] > like[two, two])
