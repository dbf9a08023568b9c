"""One person doing one action once: from a programme to poses over time."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .actions import ACTIONS, Action
from .chance import Chance, Floats
from .hand import ANGLES, ARM, LIMITS, SIZE

# Smooth movement through given poses.


def through(times: Floats, values: Floats, at: Floats) -> Floats:
    """Values (keys, n) at rising ``times`` (keys,) -> (len(at), n), smooth and without overshoot.

    A monotone cubic (Fritsch and Carlson): at a turning point the movement rests, between two keys
    of the same value it stays, elsewhere it passes through a key without stopping. So four keys
    around a circle give a round one.

    >>> through(np.array([0.0, 1, 2]), np.array([[0.0], [4], [0]]), np.array([0.5, 1, 1.5]))[:, 0]
    array([2.5, 4. , 2.5])
    """
    return _Between.of(times, at)(values)


@dataclass(frozen=True, eq=False)
class _Between:
    """Which two keys each moment lies between, and how much it takes of them and of their tangents:
    columns (moments, 1). The same for all that moves at those times."""

    gaps: Floats
    left: NDArray[np.int64]
    gap: Floats
    rise: Floats
    leaving: Floats
    arriving: Floats

    @classmethod
    def of(cls, times: Floats, at: Floats) -> _Between:
        gaps = (times[1:] - times[:-1])[:, None]
        found = np.searchsorted(times, at, side="right") - 1
        left = np.minimum(np.maximum(found, 0), len(times) - 2)
        gap = gaps[left]
        t = np.minimum(np.maximum((at[:, None] - times[left, None]) / gap, 0), 1)
        square, cube = t * t, t * t * t
        rise = 3 * square - 2 * cube
        return cls(gaps, left, gap, rise, cube - 2 * square + t, cube - square)

    def __call__(self, values: Floats) -> Floats:
        """Values at the keys, (keys, n) -> at the moments, (moments, n)."""
        tangents = _tangents((values[1:] - values[:-1]) / self.gaps)
        left, right = self.left, self.left + 1
        bend = self.leaving * tangents[left]
        bend += self.arriving * tangents[right]
        bend *= self.gap
        start = values[left]
        found = values[right]
        found -= start
        found *= self.rise
        found += start
        found += bend
        return found


def _tangents(slopes: Floats) -> Floats:
    before, after = slopes[:-1], slopes[1:]
    passing = before * after > 0
    # The harmonic mean of the slopes on both sides, where they agree in sign.
    total = np.where(passing, before + after, 1.0)
    inner = np.where(passing, 2 * before * after / total, 0.0)
    return np.concatenate([slopes[:1], inner, slopes[-1:]])


def wandering(knots: Floats, frames: int) -> Floats:
    """Random knots (knots, n), spread evenly over time -> a smooth path (frames, n)."""
    return _evenly(len(knots), frames)(knots)


@functools.lru_cache(maxsize=1024)  # many recordings are of the same length
def _evenly(knots: int, frames: int) -> _Between:
    return _Between.of(np.linspace(0, 1, knots), np.linspace(0, 1, frames))


# The takes of all subjects, and which of them are training recordings.


SUBJECTS = 6
# Everybody does everything twice to train on and twice to test on. Of the 270 pairs of person and
# action 60 have one more to train on and 35 one more to test on: 600 and 575, as FPHA's 1:1 split.
MORE_TRAIN, MORE_TEST = 60, 35


class Take(NamedTuple):
    """The ``repetition``-th time that ``subject`` does ``action``; all count from 0."""

    subject: int
    action: int
    repetition: int
    train: bool

    @property
    def name(self) -> str:
        """As a path, in FPHA's manner: ``subject_1/open_bottle/1``."""
        return f"subject_{self.subject + 1}/{ACTIONS[self.action].name}/{self.repetition + 1}"


def takes(chance: Chance) -> list[Take]:
    """All 1,175, by subject, action and repetition."""
    pairs = [(subject, action) for subject in range(SUBJECTS) for action in range(len(ACTIONS))]
    more = chance.shuffled(len(pairs)).tolist()
    plan = []
    for (subject, action), luck in zip(pairs, more, strict=True):
        parts = [True, False, True, False]
        parts += [True] * (luck < MORE_TRAIN) + [False] * (0 <= luck - MORE_TRAIN < MORE_TEST)
        plan += [Take(subject, action, i, train) for i, train in enumerate(parts)]
    return plan


# What is a person's own: how they hold themselves, how far and fast they move, where they look.


# How far a pose lies from the textbook's, one deviation: finger angles and arm angles in degrees,
# places in millimetres. Abduction hardly varies.
_FINGER = np.tile([7.0, 2.5, 8.0, 5.0], 5)
_ARM = np.array([8.0, 4.0, 10.0, 8.0, 9.0, 25.0, 25.0, 25.0])
POSTURE: Floats = np.concatenate([_FINGER, _ARM])
assert POSTURE.shape == (SIZE,) and len(_ARM) == len(ARM) and len(_FINGER) == ANGLES

