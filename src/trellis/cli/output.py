"""What commands print: results on stdout, progress on stderr."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

from rich.box import HORIZONTALS
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table

if TYPE_CHECKING:
    from ..paths.audit import Audit
    from ..training import Training

# Keeping stdout for results and stderr for one line, and terminals from what names hold.


# Control characters but the end of a line; what turns the direction of text; halves of pairs.
_ACTS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Run the user's model: what it prints goes to stderr."""
    with redirect_stdout(sys.stderr):
        yield


def plain(text: str) -> str:
    """Text that a terminal only shows: names of files and classes may hold what it would act on.

    >>> plain("walk\\x1b[2J") == "walk\\\\x1b[2J", plain("größer ≥ 0\\n")
    (True, 'größer ≥ 0\\n')
    """
    return _ACTS.sub(lambda found: ascii(found[0])[1:-1], text)


def say(*lines: object, to: TextIO | None = None) -> None:
    """Print lines, on stdout if no other file is given."""
    for line in lines or ("",):
        print(plain(str(line)), file=to)


class Screen(Console):
    """A console for tables and bars whose own codes reach a terminal, and nobody else's."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))


# What commands print: tables for people, JSON for programs.


NAME = 16  # the narrowest that a column of names may get


def console() -> Console:
    """On stdout. In a pipe or a log, as wide as the table is: nothing there is cut or folded."""
    found = Screen(file=sys.stdout, highlight=False, emoji=False, markup=False)
    if not found.is_terminal:
        found.width = 1000
    return found


def table(head: list[str], *, words: int = 1) -> Table:
    """A table whose first ``words`` columns are text and whose others are numbers."""
    made = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, header_style="bold")
    made.add_column(head[0], overflow="fold", min_width=min(NAME, len(head[0])))
    for place, name in enumerate(head[1:], 1):
        made.add_column(name, justify="left" if place < words else "right", no_wrap=True)
    return made


def show(made: Table, out: Console) -> None:
    """Print a table. Where the terminal is narrow names fold, but no digit is ever cut."""
    longest = max((len(str(cell)) for cell in made.columns[0].cells), default=0)
    whole = out.measure(made, options=out.options.update(max_width=1000)).minimum
    out.width = max(out.width, whole - max(longest - NAME, 0))
    out.print(made)


def print_audit(audit: Audit) -> None:
    """The audit's table, its summary and its words."""
    out = console()
    head, *layers, whole = audit.rows()
    made = table(head, words=2)
    for cells, layer in zip(layers, audit.layers, strict=True):
        made.add_row(*cells, style="red" if layer.dead or not layer.kept else "")
    made.add_section()
    made.add_row(*whole, style="bold")
    show(made, out)
    out.print()
    # The text of print(audit) after its table: one wording everywhere.
    out.print(str(audit).split("\n\n", 1)[1], soft_wrap=True)


def print_change(before: Audit, after: Audit) -> None:
    """A row per layer: what was kept and live before, and is now."""
    old = {layer.name: layer for layer in before.layers}
    head = ["layer", "shape", "connections", "kept before", "kept", "live", "dead"]
    made = table(head, words=2)
    for layer in after.layers:
        counts = (layer.total, old[layer.name].kept, layer.kept, layer.live, layer.dead)
        shape = "x".join(map(str, layer.shape))
        style = "red" if layer.dead or not layer.kept else ""
        made.add_row(layer.name, shape, *(f"{n:,}" for n in counts), style=style)
    made.add_section()
    sums = (after.total, before.kept, after.kept, after.live, after.dead)
    made.add_row("whole", "", *(f"{n:,}" for n in sums), style="bold")
    out = console()
    show(made, out)
    out.print()
    for when, audit in (("before", before), ("after", after)):
        out.print(
            f"{when}: {audit.kept:,} kept, {audit.live:,} live ({percent(audit.live_fraction)}), "
            f"outputs reached: {audit.outputs_reached:,} of {audit.outputs:,}",
            soft_wrap=True,
        )
    for text in after.words():
        out.print(f"- {text}", soft_wrap=True)


def print_json(value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"))  # the one control character that JSON leaves as it is


def percent(fraction: float) -> str:
    """Percent to one place. All is 100 % and none is 0 %, and nothing else is.

    >>> percent(0.42), percent(0.06957), percent(1.0), percent(0.0)
    ('42.0 %', '7.0 %', '100.0 %', '0.0 %')
    >>> percent(0.99999), percent(0.00001)
    ('> 99.9 %', '< 0.1 %')
    """
    shown = f"{100 * fraction:.1f} %"
    if fraction < 1 and shown == "100.0 %":
        return "> 99.9 %"
    return "< 0.1 %" if fraction > 0 and shown == "0.0 %" else shown


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun.

    >>> counted(1, "class", "classes"), counted(2, "class", "classes"), counted(1200, "frame")
    ('1 class', '2 classes', '1,200 frames')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


_REDRAW = 0.1  # seconds: reading the loss waits for a GPU, so not every epoch does
_LOG_EVERY = 30.0  # seconds between two lines of a log


class ProgressLog:
    """Progress for a log: a line when a phase starts, then one at least every 30 seconds.

    A thread writes lines while a step takes longer than that, so that a log is never silent.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase, self._since = "preparing", time.monotonic()
        self._last = self._told = self._since  # the last line, and the last with a state
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> ProgressLog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def tell(self, phase: str, state: Callable[[], str]) -> None:
        """Report progress; ``state`` is called only if a line is due."""
        with self._lock:
            now = time.monotonic()
            if phase != self._phase:
                self._phase, self._since = phase, now
            elif now - self._told < 0.8 * _LOG_EVERY:
                return
            self._told = now
            self._write(state())

    def _write(self, state: str) -> None:
        self._last = time.monotonic()
        text = f"{self._phase}: {state}"
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _repeat(self) -> None:
        while not self._over.wait(min(_LOG_EVERY, 1.0)):
            with self._lock:
                now = time.monotonic()
                if now - self._last > _LOG_EVERY:
                    self._write(f"working for {now - self._since:.0f} s")


@contextmanager
def training_bar(
    words: str, console: Console | None = None
) -> Iterator[Callable[[Training], None]]:
    """Show epoch, loss, accuracy and time left of one training; yield its ``watch`` function."""
    with phases_bar(console) as watch:
        yield lambda training: watch(words, training)


@contextmanager
def phases_bar(console: Console | None = None) -> Iterator[Callable[[str, Training], None]]:
    """Show a training of several phases: a bar for each on a terminal, lines elsewhere."""
    console = console or Screen(stderr=True)
    if not console.is_terminal:
        with ProgressLog(console) as log:

            def line(phase: str, training: Training) -> None:
                where = f"epoch {training.epochs_done:,} of {training.epochs:,}"
                log.tell(phase, lambda: f"{where}  {_state(training)}")

            yield line
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
        last = -_REDRAW

        def watch(phase: str, training: Training) -> None:
            nonlocal last
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=None, state="")
            elif time.monotonic() - last < _REDRAW and not training.done:
                return
            last = time.monotonic()
            bar.update(
                tasks[phase],
                total=training.epochs,
                completed=training.epochs_done,
                state=f"{_state(training)}  left",
            )

        yield watch


def _state(training: Training) -> str:
    loss, hits = float(training.loss.mean()), float(training.hits.mean())
    return f"loss {loss:.3f}  training accuracy {100 * hits:.1f} %"
