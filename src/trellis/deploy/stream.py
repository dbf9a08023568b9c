"""Recognise gestures in a stream of frames: windows, probabilities and decisions.

Every frame is added to sums in fixed-point arithmetic. The mean of any chunk of any window is then
a difference of two sums, divided by a count: no work is proportional to a window. The sums wrap
around at 2^32, and differences stay exact. ``stream.c`` computes the same sums to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TrellisError

Floats = NDArray[np.float32]
Predict = Callable[[list[Floats]], NDArray[Any]]
UNITS = 1 << 16  # fixed-point units in the scale of the coordinates
LONGEST = 4096  # frames of a window
MOST = 8  # windows
_BATCH = 256  # windows that are classified together


@dataclass(frozen=True)
class Streaming:
    """How gestures are found in a stream; it is stored with a model.

    The network classifies the last frames in windows of several lengths, and the probabilities are
    averaged. A gesture starts when a class other than ``nothing`` reaches ``threshold`` in ``hold``
    evaluations in a row. It ends when it falls below ``release``, or another class reaches
    ``threshold``, as often in a row.

    Args:
        windows: The lengths of the windows in frames, ascending.
        nothing: The index of the class that is no gesture; None if there is no such class.
        threshold: The probability at which a gesture starts.
        release: The probability below which it ends.
        hold: The number of evaluations in a row that decide.
        every: Evaluate every so many frames.

    Raises:
        TrellisError: A setting is out of range.

    >>> Streaming((16, 32)).lag
    12
    """

    windows: tuple[int, ...]
    nothing: int | None = None
    threshold: float = 0.6
    release: float = 0.4
    hold: int = 2
    every: int = 1

    def __post_init__(self) -> None:
        windows = self.windows
        if not (
            1 <= len(windows) <= MOST
            and all(_whole(each, 1, LONGEST) for each in windows)
            and list(windows) == sorted(set(windows))
        ):
            raise TrellisError(
                f"expected 1 to {MOST} different windows of 1 to {LONGEST:,} frames, ascending, "
                f"got windows={windows!r}"
            )
        if self.nothing is not None and not _whole(self.nothing, 0, 10**6):
            raise TrellisError(f"expected the index of a class, got nothing={self.nothing!r}")
        for name in ("threshold", "release"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (number and 0 < value < 1):
                raise TrellisError(f"expected a probability within 0 and 1, got {name}={value!r}")
        if self.release > self.threshold:
            raise TrellisError(
                f"expected a release of at most the threshold, got release={self.release!r}, "
                f"threshold={self.threshold!r}"
            )
        for name in ("hold", "every"):
            if not _whole(getattr(self, name), 1, LONGEST):
                raise TrellisError(
                    f"expected a whole number from 1 to {LONGEST:,}, got "
                    f"{name}={getattr(self, name)!r}"
                )

    @property
    def lag(self) -> int:
        """How many frames the centre of the windows lies behind the last frame, on average."""
        return sum(self.windows) // (2 * len(self.windows))

    @property
    def apart(self) -> int:
        """Frames after an event in which its class starts no other."""
        return max(self.windows[0] // 2, 1)

    @property
    def gap(self) -> int:
        """Frames without a skeleton that are bridged by the last one seen."""
        return max(self.windows[0] // 2, 1)

    def notes(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them."""
        return {**vars(self), "windows": list(self.windows)}

    @classmethod
    def from_notes(cls, given: Any) -> Streaming:
        """Return what `notes` stored in a file.

        Raises:
            TrellisError: The settings are damaged.
        """
        if not isinstance(given, Mapping) or not isinstance(given.get("windows"), list | tuple):
            raise TrellisError("expected the settings of a stream with 'windows'")
        if not set(given) <= set(cls.__dataclass_fields__):
            raise TrellisError(f"unknown settings of a stream: {', '.join(map(str, given))!s:.200}")
        return cls(**{**given, "windows": tuple(given["windows"])})


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


