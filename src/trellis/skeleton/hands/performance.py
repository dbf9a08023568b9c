"""One person doing one action once: from a programme to poses over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .actions import Action
from .chance import Chance, Floats
from .curve import through, wandering
from .habits import POSTURE, VIEW, Habit
from .pose import ANGLES, LIMITS, SIZE

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
    """The plan, carried out in so many frames: (frames, 28), within what a hand can do.

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
