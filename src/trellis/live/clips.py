"""The folder of recorded clips: a ``csv:`` source that every command reads.

Files are ``hand-1a2b3c/s01-003.csv``: a name made from the gesture's, the session, and a number.
The gesture itself is written in ``labels.csv`` only, so that no name of a gesture becomes a path.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from ..errors import TrellisError
from ..files import replacing
from ..skeleton import Frames, read_recording
from ..skeleton.data.layouts import MEDIAPIPE_HAND
from ..skeleton.data.readers.recording import csv_text
from ..skeleton.data.readers.text import read_lines

LAYOUT = MEDIAPIPE_HAND
JOINTS = len(LAYOUT.joints)
NOTHING = "nothing"
RATE = 15  # frames a second, in clips and in streams
FEWEST = 5  # frames with a hand
LONGEST = 60 * RATE  # frames of a clip
MOST = 2000  # clips
FAR = 100.0  # coordinates are fractions of the picture
_SEEN = 0.6  # the share of frames that must have a hand
_FILE = re.compile(r"[a-z0-9-]{1,40}/s(\d{2,4})-(\d{3,5})\.csv", re.ASCII)
_LABELS = "labels.csv"


@dataclass(frozen=True)
class Clip:
    """A clip: its file within the folder, its gesture and its session."""

    file: str
    name: str
    session: int


def checked_name(given: Any) -> str:
    """Return the name of a gesture.

    >>> checked_name(" thumb up ")
    'thumb up'
    """
    if not isinstance(given, str):
        raise TrellisError("expected the name of a gesture as text")
    name = " ".join(given.split())
    if not 1 <= len(name) <= 60 or not name.isprintable():
        raise TrellisError("expected a name of 1 to 60 letters, digits or signs")
    return name


def checked_frames(given: Any) -> Frames:
    """Return the frames of a clip, (frames, joints, 3), from what a page sent.

    Frames without a hand are None; they are left out at the ends and interpolated in between.
    """
    if not isinstance(given, list) or not FEWEST <= len(given) <= LONGEST:
        raise TrellisError(f"expected {FEWEST} to {LONGEST} frames")
    rows = np.full((len(given), JOINTS * 3), np.nan)
    for number, frame in enumerate(given):
        if frame is None:
            continue
        plain = isinstance(frame, list) and len(frame) == JOINTS * 3
        if not plain or not all(type(x) in (int, float) and abs(x) <= FAR for x in frame):
            raise TrellisError(
                f"frame {number}: expected {JOINTS * 3} numbers from {-FAR:g} to {FAR:g}"
            )
        rows[number] = frame
    seen = np.flatnonzero(~np.isnan(rows[:, 0]))
    if len(seen) < FEWEST or len(seen) < _SEEN * len(given):
        raise TrellisError(
            f"the hand was seen in {len(seen)} of {len(given)} frames only; keep it in the picture"
        )
    times = np.arange(seen[0], seen[-1] + 1)
    filled = np.stack([np.interp(times, seen, column[seen]) for column in rows.T], axis=1)
    return filled.astype(np.float32).reshape(len(times), JOINTS, 3)


class Clips:
    """The clips of a folder, which is created if needed.

    Args:
        folder: The folder: empty, or one that `Clips` made.

    Raises:
        TrellisError: The folder holds other files, or cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = RLock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TrellisError(f"cannot make {str(folder)!r}: {error.strerror}") from None
        self.clips = self._read()
        self.session = max((clip.session for clip in self.clips), default=0) + 1

    def _read(self) -> list[Clip]:
        path = self.folder / _LABELS
        if not os.path.lexists(path):
            others = [name for name in os.listdir(self.folder) if not name.startswith(".")]
            if others and others != ["layout.json"]:
                raise TrellisError(
                    f"{str(self.folder)!r} holds {others[0]!r:.80} and no {_LABELS}: name an empty "
                    "folder, or one that `trellis live` made"
                )
            return []
        found = []
        for row in csv.reader(read_lines(path)[1:]):
            match = _FILE.fullmatch(row[0]) if len(row) == 2 else None
            if match is None:
                raise TrellisError(
                    f"{str(path)!r}: expected lines such as wave-1a2b3c/s01-001.csv,wave, got "
                    f"{','.join(row)!r:.80}; name a folder that `trellis live` made"
                )
            found.append(Clip(row[0], row[1], int(match[1])))
        return found

    def add(self, name: Any, frames: Any) -> Clip:
        """Check a clip and write it."""
        name, found = checked_name(name), checked_frames(frames)
        with self._lock:
            if len(self.clips) >= MOST:
                raise TrellisError(f"there are {MOST} clips already; discard some first")
            words = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:24] or "gesture"
            folder = f"{words}-{sha256(name.encode()).hexdigest()[:6]}"
            taken = [int(_FILE.fullmatch(c.file)[2]) for c in self.clips  # type: ignore[index]
                     if c.session == self.session and c.file.startswith(f"{folder}/")]  # fmt: skip
            file = f"{folder}/s{self.session:02d}-{max(taken, default=0) + 1:03d}.csv"
            clip = Clip(file, name, self.session)
            (self.folder / folder).mkdir(exist_ok=True)
            layout = self.folder / "layout.json"
            if not layout.exists():
                layout.write_text(f'{{"layout": "{LAYOUT.name}"}}\n', encoding="utf-8")
            text = csv_text(found, LAYOUT.joints)
            self._write([*self.clips, clip], self.folder / file, text)
            return clip

    def remove(self, file: Any) -> None:
        """Remove a clip that is listed."""
        with self._lock:
            kept = [clip for clip in self.clips if clip.file != file]
            if len(kept) == len(self.clips):
                raise TrellisError("the clip does not exist")
            self._write(kept)
            (self.folder / str(file)).unlink(missing_ok=True)
            if not any(clip.file.split("/")[0] == str(file).split("/")[0] for clip in kept):
                (self.folder / str(file).split("/")[0]).rmdir()

    def _write(self, clips: Sequence[Clip], path: Path | None = None, text: str = "") -> None:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(("file", "label"))
        writer.writerows((clip.file, clip.name) for clip in clips)
        contents = [] if path is None else [(path, text)]
        contents.append((self.folder / _LABELS, table.getvalue()))
        with replacing(*(each for each, _ in contents)) as drafts:
            for draft, (_, content) in zip(drafts, contents, strict=True):
                draft.write_text(content, encoding="utf-8")
        self.clips = list(clips)

    def frames(self, clip: Clip) -> Frames:
        """Read a clip."""
        return read_recording(self.folder / clip.file, LAYOUT)

    def summary(self) -> list[dict[str, Any]]:
        """Return the gestures and their clips, in the order in which they were first recorded."""
        with self._lock:
            names = dict.fromkeys(clip.name for clip in self.clips)
            return [
                {
                    "name": name,
                    "clips": [
                        {"file": clip.file, "session": clip.session}
                        for clip in self.clips
                        if clip.name == name
                    ],
                }
                for name in names
            ]