@dataclass(frozen=True)
class Event:
    """A gesture in a stream.

    Attributes:
        label: The index of its class.
        name: The name of its class.
        start: Its first frame, counted from 0.
        end: Its last frame.
        probability: The largest probability it reached.
    """

    label: int
    name: str
    start: int
    end: int
    probability: float


class Decider:
    """From probabilities, evaluation by evaluation, to events; ``stream.c`` is the same in C.

    >>> decide = Decider(Streaming((2,), nothing=0, hold=1), ("nothing", "wave"))
    >>> [decide(t, np.array([1 - p, p])) for t, p in enumerate([0.25, 0.75, 0.625])]
    [None, None, None]
    >>> decide(3, np.array([0.75, 0.25]))
    Event(label=1, name='wave', start=0, end=1, probability=0.75)
    """

    def __init__(self, settings: Streaming, classes: Sequence[str]) -> None:
        self.settings, self.classes = settings, tuple(classes)
        self.active = -1
        self._start = self._last = self._below = 0
        self._peak = 0.0
        self._candidate, self._count, self._first = -1, 0, 0
        self._ended, self._ended_label = -1, -1

    def __call__(self, now: int, shares: NDArray[Any] | None) -> Event | None:
        """Take the probabilities at frame ``now``; None if there was nothing to evaluate."""
        settings, active = self.settings, self.active
        best = -1
        if shares is not None:
            gestures = np.array(shares, np.float32)
            if settings.nothing is not None:
                gestures[settings.nothing] = -1
            best = int(gestures.argmax())
        sure = best >= 0 and float(gestures[best]) >= np.float32(settings.threshold)
        event = None
        if not sure or best == active:
            self._candidate, self._count = -1, 0
        elif best != self._candidate:
            self._candidate, self._count, self._first = best, 1, now
        else:
            self._count += 1
        if active >= 0:
            other = sure and best != active
            if (
                shares is not None
                and not other
                and float(gestures[active]) >= np.float32(settings.release)
            ):
                self._below, self._last = 0, now
                self._peak = max(self._peak, float(gestures[active]))
            else:
                self._below += 1
                if self._below >= settings.hold:
                    event = self._finished(now)
        if self.active < 0 and self._count >= settings.hold:
            again = self._candidate == self._ended_label
            if not (again and now - self._ended < settings.apart):
                self._begin(now, float(gestures[best]))
        return event

    def close(self, now: int) -> Event | None:
        """End the gesture that is under way."""
        return self._finished(now) if self.active >= 0 else None

    def _begin(self, now: int, share: float) -> None:
        self.active, self._last, self._below, self._peak = self._candidate, now, 0, share
        self._start = max(self._first - self.settings.lag, self._free, 0)
        self._candidate, self._count = -1, 0

    _free = 0  # the frame after the last event

    def _finished(self, now: int) -> Event:
        end = max(self._last - self.settings.lag, self._start)
        label = self.active
        self.active, self._below = -1, 0
        self._ended, self._ended_label, self._free = now, label, end + 1
        return Event(label, self.classes[label], self._start, end, self._peak)


