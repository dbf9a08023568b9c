"""What a reader is, the registry of readers, and `load_dataset`, which finds one by its name.

The built-in readers and those of users register in the same way, with `register_reader`.
An installed package can offer readers through the entry point group ``trellis.readers``. Such a
package is imported only when a source names its reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from unicodedata import normalize

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import Progress

from ....errors import TrellisError
from ....limits import check_bytes
from ....plugins import Registry
from ..dataset import Fold, Frames, Indices, LeftOut, Skeletons
from ..layouts import Layout
from .text import shown

# Folds: how recordings are divided into training and test recordings.


Folds = tuple[Fold, ...]
HALVES = "drawn halves"
EXPLAINED = (  # what the name is too short to say
    "drawn halves: no split is given, so about half of each class is drawn, by the names of the "
    "recordings; few change sides when others are added"
)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9/]*)", re.DOTALL)


def split(name: str, test: Sequence[bool]) -> Folds:
    """Return one fold; ``test`` says which recordings are test recordings.

    >>> split("given", [False, True, False])
    (Fold(name='given', train=array([0, 2]), test=array([1])),)
    """
    chosen = np.asarray(test, bool)
    return (Fold(name, _where(~chosen), _where(chosen)),)


def held_out(groups: Sequence[str]) -> Folds:
    """Return one fold per group, by name, that tests on the group and trains on the others.

    >>> [(fold.name, fold.test.tolist()) for fold in held_out(["anna", "bela", "anna"])]
    [('anna', [0, 2]), ('bela', [1])]
    """
    return tuple(
        fold
        for group in sorted(set(groups))
        for fold in split(group, [other == group for other in groups])
    )


def drawn_halves(names: Sequence[str], labels: Indices) -> Folds:
    """Return one fold, drawn by a hash of each recording's name: the same on every machine.

    Consecutive numbers, ``wave/4.csv`` and ``wave/5.csv``, fall on different sides, so numbered
    recordings are halved. Other names fall by chance. If a side would have less than a quarter of
    a class, recordings change sides, in the order of their names. Adding a recording therefore
    moves at most one other, of the same class. A class of one recording is trained on.

    >>> fold, = drawn_halves([f"wave/{number}.csv" for number in range(6)], np.zeros(6, np.int64))
    >>> len(fold.train), len(fold.test)
    (3, 3)
    """
    test = np.array([_drawn(name) for name in names], bool)
    for label in np.unique(labels):
        mine = np.flatnonzero(labels == label)
        if len(mine) == 1:
            test[mine] = False
            continue
        sides = [mine[~test[mine]], mine[test[mine]]]
        few, many = sorted(sides, key=len)
        short = max(1, len(mine) // 4) - len(few)
        for index in sorted(many, key=lambda i: _order(names[i]))[: max(0, short)]:
            test[index] = not test[index]
    return split(HALVES, list(test))


def _drawn(name: str) -> bool:
    """Return whether a recording of that name is a test recording."""
    before, number, after = _parts(name)
    toss = f"{before}{number // 2}{after}" if number >= 0 else name
    coin = sha256(normalize("NFC", toss).encode("utf-8", "backslashreplace")).digest()[0]
    return bool((coin ^ max(number, 0)) & 1)


def _order(name: str) -> tuple[str, int, str, str]:
    return *_parts(name), name


def _parts(name: str) -> tuple[str, int, str]:
    """Split a name around its last number, or -1 without one."""
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2]), found[3]) if found else (name, -1, "")


def _where(chosen: ArrayLike) -> Indices:
    return np.flatnonzero(chosen).astype(np.int64)


# One call of load_dataset.


FEWER = "give fewer recordings, or fewer frames a second"
Found = Sequence[tuple["Entry", Frames]]
Divide = Callable[[Sequence[str], Indices], Folds]


@dataclass(frozen=True)
class Entry:
    """A recording that a source lists.

    Attributes:
        name: Its name within the source, unique.
        path: The file that holds it.
        label: Its class, an index into the reader's classes.
        group: What the folds are made from: a side (train, test), a subject, a view.
    """

    name: str
    path: Path
    label: int
    group: str = ""


@dataclass
class Reading:
    """One call of `load_dataset`: what a reader needs besides the path and the protocol.

    A reader lists its recordings as `Entry`, reads them with `frames` and returns `result`. A
    recording that cannot be used raises `TrellisError`, or, with ``skip_bad``, is left out.

    Attributes:
        source: The source as it was given.
        skip_bad: Whether bad recordings are left out instead of raising.
        progress: Whether to show a progress bar on stderr.
        left_out: What was left out so far, and why.
    """

    source: str
    skip_bad: bool = False
    progress: bool = False
    left_out: list[LeftOut] = field(default_factory=list)

    def fault(self, name: str, error: TrellisError) -> None:
        """Raise the error, or, with ``skip_bad``, leave out the recording ``name``."""
        if not self.skip_bad:
            raise error
        self.left_out.append(LeftOut(shown(name), str(error)))

    def once(self, entries: Iterable[tuple[str, Entry]]) -> list[Entry]:
        """Drop entries that are listed twice; each comes with the place that lists it."""
        first: dict[str, tuple[str, Entry]] = {}
        for place, entry in entries:
            if entry.name in first:
                told = f"{place}: {shown(entry.name)} is listed twice (see {first[entry.name][0]})"
                self.fault(entry.name, TrellisError(told))
            else:
                first[entry.name] = place, entry
        return [entry for _, entry in first.values()]

    def labelled(self, classes: Sequence[str], entries: Iterable[Entry], place: str) -> None:
        """Report every class that has no recording, as `fault` does; ``place`` is the listing."""
        used = {entry.label for entry in entries}
        for label, name in enumerate(classes):
            if label not in used:
                told = f"{place}: the label {shown(name)} has no recordings"
                self.fault(f"label {name}", TrellisError(told))

    def frames(
        self, entries: Sequence[Entry], read: Callable[[Entry], Frames]
    ) -> list[tuple[Entry, Frames]]:
        """Read every entry.

        Args:
            entries: What the source lists.
            read: Returns (frames, joints, 3) in float32 for an entry, or raises `TrellisError`.

        Returns:
            The entries that could be read, each with its frames.

        Raises:
            TrellisError: If ``read`` does and ``skip_bad`` is False, or if all recordings
                together need too much memory.
        """
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
        folds: Divide | None = None,
    ) -> Skeletons:
        """Put together what was read.

        Args:
            found: Entries with their frames, such as `frames` returns.
            classes: The names of the classes, by label.
            layout: The joints and bones of every recording.
            folds: Makes the folds from the groups and the labels of the entries. By default about
                half of each class is drawn for testing, by the names of the recordings.

        Returns:
            The set of recordings.

        Raises:
            TrellisError: If no recording could be read, if a fold has nothing to train or to test
                on, or if a test class has no training recordings.
        """
        if not found:
            why = f": {self.left_out[0].why}" if self.left_out else ""
            raise TrellisError(
                f"{shown(self.source)}: no recording could be read; "
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
                        "left out); give each class a training and a test recording"
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
        """Return the test classes without training recordings; each recording is a fault.

        With several folds, such as one per person, a class that only one person has belongs to
        the protocol.
        """
        if len(made) != 1 or len(made[0].train) == 0:
            return set()
        unknown = set(labels[made[0].test].tolist()) - set(labels[made[0].train].tolist())
        for entry, _ in found:
            if entry.label in unknown:
                told = (
                    f"{shown(self.source)}: the test recording {shown(entry.name)} is of the class "
                    f"{shown(classes[entry.label])}, which has no training recordings; add some, "
                    "or remove the class"
                )
                self.fault(entry.name, TrellisError(told))
        return unknown


def _divided(found: Found, folds: Divide | None) -> tuple[Indices, Folds]:
    labels = np.array([entry.label for entry, _ in found], np.int64)
    if folds is None:
        return labels, drawn_halves([entry.name for entry, _ in found], labels)
    return labels, folds([entry.group for entry, _ in found], labels)


# Labels that a listing gives as numbers.


class Meanings:
    """Numeric labels and the names of their actions, one to one, collected line by line.

    >>> meanings = Meanings()
    >>> meanings.learn(0, "grab", "list:1"); meanings.learn(1, "tap", "list:2")
    >>> meanings.learn(1, "grab", "list:3")
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: list:3: label 1 is grab here, but tap in list:2
    >>> meanings.classes()
    ['grab', 'tap']
    """

    def __init__(self) -> None:
        self.actions: dict[int, tuple[str, str]] = {}  # by label, with the place that said so
        self.labels: dict[str, tuple[int, str]] = {}

    def learn(self, label: int, action: str, place: str) -> None:
        """Add a pair; raise if it contradicts an earlier line."""
        if self.actions.get(label, (action, ""))[0] != action:
            known, where = self.actions[label]
            raise TrellisError(
                f"{place}: label {label} is {shown(action)} here, but {shown(known)} in {where}"
            )
        if self.labels.get(action, (label, ""))[0] != label:
            other, where = self.labels[action]
            raise TrellisError(
                f"{place}: {shown(action)} has the label {label} here, but {other} in {where}"
            )
        self.actions.setdefault(label, (action, place))
        self.labels.setdefault(action, (label, place))

    def classes(self, first: int = 0) -> list[str]:
        """Return names by label, from ``first`` to the largest; unnamed ones are numbers."""
        last = max(self.actions, default=first - 1)
        return [self.actions.get(n, (str(n), ""))[0] for n in range(first, last + 1)]


# The registry: which function reads ``fpha:PATH``, ``csv:PATH`` and so on.


Read = Callable[[Path, str, Reading], Skeletons]


@dataclass(frozen=True)
class Reader:
    """How one kind of source is read; the first protocol is the default."""

    read: Read
    protocols: tuple[str, ...]
    about: str
    takes_path: bool


_MODULES = {
    "csv": "csv_folder", "fpha": "fpha", "mtm1": "mtm1", "npz": "npz", "nw-ucla": "nw_ucla",
    "sbu": "sbu", "shrec17": "shrec17",
}  # fmt: skip
READERS: Registry[Reader] = Registry(
    "reader",
    "trellis.readers",
    "@trellis.skeleton.register_reader",
    {name: f"{__package__}.{module}" for name, module in _MODULES.items()},
)


def register_reader(
    name: str,
    *,
    protocols: tuple[str, ...] = ("split",),
    about: str = "",
    takes_path: bool = True,
) -> Callable[[Read], Read]:
    """Register a function that reads recordings, under the name that sources start with.

    The function is called as ``read(path, protocol, reading)`` and returns `Skeletons`. ``path``
    is a `pathlib.Path`, ``protocol`` one of ``protocols``. ``reading`` is a `Reading`: it reads
    files with a progress bar, skips or raises for bad ones, and puts the result together.

    Args:
        name: Lower-case letters, digits, ``-`` and ``_``. ``load_dataset("name:PATH")`` and every
            command that takes a source then know the reader.
        protocols: The ways in which the reader can divide recordings; the first is the default.
        about: What the recordings are, in a few words.
        takes_path: Whether the source is ``name:PATH``. Otherwise it is ``name`` alone, and
            ``path`` is empty.

    Returns:
        A decorator that registers the function and returns it unchanged.

    Raises:
        TrellisError: If the name is invalid, or another reader has it.

    >>> import numpy as np
    >>> from trellis.skeleton import Entry, Layout, load_dataset
    >>> arm = Layout("arm", ("shoulder", "hand"), parents=(-1, 0))
    >>> @register_reader("doctest-arms", takes_path=False)
    ... def read(path, protocol, reading):
    ...     entries = [Entry(f"take {n}", path, label=n % 2) for n in range(8)]
    ...     found = reading.frames(entries, lambda entry: np.zeros((10, 2, 3), np.float32))
    ...     return reading.result(found, ["wave", "point"], arm)
    >>> len(load_dataset("doctest-arms"))
    8
    """
    READERS.check_name(name)
    if isinstance(protocols, str) or not protocols:
        raise TrellisError(f"expected a tuple of protocol names, got {protocols!r}")

    def register(read: Read) -> Read:
        READERS.add(name, Reader(read, tuple(protocols), about, takes_path), read)
        return read

    return register


def known_sources() -> list[str]:
    """Return how a source can be written, one string per reader, by name."""
    plain = {name for name, reader in READERS.entries.items() if not reader.takes_path}
    return [name if name in plain else f"{name}:PATH" for name in READERS.names()]


# From a source such as ``fpha:PATH`` to recordings.


@register_reader(
    "hands45", protocols=("1:1",), about="built-in synthetic hand actions", takes_path=False
)
def _hands45(path: Path, protocol: str, reading: Reading) -> Skeletons:
    from ..hands import hands45

    return hands45(0)


def load_dataset(
    source: str,
    *,
    protocol: str | None = None,
    skip_bad: bool = False,
    progress: bool = False,
) -> Skeletons:
    """Read a set of recordings.

    Args:
        source: A reader's name and a path, such as ``"fpha:PATH"`` or ``"csv:PATH"``; or
            ``"hands45"``, which is built in.
        protocol: How to divide the recordings, for readers that know several ways: FPHA
            ``"1:1"`` and ``"subjects"``, SHREC'17 ``"14"`` and ``"28"``. The default is the first.
            Your own recordings without a split are halved by their names.
        skip_bad: Leave bad recordings out and list them in ``left_out``, instead of raising.
            MTM-1's segments of too few frames are always listed there.
        progress: Show a progress bar on stderr, if that is a terminal.

    Returns:
        The recordings, their labels and the folds of the protocol.

    Raises:
        TrellisError: If the source or the protocol is unknown, or a recording cannot be used.
            The message names the file and, for text, the line.

    >>> len(load_dataset("hands45"))
    1175
    >>> load_dataset("video:walk.mp4")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: unknown source 'video:walk.mp4'; known: ...fpha:PATH, ...
    """
    name, colon, path = source.partition(":")
    reader = READERS.get(name)
    if reader is None or bool(colon) != reader.takes_path:
        raise TrellisError(
            f"unknown source {source!r}; known: {', '.join(known_sources())}; for a reader of your "
            "own, import its module or install its package"
        )
    if reader.takes_path and not path:
        raise TrellisError(f"the source {source!r} has no path; write {name}:PATH")
    chosen = reader.protocols[0] if protocol is None else protocol
    if chosen not in reader.protocols:
        known = " or ".join(map(repr, reader.protocols))
        raise TrellisError(f"unknown protocol={protocol!r} for {name}; expected {known}")
    try:
        place = Path(path).expanduser()
    except RuntimeError as error:
        raise TrellisError(f"{shown(source)}: {error}") from None
    found: object = reader.read(place, chosen, Reading(source, skip_bad, progress))
    if not isinstance(found, Skeletons):
        raise TrellisError(
            f"the reader {name!r} returned {type(found).__name__}; expected "
            "trellis.skeleton.Skeletons, such as reading.result(...) gives"
        )
    return found
