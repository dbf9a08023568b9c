"""From takes to coordinates: plan all, give each its length, move, look, and measure."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..skeletons import Frames
from .actions import ACTIONS
from .anatomy import Anatomy
from .chance import Chance, Floats
from .habits import Habit
from .kinematics import hand, placed, viewed
from .lengths import lengths
from .performance import Plan, plan, poses, view
from .pose import ANGLES
from .sensor import errors
from .takes import Take

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
    """Each take (frames, 21, 3) as the camera gives it: millimetres, rounded to hundredths.
    ``only`` are those to make: all have a say in how long each of them is. ``variety`` is how much
    people differ.

    Rounding is what makes the bytes the same everywhere: sines differ between machines in their
    last bit, 10⁻¹³ mm.
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
    """The true places of all joints (all frames, 21, 3), and how many frames each take has."""
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
    """Poses (all frames, 28), the camera's angles (all frames, 3), and frames per take."""
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
    """The hand of one of the subjects."""
    return Anatomy.of(Chance(seed, _ANATOMY, subject))


def _plan(take: Take, seed: int, variety: float) -> Plan:
    subject, action, repetition, _ = take
    chance = Chance(seed, _PLAN, subject, action, repetition)
    habit = _habit(seed, subject, action, variety) + Habit.of(chance, variety * ONCE)
    return plan(ACTIONS[action], habit, chance)


@functools.lru_cache(maxsize=512)
def _habit(seed: int, subject: int, action: int, variety: float) -> Habit:
    """What is a person's own in all they do, and in this action."""
    return Habit.of(Chance(seed, _PERSON, subject), variety * PERSON) + Habit.of(
        Chance(seed, _HABITUAL, subject, action), variety * HABITUAL
    )


def _chosen(every: Sequence[T], only: Sequence[int] | None) -> list[T]:
    return list(every) if only is None else [every[i] for i in only]


def _slices(length: NDArray[np.int64]) -> list[slice]:
    ends = length.cumsum().tolist()
    return [slice(end - frames, end) for end, frames in zip(ends, length.tolist(), strict=True)]
