"""Whether mirrored recordings keep their class, decided by nearest neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..data.layouts import Layout

SHARE = 0.5  # fraction of variants to mirror if left and right carry no meaning
TOLD = 0.25  # nearest neighbors must agree this far above chance (0: chance, 1: always)
STILL = 0.5  # mirrored recordings must agree at least this share of that
_MOST = 2000  # recordings used


class Mirror(NamedTuple):
    """The fraction of variants to mirror, and the reason in words."""

    share: float
    why: str


def mirror_of(
    x: Tensor, y: Tensor, layout: Layout, classes: Sequence[str], left_right: int = 0
) -> Mirror:
    """Return whether to mirror training recordings for data augmentation.

    If left and right carry no meaning, half of the variants are mirrored, and networks learn an
    action from either side. This applies to layouts with a mirror image, of one person or one hand.
    The class of a recording's nearest neighbor decides. Left and right carry meaning if

    - mirrored recordings agree with their own class less than half as often, above chance, as
      the originals (people who always use the same hand); or
    - two classes trade places: mirrored recordings of each are nearest to the other (swipes to the
      left and to the right).

    If nearest neighbors hardly agree with their own class, nothing can be decided, and recordings
    are not mirrored. Among very many classes, two may seem to trade places by chance. Then nothing
    is mirrored either, which costs less than to learn a wrong class.

    Args:
        x: Training recordings (recordings, joints, chunks * 3).
        y: Labels (recordings,).
        layout: The skeleton.
        classes: The names of the classes.
        left_right: The axis from left to right.

    Example:
        >>> from trellis.skeleton.data.layouts import FPHA
        >>> mirror_of(torch.zeros(2, 21, 96), torch.tensor([0, 1]), FPHA, ("wave", "point"))
        Mirror(share=0.0, why="layout 'fpha' has no mirror image")
    """
    if layout.mirror is None:
        return Mirror(0.0, f"layout {layout.name!r} has no mirror image")
    people = len({min(root, layout.mirror[root]) for root in layout.roots})
    if people > 1:
        return Mirror(0.0, f"layout {layout.name!r} has {people} bodies, which would change sides")
    if len(x) < 2:
        return Mirror(0.0, "one recording has no nearest neighbor")
    chosen = torch.linspace(0, len(x) - 1, min(len(x), _MOST)).round().long()
    x, y = x[chosen.to(x.device)].cpu().float(), y[chosen.to(y.device)].cpu()
    other = x.view(*x.shape[:2], -1, 3)[:, list(layout.mirror)].clone()
    other[..., left_right] *= -1
    plain, mirrored = (_like(each, x, y, len(classes)) for each in (x, other))
    before, own = (int(each.diagonal().sum()) for each in (plain, mirrored))
    told = (
        f"nearest neighbors agree for {own} of {len(x)} mirrored recordings, {before} as recorded"
    )
    count = torch.bincount(y).double()
    chance = float((count * (count - 1)).sum()) / (len(x) - 1)
    if before - chance < TOLD * (len(x) - chance):
        return Mirror(0.0, f"{told}, too few to decide")
    if pair := _traded(plain, mirrored):
        one, two = (repr(classes[each]) for each in pair)
        return Mirror(0.0, f"mirrored, {one} looks like {two} and vice versa")
    return Mirror(SHARE if own - chance >= STILL * (before - chance) else 0.0, told)


def _like(given: Tensor, x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return how many recordings ``given`` of each class have a nearest neighbor of each class.

    Recording i of ``given`` is not compared with recording i of x. Shape: (classes, classes).
    """
    away = torch.cdist(given.flatten(1), x.flatten(1)).fill_diagonal_(torch.inf)
    pairs = y * classes + y[away.argmin(1)]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes)


def _traded(plain: Tensor, mirrored: Tensor) -> tuple[int, int] | None:
    """Return the first two classes that trade places only when mirrored.

    Each must be nearest to the other more often than to itself, together at least half as often as
    the originals agreed.
    """
    kept = plain.diagonal()
    often = 2 * (mirrored + mirrored.T) >= kept[:, None] + kept
    found = _mutual(mirrored) & often & ~_mutual(plain)
    pairs: list[list[int]] = found.triu(1).nonzero().tolist()
    return (pairs[0][0], pairs[0][1]) if pairs else None


def _mutual(like: Tensor) -> Tensor:
    """Return which pairs of classes are each nearer to the other than to itself."""
    other = like > like.diagonal()[:, None]
    return other & other.T
