"""hands45: 1,175 synthetic recordings of 45 hand actions, in the format of FPHA.

Key poses of an action become poses over time, as one person performs it once. A depth camera then
records them, with its errors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....errors import TrellisError
from ..dataset import Fold, Frames, Skeletons
from .actions import ACTIONS, Action
from .hand import ANGLES, ARM, LAYOUT, LIMITS, SIZE, Anatomy, Chance, Floats, hand, placed, viewed

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