class Windows:
    """Means over the chunks of windows that end at given frames, from sums over all frames.

    Frame t of a window of T belongs to chunk ⌊tM/T⌋. A chunk without a frame is interpolated at its
    centre, as `trellis.skeleton.chunked` does.

    Args:
        frames: The length of the window.
        chunks: The number of chunks M.
    """

    def __init__(self, frames: int, chunks: int) -> None:
        bounds = -(-np.arange(chunks + 1) * frames // chunks)
        full = np.diff(bounds) > 0
        center = (2 * np.arange(chunks) + 1) * frames
        before = center // (2 * chunks)
        after = np.where(before + 1 < frames, before + 1, before)
        self.frames = frames
        self.first = np.where(full, bounds[:-1], before)
        self.stop = np.where(full, bounds[1:], before + 1)
        self.after = np.where(full, self.first, after)
        self.after_stop = np.where(full, self.stop, after + 1)
        weight = (center % (2 * chunks)).astype(np.float32) / np.float32(2 * chunks)
        self.weight = np.where(full, np.float32(0), weight)[:, None]

    def means(self, sums: NDArray[np.uint32], ends: NDArray[np.int64], unit: float) -> Floats:
        """Return the means, (ends, chunks, numbers of a frame).

        Args:
            sums: Sums before each frame, as a ring: (rows, numbers of a frame).
            ends: The frame after each window; the window lies in the ring.
            unit: The size of one unit of the sums.
        """
        rows = len(sums)
        start = (ends - self.frames)[:, None]

        def mean(first: NDArray[np.int64], stop: NDArray[np.int64]) -> Floats:
            more = sums[(start + stop) % rows] - sums[(start + first) % rows]  # wraps around
            share = np.float32(unit) / (stop - first).astype(np.float32)
            found: Floats = more.view(np.int32).astype(np.float32) * share[:, None]
            return found

        found = mean(self.first, self.stop)
        if self.weight.any():
            found = found + self.weight * (mean(self.after, self.after_stop) - found)
        return found


class Stream:
    """Gestures in a stream of frames: push frames as they come, and get an event for each gesture.

    Args:
        settings: The settings.
        classes: The names of the classes.
        joints: The number of joints.
        chunks: The number of chunks that the network reads.
        scale: The scale of the coordinates, from the model's normalization.
        predict: Returns logits (recordings, classes) for recordings (frames, joints, 3).

    Attributes:
        frames: The number of frames pushed.
        probabilities: The probability of each class at the last evaluation; None before the first.

    Example:
        >>> still = lambda recordings: np.zeros((len(recordings), 2))
        >>> stream = Stream(Streaming((4,)), ("wave", "point"), 1, 2, 1.0, still)
        >>> stream.push(np.zeros((1, 3))), stream.frames
        (None, 1)
    """

    def __init__(
        self, settings: Streaming, classes: Sequence[str], joints: int, chunks: int, scale: float,
        predict: Predict,
    ) -> None:  # fmt: skip
        if settings.nothing is not None and settings.nothing >= len(classes):
            raise TrellisError(
                f"nothing={settings.nothing}: the model has {len(classes)} classes, from 0"
            )
        self.settings, self.classes = settings, tuple(classes)
        self.joints, self.chunks, self._predict = joints, chunks, predict
        self.unit = float(np.float32(scale) / np.float32(UNITS))
        self._finer = np.float32(UNITS) / np.float32(scale)
        longest = settings.windows[-1]
        self._farthest = np.float32((2**31 - 1) // -(-longest // chunks) - 256)
        self._windows = [Windows(each, chunks) for each in settings.windows]
        self._sums = np.zeros((longest + 1, joints * 3), np.uint32)
        self._decide = Decider(settings, classes)
        self._seen = self._missing = self.frames = 0
        self._units = np.zeros(joints * 3, np.uint32)
        self.probabilities: Floats | None = None

    @property
    def active(self) -> str | None:
        """The class of the gesture that is under way; None if there is none."""
        label = self._decide.active
        return None if label < 0 else self.classes[label]

    def push(self, frame: Any) -> Event | None:
        """Add a frame, and return the gesture that is now over.

        Args:
            frame: The joints (joints, 3), or None if no skeleton was found.

        Returns:
            The gesture, or None.

        Raises:
            TrellisError: The frame has another shape, or a coordinate is not finite or too large.
                The stream is then unchanged.
        """
        units = None if frame is None else self._fixed(frame)
        self._add(units)
        self.frames += 1
        if self.frames % self.settings.every:
            return None
        ready = [each for each in self._windows if each.frames <= self._seen]
        shares = None
        if ready:
            end = np.array([self._seen], np.int64)
            recordings = [self._shaped(each.means(self._sums, end, self.unit))[0] for each in ready]
            shares = softmax(self._predict(recordings)).mean(axis=0, dtype=np.float32)
        self.probabilities = shares
        return self._decide(self.frames - 1, shares)

    def close(self) -> Event | None:
        """End the stream, and return the gesture that was under way."""
        return self._decide.close(self.frames - 1)

    def all(self, frames: Iterable[Any]) -> list[Event]:
        """Push all frames of a recording, close the stream, and return the events."""
        found = [self.push(frame) for frame in frames]
        return [event for event in [*found, self.close()] if event is not None]

    def shares(self, frames: Iterable[Any]) -> list[Floats | None]:
        """Return the probabilities after each frame of a recording, all at once.

        They are those that `push` leaves in ``probabilities``, if ``every`` is 1. The stream itself
        is not changed.
        """
        parts: list[tuple[list[int], list[NDArray[np.uint32]]]] = []
        count = missing = 0
        for count, frame in enumerate(frames, 1):
            units = None if frame is None else self._fixed(frame)
            missing = missing + 1 if units is None else 0
            if missing > self.settings.gap or not parts:
                if units is None:
                    parts.append(([], []))
                    continue
                parts.append(([], []))
            if units is None and not parts[-1][1]:
                continue
            parts[-1][0].append(count - 1)
            parts[-1][1].append(parts[-1][1][-1] if units is None else units)
        found: list[Floats | None] = [None] * count
        for places, rows in parts:
            for place, share in zip(places, self._shares_of(rows), strict=True):
                found[place] = share
        return found

    def _shares_of(self, rows: list[NDArray[np.uint32]]) -> list[Floats | None]:
        """Return the probabilities after each of some frames without a gap."""
        count = len(rows)
        if count < self.settings.windows[0]:
            return [None] * count
        sums = np.zeros((count + 1, self.joints * 3), np.uint32)
        np.cumsum(np.stack(rows), axis=0, dtype=np.uint32, out=sums[1:])
        total = np.zeros((count, len(self.classes)), np.float32)
        many = np.zeros(count, np.int64)
        for each in self._windows:
            for first in range(each.frames, count + 1, _BATCH):
                ends = np.arange(first, min(first + _BATCH, count + 1))
                means = self._shaped(each.means(sums, ends, self.unit))
                total[ends - 1] += softmax(self._predict(list(means)))
                many[ends - 1] += 1
        return [
            (row / np.float32(n)).astype(np.float32) if n else None
            for row, n in zip(total, many, strict=True)
        ]

    def _shaped(self, means: Floats) -> Floats:
        return means.reshape(len(means), self.chunks, self.joints, 3)

    def _fixed(self, frame: Any) -> NDArray[np.uint32]:
        try:
            points = np.asarray(frame, np.float32)
        except (TypeError, ValueError) as error:
            raise TrellisError(f"expected an array of numbers as a frame: {error}") from None
        if points.shape != (self.joints, 3):
            raise TrellisError(f"expected a frame of shape ({self.joints}, 3), got {points.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            units = points.reshape(-1) * self._finer
            near = np.abs(units) <= self._farthest  # false for NaN
        if not near.all():
            joint = int(np.argmin(near)) // 3
            raise TrellisError(
                f"joint {joint} of frame {self.frames} is at {points[joint].tolist()}; expected "
                f"finite coordinates within {float(self._farthest) * self.unit:.3g}"
            )
        half = np.where(units < 0, np.float32(-0.5), np.float32(0.5))
        found: NDArray[np.uint32] = (units + half).astype(np.int32).view(np.uint32)
        return found

    def _add(self, units: NDArray[np.uint32] | None) -> None:
        if units is None:
            self._missing += 1
            if self._missing > self.settings.gap:
                self._seen = 0
            if not self._seen:
                return
        else:
            self._missing, self._units = 0, units
        rows = len(self._sums)
        self._sums[(self._seen + 1) % rows] = self._sums[self._seen % rows] + self._units
        self._seen += 1


def softmax(logits: NDArray[Any]) -> Floats:
    """Return the shares of each row, which sum to 1."""
    logits = np.asarray(logits, np.float32)
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Floats = grown / grown.sum(axis=1, keepdims=True)
    return found
