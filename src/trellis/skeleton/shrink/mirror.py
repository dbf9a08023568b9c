"""Whether actions stay what they are in a mirror, as the recordings themselves tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.layouts import Layout

SHARE = 0.5  # of the variants, that exchange left and right where this means nothing
TOLD = 0.25  # recordings are like their own class: so much of the way from chance to always
STILL = 0.5  # and mirrored ones so much of that
_MOST = 2000  # recordings that are looked at


class Mirror(NamedTuple):
    """The ``share`` of variants that exchange left and right, and in words ``why``."""

    share: float
    why: str


def mirror_of(
    x: Tensor, y: Tensor, layout: Layout, classes: Sequence[str], left_right: int = 0
) -> Mirror:
    """For training recordings x (recordings, joints, chunks * 3) with labels y (recordings,), where
    the axis ``left_right`` goes from left to right.

    Somebody else may throw with the other hand: where left and right mean nothing, half of the
    variants are mirrored, and networks learn what an action is from either side. That is so for
    layouts that have a mirror image, of one person or one hand, unless recordings say otherwise. A
    recording is like the one nearest to it. Left and right mean something if

    - mirrored recordings are like their own class less than half as often, above chance, as they
      were before (people who always use the same hand);
    - there are two classes whose mirrored recordings are like the other rather than like their own
      (swipes to the left and to the right).

    Where recordings are hardly like their own class to begin with, they say nothing, and are not
    mirrored. Of very many classes some two may seem to trade places by chance; then they are not
    either, which costs less than to learn the wrong class.

    >>> from trellis.skeleton.data.layouts import FPHA
    >>> mirror_of(torch.zeros(2, 21, 96), torch.tensor([0, 1]), FPHA, ("wave", "point"))
    Mirror(share=0.0, why="layout 'fpha' has no mirror image")
    """
    if layout.mirror is None:
        return Mirror(0.0, f"layout {layout.name!r} has no mirror image")
    people = len({min(root, layout.mirror[root]) for root in layout.roots})
    if people > 1:
        return Mirror(0.0, f"layout {layout.name!r} is of {people}, who change sides")
    if len(x) < 2:
        return Mirror(0.0, "one recording alone is like no other")
    chosen = torch.linspace(0, len(x) - 1, min(len(x), _MOST)).round().long()
    x, y = x[chosen.to(x.device)].cpu().float(), y[chosen.to(y.device)].cpu()
    other = x.view(*x.shape[:2], -1, 3)[:, list(layout.mirror)].clone()
    other[..., left_right] *= -1
    plain, mirrored = (_like(each, x, y, len(classes)) for each in (x, other))
    before, own = (int(each.diagonal().sum()) for each in (plain, mirrored))
    told = (
        f"{own} of {len(x)} recordings are like their own class in a mirror, {before} as they came"
    )
    count = torch.bincount(y).double()
    chance = float((count * (count - 1)).sum()) / (len(x) - 1)
    if before - chance < TOLD * (len(x) - chance):
        return Mirror(0.0, f"{told}, which says nothing")
    if pair := _traded(plain, mirrored):
        one, two = (repr(classes[each]) for each in pair)
        return Mirror(0.0, f"in a mirror {one} looks like {two}, and this like that")
    return Mirror(SHARE if own - chance >= STILL * (before - chance) else 0.0, told)


def _like(given: Tensor, x: Tensor, y: Tensor, classes: int) -> Tensor:
    """(classes, classes): how many recordings ``given``, of each class, are nearest to one of x of
    each class, other than the one that they were made of."""
    away = torch.cdist(given.flatten(1), x.flatten(1)).fill_diagonal_(torch.inf)
    pairs = y * classes + y[away.argmin(1)]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def _traded(plain: Tensor, mirrored: Tensor) -> tuple[int, int] | None:
    """The first two classes that trade places in a mirror, and do not without: each is like the
    other rather than like itself, and together half as often as they were like themselves."""
    kept = plain.diagonal()
    often = 2 * (mirrored + mirrored.T) >= kept[:, None] + kept
    found = _mutual(mirrored) & often & ~_mutual(plain)
    pairs: list[list[int]] = found.triu(1).nonzero().tolist()
    return (pairs[0][0], pairs[0][1]) if pairs else None


def _mutual(like: Tensor) -> Tensor:
    """(classes, classes): whether each of two is like the other more often than like itself."""
    other = like > like.diagonal()[:, None]
    return other & other.T
