"""One performance of an action: from its key poses to poses over time."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .actions import ACTIONS, Action
from .hand import ANGLES, ARM, LIMITS, SIZE, Chance, Floats

# Smooth movement through given poses.


def through(times: Floats, values: Floats, at: Floats) -> Floats:
    """Interpolate values at increasing ``times`` smoothly and without overshoot.

    This is the monotone cubic of Fritsch and Carlson: the movement rests at turning points and
    between equal values, and passes through all other keys without stopping.

    Shapes: values (keys, n), times (keys,) -> (len(at), n).

    >>> through(np.array([0.0, 1, 2]), np.array([[0.0], [4], [0]]), np.array([0.5, 1, 1.5]))[:, 0]
    array([2.5, 4. , 2.5])
    """
    return _Between.of(times, at)(values)


@dataclass(frozen=True, eq=False)
class _Between:
    """The keys around each moment and the weights of their values and tangents, (moments, 1)."""

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
        """Return the values at the moments: (keys, n) -> (moments, n)."""
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
    """Return a smooth path (frames, n) through knots (knots, n) evenly spaced in time."""
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
    """One repetition of an action by a subject; all are counted from 0."""

    subject: int
    action: int
    repetition: int
    train: bool

    @property
    def name(self) -> str:
        """The name as in FPHA: ``subject_1/open_bottle/1``."""
        return f"subject_{self.subject + 1}/{ACTIONS[self.action].name}/{self.repetition + 1}"


def takes(chance: Chance) -> list[Take]:
    """Return all 1,175 takes, by subject, action and repetition."""
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
    """Personal differences: offset of poses (28,), size and duration of movements, view (3,)."""

    posture: Floats
    reach: float
    pace: float
    view: Floats

    @classmethod
    def of(cls, chance: Chance, strength: float) -> Habit:
        """Return a random habit; ``strength`` 1 is the usual difference between people."""
        return cls(
            posture=strength * POSTURE * chance.normal(SIZE),
            reach=max(1 + 0.16 * strength * float(chance.normal()), _LEAST),
            pace=max(1 + 0.2 * strength * float(chance.normal()), _LEAST),
            view=strength * VIEW * chance.normal(3),
        )

    def __add__(self, other: Habit) -> Habit:
        """Return both habits combined: offsets add up, factors multiply."""
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
    """Return the number of frames of each recording, which follow the distribution of FPHA.

    Recordings with more beats have more frames. Integer arithmetic gives the same result on every
    machine.

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
    """A planned movement: poses (keys, 28) at times (keys,) in beats, and the habit."""

    times: Floats
    poses: Floats
    habit: Habit

    @property
    def beats(self) -> float:
        """The duration in beats."""
        return float(self.times[-1] - self.times[0])


def plan(action: Action, habit: Habit, chance: Chance) -> Plan:
    """Return a random plan: repetitions, durations and hesitations."""
    every, poses = action.keys
    last = len(every) - 1
    order = np.array([0, *[*range(1, last)] * chance.whole(*action.times), last])
    beats, keys = every[order], len(order)
    beats *= np.maximum(1 + TIMING * chance.normal(keys), 0.25)
    beats += (chance.uniform(0, 1, keys) < HESITATION) * chance.uniform(0.3, 1.5, keys)
    return Plan(beats.cumsum() * habit.pace, poses[order], habit)


def poses(plan: Plan, frames: int, chance: Chance) -> Floats:
    """Return the poses of a plan, (frames, 28), within the limits of a hand.

    A recording starts while the hand reaches out and ends while it moves back, at random moments.
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
    """Return yaw, pitch and roll of the camera on the moving head, (frames, 3)."""
    sway = 0.15 * VIEW * wandering(chance.normal(2 + frames // 50, 3), frames)
    return np.clip(plan.habit.view + sway, -3 * VIEW, 3 * VIEW)
