"""hands45: 1,175 synthetic recordings of 45 hand actions, in the format of FPHA."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ....errors import TrellisError
from ..dataset import Fold, Frames, Skeletons
from .actions import ACTIONS
from .hand import ANGLES, LAYOUT, Anatomy, Chance, Floats, hand, placed, viewed
from .performance import Habit, Plan, Take, lengths, plan, poses, takes, view, wandering

# A depth camera's errors: it is never exact, and at times it takes a finger for another place.


WHITE = 1.2  # mm, every coordinate of every frame
BIAS = 2.5  # mm, a joint's own error, which wanders through the recording
LOST = 0.012  # how often a finger's tracking is lost, per finger and frame, for 1 to 6 frames
LOST_BY = 14.0  # mm that a lost finger is put wrong, most at its tip

# Joints of each finger from the knuckle on, and how much of a miss each of them takes.
_FINGERS = np.array([[1 + f, 6 + 3 * f, 7 + 3 * f, 8 + 3 * f] for f in range(5)])
_SHARE = np.array([0.2, 0.5, 0.8, 1.0])


def errors(chance: Chance, frames: int) -> Floats:
    """Return random sensor errors (frames, 21, 3) in millimeters."""
    wrong = chance.normal(frames, 21, 3)
    wrong *= WHITE
    wrong += wandering(BIAS * chance.normal(2 + frames // 40, 63), frames).reshape(frames, 21, 3)
    misses = int(5 * LOST * frames + float(chance.uniform(0, 1)))
    first = chance.uniform(0, frames, misses).astype(np.int64)
    last = first + chance.uniform(1, 7, misses).astype(np.int64)
    fingers = chance.uniform(0, 5, misses).astype(np.int64)
    away = LOST_BY * _SHARE[:, None] * chance.normal(misses, 1, 3)  # (misses, joints, 3)
    for start, stop, finger, miss in zip(first, last, fingers, away, strict=True):
        wrong[start:stop, _FINGERS[finger]] += miss
    return wrong


# From takes to coordinates: plan all, give each its length, move, look, and measure.


T = TypeVar("T")

# How strong a habit is: the person's in all they do, in this action, and this one time.
PERSON, HABITUAL, ONCE = 0.6, 0.6, 0.75
ELBOW = (110.0, -130.0, 170.0)  # right, up and forward of the eyes, mm
FOREARM_IN, FOREARM_UP = 22.0, 12.0  # where a forearm points when the programme says nothing

_AT_ONCE = 1024  # frames: what stays in the processor's cache is moved several times as fast

# Every kind of random number has a stream of its own: more of one leaves the others as they are.
_ANATOMY, _PERSON, _HABITUAL, _PLAN, _POSES, _SENSOR = range(1, 7)


def recorded(
    takes: Sequence[Take], seed: int, only: Sequence[int] | None = None, variety: float = 1.0
) -> tuple[Frames, ...]:
    """Return each take (frames, 21, 3) as recorded, in millimeters rounded to hundredths.

    Rounding makes the bytes the same on every machine: sines differ in their last bit, 10⁻¹³ mm.

    Args:
        takes: All takes; the length of each depends on the others.
        seed: The seed of the set.
        only: Indices of the takes to make (default: all).
        variety: How much people differ.
    """
    clean, length = filmed(takes, seed, only, variety)
    found = []
    for take, rows in zip(_chosen(takes, only), _slices(length), strict=True):
        chance = Chance(seed, _SENSOR, take.subject, take.action, take.repetition)
        seen = errors(chance, rows.stop - rows.start)
        seen += clean[rows]
        seen *= 100
        np.rint(seen, out=seen)
        seen /= 100
        found.append(seen.astype(np.float32))
    return tuple(found)


def filmed(
    takes: Sequence[Take], seed: int, only: Sequence[int] | None = None, variety: float = 1.0
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the true joints (all frames, 21, 3), and the number of frames of each take."""
    moves, views, length = moved(takes, seed, only, variety)
    joints = np.empty((len(moves), 21, 3))
    subjects = np.repeat([take.subject for take in _chosen(takes, only)], length)
    for subject in np.unique(subjects).tolist():
        anatomy = anatomy_of(subject, seed)
        own = np.flatnonzero(subjects == subject)
        for start in range(0, len(own), _AT_ONCE):
            rows = own[start : start + _AT_ONCE]
            moved_so = moves[rows]
            arm = moved_so[:, ANGLES:] + (0, 0, 0, FOREARM_UP, FOREARM_IN, *ELBOW)
            there = placed(hand(moved_so[:, :ANGLES], anatomy), arm, anatomy.forearm)
            joints[rows] = viewed(there, *views[rows].T)
    return joints, length


