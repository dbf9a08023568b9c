"""A live line on stderr while a network trains; nothing where stderr is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trellis.train import Training

_OFTEN = 0.1  # seconds: reading the loss waits for a GPU, so not every epoch does


@contextmanager
def training_bar(
    words: str, console: Console | None = None
) -> Iterator[Callable[[Training], None]]:
    """What `trellis.train.run` calls after each epoch: epoch, loss, accuracy, time left."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda training: None
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
        task = bar.add_task(words, total=None, state="")
        last = -_OFTEN

        def watch(training: Training) -> None:
            nonlocal last
            if time.monotonic() - last < _OFTEN and not training.done:
                return
            last = time.monotonic()
            loss, hits = float(training.loss.mean()), float(training.hits.mean())
            bar.update(
                task,
                total=training.epochs,
                completed=training.epochs_done,
                state=f"loss {loss:.3f}  training accuracy {100 * hits:.1f} %  left",
            )

        yield watch
