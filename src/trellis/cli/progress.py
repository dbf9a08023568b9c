"""A live line on stderr while a network trains; nothing where stderr is no terminal."""

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

from trellis.train import Training

_OFTEN = 0.1  # seconds: reading the loss waits for a GPU, so not every epoch does


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
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda phase, training: None
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
            loss, hits = float(training.loss.mean()), float(training.hits.mean())
            bar.update(
                tasks[phase],
                total=training.epochs,
                completed=training.epochs_done,
                state=f"loss {loss:.3f}  training accuracy {100 * hits:.1f} %  left",
            )

        yield watch