VIEW = np.array([12.0, 10.0, 7.0])  # yaw, pitch and roll of the head, degrees
_LEAST = 0.1  # times the usual: nobody moves backwards in time


@dataclass(frozen=True)
class Habit:
    """An offset of every pose (28,), how large and how slow movements are, and the view (3,)."""

    posture: Floats
    reach: float
    pace: float
    view: Floats

    @classmethod
    def of(cls, chance: Chance, strength: float) -> Habit:
        """A habit drawn at random; ``strength`` 1 is as much as people differ from one another."""
        return cls(
            posture=strength * POSTURE * chance.normal(SIZE),
            reach=max(1 + 0.16 * strength * float(chance.normal()), _LEAST),
            pace=max(1 + 0.2 * strength * float(chance.normal()), _LEAST),
            view=strength * VIEW * chance.normal(3),
        )

    def __add__(self, other: Habit) -> Habit:
        """Both at once: offsets add up, factors multiply."""
        return Habit(
            self.posture + other.posture,
            self.reach * other.reach,
            self.pace * other.pace,
            self.view + other.view,
        )


# How many frames recordings have: as in FPHA, 7 to 1,151, half of them below 77.


# _SHARES[i] of a thousand recordings have fewer than _FRAMES[i] frames.
_SHARES = np.array([0, 50, 100, 250, 500, 750, 900, 950, 990, 1000])
_FRAMES = np.array([7, 22, 30, 50, 77, 108, 144, 176, 255, 1151])


def lengths(beats: Floats) -> NDArray[np.int64]:
    """Frames (recordings,): the longer it takes in beats, the more, as the distribution has it.

    Interpolated in whole numbers, so that no machine can round one of them otherwise.

    >>> lengths(np.array([3.0, 1.0, 2.0, 4.0, 5.0]))
    array([  77,    7,   50,  108, 1151])
    """
    longest = len(beats) - 1
    rank = np.argsort(np.argsort(beats, kind="stable"), kind="stable")
    place, shares = 1000 * rank, longest * _SHARES
    right = np.clip(np.searchsorted(shares, place), 1, len(shares) - 1)
    before, after = place - shares[right - 1], shares[right] - place
    gap = before + after
    frames = (_FRAMES[right - 1] * after + _FRAMES[right] * before + gap // 2) // gap
    return np.asarray(frames, np.int64)


TIMING = 0.35  # how much the beats of a movement differ from its programme's
HESITATION = 0.12  # how often somebody stops before a key
DRIFT = 0.3  # how far a pose wanders in a recording, in deviations of posture
TREMOR = 0.4  # degrees at a joint


@dataclass(frozen=True)
class Plan:
    """What will be done: poses (keys, 28) at times (keys,) in beats, by whom (habit)."""

    times: Floats
    poses: Floats
    habit: Habit

    @property
    def beats(self) -> float:
        """How long it takes."""
        return float(self.times[-1] - self.times[0])


def plan(action: Action, habit: Habit, chance: Chance) -> Plan:
    """Choose how often the action is repeated, how long each part takes, where it hesitates."""
    every, poses = action.keys
    last = len(every) - 1
    order = np.array([0, *[*range(1, last)] * chance.whole(*action.times), last])
    beats, keys = every[order], len(order)
    beats *= np.maximum(1 + TIMING * chance.normal(keys), 0.25)
    beats += (chance.uniform(0, 1, keys) < HESITATION) * chance.uniform(0.3, 1.5, keys)
    return Plan(beats.cumsum() * habit.pace, poses[order], habit)


def poses(plan: Plan, frames: int, chance: Chance) -> Floats:
    """Return the poses of a plan, (frames, 28), within the limits of a hand.

    The recording starts while the hand reaches out and ends while it goes back: how much of both
    is seen differs.
    """
    reach = plan.times[1] - plan.times[0]
    leave = plan.times[-1] - plan.times[-2]
    start = plan.times[0] + reach * float(chance.uniform(0, 1))
    end = plan.times[-1] - leave * float(chance.uniform(0, 1))
    done = through(plan.times, plan.poses, np.linspace(start, end, frames))

    middle = plan.poses[1:-1].mean(axis=0)
    done[:, ANGLES:] += (plan.habit.reach - 1) * (done - middle)[:, ANGLES:]
    done += plan.habit.posture
    done += DRIFT * POSTURE * wandering(chance.normal(3 + frames // 60, SIZE), frames)
    done[:, : ANGLES + 3] += TREMOR * chance.normal(frames, ANGLES + 3)
    np.maximum(done, LIMITS[:, 0], out=done)
    return np.minimum(done, LIMITS[:, 1], out=done)


def view(plan: Plan, frames: int, chance: Chance) -> Floats:
    """Yaw, pitch and roll of the camera on the head, which is never quite still: (frames, 3)."""
    sway = 0.15 * VIEW * wandering(chance.normal(2 + frames // 50, 3), frames)
    return np.clip(plan.habit.view + sway, -3 * VIEW, 3 * VIEW)
