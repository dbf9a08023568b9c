"""Trainings that are killed on the way."""

from __future__ import annotations

from collections.abc import Callable

from trellis.training import Training


class Killed(Exception):
    pass


def kill_after(epochs: int) -> Callable[[Training], None]:
    """What to `watch` a training with, for it to be killed after so many epochs."""

    def watch(running: Training) -> None:
        if running.epochs_done == epochs:
            raise Killed

    return watch