def moved(
    takes: Sequence[Take], seed: int, only: Sequence[int] | None = None, variety: float = 1.0
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return poses (all frames, 28), camera angles (all frames, 3), and frames per take."""
    plans = [_plan(take, seed, variety) for take in takes]
    length = lengths(np.array([each.beats for each in plans]))
    if only is not None:
        plans, length = _chosen(plans, only), length[list(only)]
    moves, views = [], []
    for take, each, frames in zip(_chosen(takes, only), plans, length.tolist(), strict=True):
        chance = Chance(seed, _POSES, take.subject, take.action, take.repetition)
        moves.append(poses(each, frames, chance))
        views.append(view(each, frames, chance))
    return np.concatenate(moves), np.concatenate(views), length


def anatomy_of(subject: int, seed: int) -> Anatomy:
    """Return the hand of a subject."""
    return Anatomy.of(Chance(seed, _ANATOMY, subject))


def _plan(take: Take, seed: int, variety: float) -> Plan:
    subject, action, repetition, _ = take
    chance = Chance(seed, _PLAN, subject, action, repetition)
    habit = _habit(seed, subject, action, variety) + Habit.of(chance, variety * ONCE)
    return plan(ACTIONS[action], habit, chance)


@functools.lru_cache(maxsize=512)
def _habit(seed: int, subject: int, action: int, variety: float) -> Habit:
    """Return a person's habit in general and in this action."""
    return Habit.of(Chance(seed, _PERSON, subject), variety * PERSON) + Habit.of(
        Chance(seed, _HABITUAL, subject, action), variety * HABITUAL
    )


def _chosen(every: Sequence[T], only: Sequence[int] | None) -> list[T]:
    return list(every) if only is None else [every[i] for i in only]


def _slices(length: NDArray[np.int64]) -> list[slice]:
    ends = length.cumsum().tolist()
    return [slice(end - frames, end) for end, frames in zip(ends, length.tolist(), strict=True)]


def hands45(seed: int = 0, variety: float = 1.0) -> Skeletons:
    """Return synthetic recordings of 45 hand actions: 600 to train on and 575 to test on.

    The same seed gives the same bytes on every machine. Coordinates are in millimeters, to the
    hundredth, relative to a camera on the person's head (x right, y down, z forward).

    Args:
        seed: The seed, from 0.
        variety: Factor on the differences between people and repetitions, from 0 to 3; larger is
            harder.

    >>> data = hands45()
    >>> len(data), len(data.classes), data.synthetic
    (1175, 45, True)
    >>> data.names[0], data.sequences[0].shape[1:]
    ('subject_1/open_bottle/1', (21, 3))
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise TrellisError(f"seed={seed!r} is not a whole number from 0 up")
    if isinstance(variety, bool) or not isinstance(variety, int | float) or not 0 <= variety <= 3:
        raise TrellisError(f"variety={variety!r} is not a number from 0 to 3")
    all_takes = takes(Chance(seed, 0))
    train = np.array([take.train for take in all_takes])
    return Skeletons(
        source="hands45",
        sequences=recorded(all_takes, seed, variety=float(variety)),
        labels=np.array([take.action for take in all_takes], np.int64),
        classes=tuple(action.name for action in ACTIONS),
        names=tuple(take.name for take in all_takes),
        layout=LAYOUT,
        folds=(Fold("1:1", np.flatnonzero(train), np.flatnonzero(~train)),),
        synthetic=True,
    )


def some_of_hands45(which: Sequence[int], seed: int = 0) -> list[tuple[str, Frames]]:
    """Return names and frames of some test recordings of `hands45`, without making the others.

    >>> [(name, frames)] = some_of_hands45([7])
    >>> data = hands45()
    >>> seven = data.folds[0].test[7]
    >>> name == data.names[seven], bool((frames == data.sequences[seven]).all())
    (True, True)
    """
    all_takes = takes(Chance(seed, 0))
    tested = [i for i, take in enumerate(all_takes) if not take.train]
    only = [tested[i] for i in which]
    names = [all_takes[i].name for i in only]
    return list(zip(names, recorded(all_takes, seed, only), strict=True)) if only else []
