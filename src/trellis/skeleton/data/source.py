"""From a source such as ``fpha:PATH`` to recordings."""

from __future__ import annotations

from pathlib import Path

from ...errors import TrellisError
from .dataset import Skeletons
from .readers import csv_folder, fpha, mtm1, npz, nw_ucla, sbu, shrec17  # noqa: F401  (register)
from .readers.reader import READERS, Reading, known_sources, register_reader
from .readers.text import shown


@register_reader(
    "hands45", protocols=("1:1",), about="built-in synthetic hand actions", takes_path=False
)
def _hands45(path: Path, protocol: str, reading: Reading) -> Skeletons:
    from .hands import hands45

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
