"""A live line on stderr while a network trains; where that is no terminal, a line a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from trellis.cli.aside import Screen
from trellis.train import Training

_OFTEN = 0.1  # seconds: reading the loss waits for a GPU, so not every epoch does
_SELDOM = 60.0  # seconds between two lines of a log, and before its first


@contextmanager
def training_bar(
    words: str, console: Console | None = None
) -> Iterator[Callable[[Training], None]]:
    """What `trellis.train.run` calls after each epoch: epoch, loss, accuracy, time left."""
    with phases_bar(console) as watch:
        yield lambda training: watch(words, training)


@contextmanager
def phases_bar(console: Console | None = None) -> Iterator[Callable[[str, Training], None]]:
    """The same for a training in several phases: a line for each, under its name."""
    console = console or Screen(stderr=True)
    if not console.is_terminal:
        yield _logged(console)
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeRemainingColumn(),
        console=console,
    )
    with bar:
        tasks: dict[str, TaskID] = {}
        last = -_OFTEN

        def watch(phase: str, training: Training) -> None:
            nonlocal last
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=None, state="")
            elif time.monotonic() - last < _OFTEN and not training.done:
                return
            last = time.monotonic()
            bar.update(
                tasks[phase],
                total=training.epochs,
                completed=training.epochs_done,
                state=f"{_state(training)}  left",
            )

        yield watch


def _logged(console: Console) -> Callable[[str, Training], None]:
    last = time.monotonic()

    def watch(phase: str, training: Training) -> None:
        nonlocal last
        if time.monotonic() - last < _SELDOM:
            return
        last = time.monotonic()
        where = f"{phase}: epoch {training.epochs_done:,} of {training.epochs:,}"
        console.print(f"{where}  {_state(training)}", soft_wrap=True, markup=False, highlight=False)

    return watch


def _state(training: Training) -> str:
    loss, hits = float(training.loss.mean()), float(training.hits.mean())
    return f"loss {loss:.3f}  training accuracy {100 * hits:.1f} %"
