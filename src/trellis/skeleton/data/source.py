"""From words such as ``fpha:PATH`` to recordings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import TrellisError
from .dataset import Skeletons
from .readers import csv_folder, fpha, mtm1, npz, nw_ucla, sbu, shrec17
from .readers.reading import Reading
from .readers.text import shown


@dataclass(frozen=True)
class Format:
    """How one kind of source is read, and by which protocols; the first is the default."""

    read: Callable[[Path, str, Reading], Skeletons]
    protocols: tuple[str, ...]
    about: str


FORMATS = {
    "fpha": Format(fpha.read, fpha.PROTOCOLS, "first-person hand actions"),
    "sbu": Format(sbu.read, sbu.PROTOCOLS, "SBU Kinect interaction"),
    "nw-ucla": Format(nw_ucla.read, nw_ucla.PROTOCOLS, "Northwestern-UCLA multi-view actions"),
    "shrec17": Format(shrec17.read, shrec17.PROTOCOLS, "SHREC'17 hand gestures"),
    "mtm1": Format(mtm1.read, mtm1.PROTOCOLS, "MTM-1 hand motions"),
    "npz": Format(npz.read, npz.PROTOCOLS, "recordings of your own in one .npz file"),
    "csv": Format(csv_folder.read, csv_folder.PROTOCOLS, "a folder of your own CSV files"),
}
BUILT_IN = "hands45"


def load(
    source: str,
    *,
    protocol: str | None = None,
    skip_bad: bool = False,
    progress: bool = False,
) -> Skeletons:
    """Read a set of recordings: ``"fpha:PATH"``, ``"csv:PATH"`` …, or ``"hands45"``, built in.

    ``protocol`` says how recordings are divided, where a source knows more than one way: FPHA
    ``"1:1"`` and ``"subjects"``, SHREC'17 ``"14"`` and ``"28"``. Recordings of your own that say
    nothing are halved by their names. What cannot be used is one error that says where; with
    ``skip_bad`` it is left out, and listed in ``left_out``. MTM-1's segments of too few frames
    are listed there either way: they belong to the set, and are no faults. ``progress`` shows a
    bar on stderr if that is a terminal.

    >>> load("video:walk.mp4")
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: 'video:walk.mp4' is no source: write fpha:PATH, sbu:PATH, nw-ucla:PATH, shrec17:PATH, mtm1:PATH, npz:PATH, csv:PATH, or hands45
    """  # noqa: E501  (a message is one line)
    kind, colon, path = source.partition(":")
    if source == BUILT_IN:
        from .hands import hands45

        if protocol is not None:
            raise TrellisError(f"{BUILT_IN} has one split; leave protocol={protocol!r} out")
        return hands45(0)
    if kind not in FORMATS or not colon:
        every = ", ".join(f"{name}:PATH" for name in FORMATS)
        raise TrellisError(f"{source!r} is no source: write {every}, or {BUILT_IN}")
    if not path:
        raise TrellisError(f"{source!r} names no path: write {kind}:PATH")
    found = FORMATS[kind]
    chosen = found.protocols[0] if protocol is None else protocol
    if chosen not in found.protocols:
        raise TrellisError(
            f"protocol={protocol!r} is unknown to {kind}: {' or '.join(map(repr, found.protocols))}"
        )
    try:
        place = Path(path).expanduser()
    except RuntimeError as error:
        raise TrellisError(f"{shown(source)}: {error}") from None
    return found.read(place, chosen, Reading(source, skip_bad, progress))
