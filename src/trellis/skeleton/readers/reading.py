"""Going through what a source lists: progress, what is left out, and the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from ...errors import TrellisError
from ...limits import check_bytes
from ..layout import Layout
from ..skeletons import Frames, Indices, LeftOut, Skeletons
from .folds import Folds
from .text import shown

FEWER = "give fewer recordings, or fewer frames a second"
Found = Sequence[tuple["Entry", Frames]]
Divide = Callable[[Sequence[str], Indices], Folds]


@dataclass(frozen=True)
class Entry:
    """A recording that a source lists: where it is, its class, and what its folds go by."""

    name: str
    path: Path
    label: int
    group: str = ""


@dataclass
class Reading:
    """One call of :func:`trellis.skeleton.load`: how it takes faults, and what it left out."""

    source: str
    skip_bad: bool = False
    progress: bool = False
    left_out: list[LeftOut] = field(default_factory=list)

    def fault(self, name: str, error: TrellisError) -> None:
        """Something listed cannot be used: raise, or leave it out and go on."""
        if not self.skip_bad:
            raise error
        self.left_out.append(LeftOut(shown(name), str(error)))

    def once(self, entries: Iterable[tuple[str, Entry]]) -> list[Entry]:
        """Without those listed twice; each entry comes with the place that lists it."""
        first: dict[str, tuple[str, Entry]] = {}
        for place, entry in entries:
            if entry.name in first:
                told = f"{place}: {shown(entry.name)} is listed twice (see {first[entry.name][0]})"
                self.fault(entry.name, TrellisError(told))
            else:
                first[entry.name] = place, entry
        return [entry for _, entry in first.values()]

    def labelled(self, classes: Sequence[str], entries: Iterable[Entry], place: str) -> None:
        """Every class has a recording, or is a fault: a label without data."""
        used = {entry.label for entry in entries}
        for label, name in enumerate(classes):
            if label not in used:
                told = f"{place}: the label {shown(name)} has no recording"
                self.fault(f"label {name}", TrellisError(told))

    def frames(
        self, entries: Sequence[Entry], read: Callable[[Entry], Frames]
    ) -> list[tuple[Entry, Frames]]:
        """Read each; with a bar on stderr, where progress was asked for and somebody is there."""
        found = []
        screen = Console(stderr=True)
        with Progress(
            console=screen, transient=True, disable=not (self.progress and screen.is_terminal)
        ) as bar:
            task = bar.add_task("Reading recordings", total=len(entries))
            size = 0
            for entry in entries:
                try:
                    found.append((entry, read(entry)))
                except TrellisError as error:
                    self.fault(entry.name, error)
                else:
                    size += found[-1][1].nbytes
                    check_bytes(size, f"the recordings of {shown(self.source)}", FEWER)
                bar.advance(task)
        return found

    def result(
        self,
        found: Found,
        classes: Sequence[str],
        layout: Layout,
        folds: Divide,
    ) -> Skeletons:
        """Put together what was read; ``folds`` makes them from the groups and the labels."""
        if not found:
            why = f": {self.left_out[0].why}" if self.left_out else ""
            raise TrellisError(
                f"{shown(self.source)}: not one recording could be used; "
                f"{len(self.left_out):,} left out{why}"
            )
        labels, made = _divided(found, folds)
        if unknown := self._untrained(found, classes, labels, made):
            found = [one for one, label in zip(found, labels, strict=True) if label not in unknown]
            labels, made = _divided(found, folds)
        for fold in made:
            for side, indices in (("train", fold.train), ("test", fold.test)):
                if len(indices) == 0:
                    raise TrellisError(
                        f"{shown(self.source)}: there is nothing to {side} on in the fold "
                        f"{fold.name!r} ({len(found):,} recordings read, {len(self.left_out):,} "
                        "left out): every class wants a recording to train on and one to test on"
                    )
        return Skeletons(
            source=self.source,
            sequences=tuple(frames for _, frames in found),
            labels=labels,
            classes=tuple(classes),
            names=tuple(entry.name for entry, _ in found),
            layout=layout,
            folds=made,
            left_out=tuple(self.left_out),
        )

    def _untrained(
        self, found: Found, classes: Sequence[str], labels: Indices, made: Folds
    ) -> set[int]:
        """Classes of recordings to test on of which there are none to train on: all faults.

        Where each group is tested on in turn, by people say, a class that one alone has is part
        of the protocol, and no fault.
        """
        if len(made) != 1 or len(made[0].train) == 0:
            return set()
        unknown = set(labels[made[0].test].tolist()) - set(labels[made[0].train].tolist())
        for entry, _ in found:
            if entry.label in unknown:
                told = (
                    f"{shown(self.source)}: {shown(entry.name)} is to be tested on, and no "
                    f"recording of its class, {shown(classes[entry.label])}, is there to train on: "
                    "add some, or take the class out"
                )
                self.fault(entry.name, TrellisError(told))
        return unknown


def _divided(found: Found, folds: Divide) -> tuple[Indices, Folds]:
    labels = np.array([entry.label for entry, _ in found], np.int64)
    return labels, folds([entry.group for entry, _ in found], labels)
