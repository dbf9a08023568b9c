"""What settings are chosen by: recordings held out of training splits, never a test split.

Of each kind (``HELD``), the parts of a set: a name, what is trained on, what is judged by.

- ``apart``: of ``hands45`` every fourth recording, twice; of NW-UCLA half of the people, both ways,
  and one of its two cameras; of SBU one of the other folds; of MTM-1 a third of its videos, twice.
- ``alike``: a quarter of the recordings at random, of the people that are trained on: of
  ``hands45`` once, of NW-UCLA (all cameras' recordings of a take together), SBU and MTM-1 twice;
  and either camera of NW-UCLA.
- ``little``: every eighth of them in turn: what is trained on is then nearly as large as the
  training split.

``harder:SEED`` is made like ``hands45``, with people who differ twice as much, and judged by its
test recordings, which are nobody's test split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trellis import skeleton
from trellis.skeleton.data.hands import hands45

HARDER = "harder:"


def loaded(source: str) -> skeleton.Skeletons:
    """A set, `HARDER` ones too."""
    if not source.startswith(HARDER):
        return skeleton.load_dataset(source)
    return replace(hands45(int(source.removeprefix(HARDER)), variety=2.0), source=source)


def parts(data: skeleton.Skeletons, held: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """What ``held`` says is held out of a set."""
    if data.source.startswith(HARDER):
        return iter([(data.source, data.folds[0].train, data.folds[0].test)])
    return HELD[held](data)


def apart(data: skeleton.Skeletons) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Judged by other people, another camera or other videos than are trained on."""
    kind, train = data.source.partition(":")[0], data.folds[0].train
    if kind == "sbu":
        others = [fold.test for fold in data.folds[1:]]
        yield "sbu, a fold", np.concatenate(others[1:]), others[0]
        return
    if kind == "nw-ucla":
        people, camera = (tags(data, train, tag) for tag in (r"_s(\d+)", r"_v(\d+)"))
        yield "nw-ucla, odd people", train[people % 2 == 1], train[people % 2 == 0]
        yield "nw-ucla, even people", train[people % 2 == 0], train[people % 2 == 1]
        yield "nw-ucla, a camera", train[camera == 0], train[camera == 1]
        return
    if kind == "mtm1":
        video = tags(data, train, r"(.*):")
        for third in (0, 1):
            judged = video % 3 == third
            yield f"mtm1, videos {third}", train[~judged], train[judged]
        return
    for quarter in (0, 1):
        judged = np.arange(len(train)) % 4 == quarter
        yield f"{kind}, quarter {quarter}", train[~judged], train[judged]


def alike(data: skeleton.Skeletons) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The same, judged by recordings of the people that are trained on."""
    kind, train = data.source.partition(":")[0], data.folds[0].train
    if kind == "nw-ucla":
        camera = tags(data, train, r"_v(\d+)")
        for other in (1, 0):
            yield f"nw-ucla, camera {other}", train[camera != other], train[camera == other]
    quarter = shares(data, train, 4, seed=7)
    for chosen in (0, 1) if kind != "hands45" else (0,):
        yield f"{kind}, takes {chosen}", train[quarter != chosen], train[quarter == chosen]


def little(data: skeleton.Skeletons) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The same, eight parts that leave most to train on."""
    kind, train = data.source.partition(":")[0], data.folds[0].train
    eighth = shares(data, train, 8, seed=11)
    for chosen in range(8):
        yield f"{kind}, eighth {chosen}", train[eighth != chosen], train[eighth == chosen]


HELD = {"apart": apart, "alike": alike, "little": little}


def shares(data: skeleton.Skeletons, chosen: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Which of ``count`` random shares a recording is in; NW-UCLA's takes are not torn apart."""
    take = np.arange(len(chosen))
    if data.source.startswith("nw-ucla"):
        take = tags(data, chosen, r"(a\d+_s\d+_e\d+)")
    return (np.random.RandomState(seed).permutation(take.max() + 1) % count)[take]


def tags(data: skeleton.Skeletons, chosen: np.ndarray, pattern: str) -> np.ndarray:
    """What a pattern finds in the recordings' names, as the numbers of its sorted findings."""
    found = [re.search(pattern, data.names[i]) for i in chosen]
    return np.unique([match.group(1) for match in found if match], return_inverse=True)[1]
