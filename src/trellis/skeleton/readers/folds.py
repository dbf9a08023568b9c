"""Ways of dividing recordings into those to train on and those to test on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from unicodedata import normalize

import numpy as np
from numpy.typing import ArrayLike

from ..skeletons import Fold, Indices

Folds = tuple[Fold, ...]
HALVES = "drawn halves"
EXPLAINED = (  # what the name is too short to say
    "drawn halves: no split is given, so about half of each class is drawn, by the names of the "
    "recordings; few change sides when others are added"
)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9/]*)", re.DOTALL)


def split(name: str, test: Sequence[bool]) -> Folds:
    """One fold, as the source says.

    >>> split("given", [False, True, False])
    (Fold(name='given', train=array([0, 2]), test=array([1])),)
    """
    chosen = np.asarray(test, bool)
    return (Fold(name, _where(~chosen), _where(chosen)),)


def held_out(groups: Sequence[str]) -> Folds:
    """A fold for each group, in order of name, that tests on it and trains on the others.

    >>> [(fold.name, fold.test.tolist()) for fold in held_out(["anna", "bela", "anna"])]
    [('anna', [0, 2]), ('bela', [1])]
    """
    return tuple(
        fold
        for group in sorted(set(groups))
        for fold in split(group, [other == group for other in groups])
    )


def drawn_halves(names: Sequence[str], labels: Indices) -> Folds:
    """One fold, the same on every machine: each recording on the side that its name draws.

    Two in a row, ``wave/4.csv`` and ``wave/5.csv``, are on different sides, so numbered recordings
    are halved. Any others fall by chance, and a class can come out lopsided. Where a side would
    have less than a quarter of it, or none, recordings change sides, the first by name first. So
    an added recording changes the side of at most one other, one of its own class, and of none
    where what is drawn leaves a quarter on each side, before and after. A class of one recording
    is trained on.

    >>> fold, = drawn_halves([f"wave/{number}.csv" for number in range(6)], np.zeros(6, np.int64))
    >>> len(fold.train), len(fold.test)
    (3, 3)
    """
    test = np.array([_drawn(name) for name in names], bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        if len(mine) == 1:
            test[mine] = False
            continue
        sides = [mine[~test[mine]], mine[test[mine]]]
        few, many = sorted(sides, key=len)
        short = max(1, len(mine) // 4) - len(few)
        for index in sorted(many, key=lambda i: _order(names[i]))[: max(0, short)]:
            test[index] = not test[index]
    return split(HALVES, list(test))


def _drawn(name: str) -> bool:
    """Whether a recording of that name is to be tested on."""
    before, number, after = _parts(name)
    toss = f"{before}{number // 2}{after}" if number >= 0 else name
    coin = sha256(normalize("NFC", toss).encode("utf-8", "backslashreplace")).digest()[0]
    return bool((coin ^ max(number, 0)) & 1)


def _order(name: str) -> tuple[str, int, str, str]:
    return *_parts(name), name


def _parts(name: str) -> tuple[str, int, str]:
    """A file's name around its last number, which is -1 where it has none."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2]), found[3]) if found else (name, -1, "")


def _where(chosen: ArrayLike) -> Indices:
    return np.flatnonzero(chosen).astype(np.int64)
