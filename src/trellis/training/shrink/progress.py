"""Progress of a run: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_REDRAW = 0.2  # seconds; reading the loss waits for a GPU
_LINE = 30.0  # seconds between two lines of a log


class Watch(Protocol):
    """Shows the progress of a run."""

    def say(self, text: str) -> None:
        """Show a line."""

    def due(self) -> bool:
        """Return whether `show` would show anything now."""

    def show(self, phase: str, step: int, steps: int, state: str) -> None:
        """Show that ``step`` of ``steps`` steps are done."""

    def close(self) -> None:
        """Show the end."""


class Silent:
    """Show nothing."""

    def say(self, text: str) -> None:
        pass

    def due(self) -> bool:
        return False

    def show(self, phase: str, step: int, steps: int, state: str) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """Write lines to stderr: one when a phase begins, then one every 30 seconds."""

    def __init__(self) -> None:
        self._phase, self._last, self._began = "", 0.0, time.monotonic()
        self._first = 0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def due(self) -> bool:
        return time.monotonic() - self._last > _LINE

    def show(self, phase: str, step: int, steps: int, state: str) -> None:
        now = time.monotonic()
        if not self._phase:
            self._began, self._first = now, step
        elif phase == self._phase and step < steps and not self.due():
            return
        self._phase, self._last = phase, now
        done = step - self._first
        left = f", {in_time((now - self._began) / done * (steps - step))} left" if done > 0 else ""
        self.say(f"{phase}: step {step:,} of {steps:,}, {state}{left}")

    def close(self) -> None:
        pass


class Bar:
    """Draw a bar on a terminal."""

    def __init__(self, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeRemainingColumn(),
            console=console,
        )
        self._bar.start()
        self._task: Any = None
        self._last = 0.0

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def due(self) -> bool:
        return time.monotonic() - self._last > _REDRAW

    def show(self, phase: str, step: int, steps: int, state: str) -> None:
        self._last = time.monotonic()
        if self._task is None or step == 0:
            self._task = self._bar.add_task(phase, total=steps, completed=step, state=state)
        self._bar.update(
            self._task, description=phase, total=steps, completed=step, state=f"{state}  left"
        )

    def close(self) -> None:
        self._bar.stop()


def watch(wanted: bool) -> Watch:
    """Return a bar on a terminal, lines elsewhere, or nothing."""
    if not wanted:
        return Silent()
    console = Console(stderr=True)
    return Bar(console) if console.is_terminal else Lines()


def in_time(seconds: float) -> str:
    """Return a duration as a clock would.

    >>> in_time(7), in_time(95), in_time(4000)
    ('7 s', '1 min 35 s', '1 h 6 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
