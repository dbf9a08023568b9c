"""Continuous recordings with a label for every frame: made from clips, cut into windows, judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...deploy.stream import Decider, Event, Stream, Streaming
from ...errors import TrellisError
from .dataset import Frames, Indices


@dataclass(frozen=True, eq=False)
class Continuous:
    """A continuous recording.

    Args:
        frames: The frames, (frames, joints, 3).
        labels: The class of each frame, (frames,).
        seen: Whether a skeleton was found in each frame, (frames,); None if it always was.

    Example:
        >>> one = Continuous(np.zeros((5, 1, 3), np.float32), np.array([0, 0, 1, 1, 0]))
        >>> one.gestures(nothing=0)
        [(1, 2, 3)]
    """

    frames: Frames
    labels: Indices
    seen: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.frames):
            raise TrellisError(
                f"expected a label for each of {len(self.frames)} frames, got {len(self.labels)}"
            )

    def pushed(self) -> Iterator[Frames | None]:
        """Yield what a stream is given: frames, and None where no skeleton was found."""
        for t, frame in enumerate(self.frames):
            yield frame if self.seen is None or self.seen[t] else None

    def gestures(self, nothing: int | None) -> list[tuple[int, int, int]]:
        """Return (label, first frame, last frame) of every run of a label but ``nothing``."""
        found, start = [], 0
        for label, run in groupby(self.labels.tolist()):
            stop = start + len(list(run))
            if label != nothing:
                found.append((int(label), start, stop - 1))
            start = stop
        return found


def joined(
    clips: Sequence[tuple[Frames, int]],
    nothing: int,
    random: np.random.Generator,
    *,
    rests: Sequence[Frames] = (),
    pause: tuple[int, int] = (15, 45),
    noise: float = 0.0,
) -> Continuous:
    """Return clips as one recording, with pauses between them.

    In a pause the skeleton moves from the last pose of a clip to the first pose of the next, and
    may rest meanwhile.

    Args:
        clips: Recordings (frames, joints, 3) and their labels.
        nothing: The label of the pauses.
        random: Draws lengths and noise.
        rests: Recordings of no gesture; a piece of one is inserted in each pause.
        pause: The fewest and the most frames of a pause, without such a piece.
        noise: The standard deviation of the noise on poses in pauses.
    """
    frames: list[Frames] = []
    labels: list[Indices] = []

    def add(some: NDArray[Any], label: int) -> None:
        if len(some):
            frames.append(some.astype(np.float32))
            labels.append(np.full(len(some), label, np.int64))

    def move(one: Frames, other: Frames, count: int) -> None:
        share = np.linspace(0, 1, count + 2)[1:-1]
        share = (share * share * (3 - 2 * share))[:, None, None]  # slow, fast, slow
        path = one + share * (other - one)
        add(path + noise * random.normal(size=path.shape), nothing)

    for number, (clip, label) in enumerate(clips):
        count = int(random.integers(pause[0], pause[1] + 1))
        if number and not rests:
            move(frames[-1][-1], clip[0], count)
        elif rests:
            rest = rests[int(random.integers(len(rests)))]
            long = min(len(rest), count)
            first = int(random.integers(len(rest) - long + 1))
            piece = rest[first : first + long]
            if number:
                move(frames[-1][-1], piece[0], 5)
            add(piece, nothing)
            move(piece[-1], clip[0], 5)
        else:
            path = np.repeat(clip[:1], count, axis=0)
            add(path + noise * random.normal(size=path.shape), nothing)
        add(clip, label)
    return Continuous(np.concatenate(frames), np.concatenate(labels))


def cut(
    streams: Sequence[Continuous],
    lengths: Sequence[int],
    *,
    most: int,
    random: np.random.Generator,
) -> tuple[list[Frames], Indices]:
    """Cut recordings into windows; the label of a window is that of its middle frame.

    Args:
        streams: The recordings.
        lengths: The lengths of the windows.
        most: The most windows of a class; they are drawn.
        random: Draws windows.

    Returns:
        The windows, (frames, joints, 3) each, and their labels. Frames without a skeleton are left
        out of a window; one that lacks more than half of its frames is not used.

    >>> one = Continuous(np.arange(6, dtype=np.float32).reshape(6, 1, 1), np.array([0, 0, 1, 1, 1, 0]))
    >>> windows, labels = cut([one], [3], most=9, random=np.random.default_rng(0))
    >>> [window[0, 0, 0] for window in windows], labels.tolist()
    ([np.float32(0.0), np.float32(1.0), np.float32(2.0), np.float32(3.0)], [0, 1, 1, 1])
    """  # noqa: E501
    places: dict[int, list[tuple[int, int, int]]] = {}
    for number, one in enumerate(streams):
        seen = np.ones(len(one.frames), bool) if one.seen is None else one.seen
        total = np.concatenate([[0], np.cumsum(seen)])
        for length in lengths:
            for start in range(len(one.frames) - length + 1):
                if 2 * (total[start + length] - total[start]) >= length:
                    label = int(one.labels[start + length // 2])
                    places.setdefault(label, []).append((number, start, length))
    chosen: list[tuple[int, int, int]] = []
    labels: list[int] = []
    for label, all_of in sorted(places.items()):
        which = np.arange(len(all_of))
        if len(all_of) > most:
            which = np.sort(random.choice(len(all_of), most, replace=False))
        chosen += [all_of[i] for i in which]
        labels += [label] * len(which)
    windows = []
    for number, start, length in chosen:
        one, part = streams[number], slice(start, start + length)
        window = one.frames[part]
        windows.append(window if one.seen is None else window[one.seen[part]])
    return windows, np.array(labels, np.int64)


@dataclass(frozen=True)
class Judged:
    """How well gestures were found in continuous recordings.

    Attributes:
        gestures: True gestures.
        events: Events that were told.
        right: Events that name a gesture, each gesture once.
        delays: Frames from the end of each such gesture until its event was told.
        frames: Frames of the recordings.
    """

    gestures: int
    events: int
    right: int
    delays: tuple[int, ...]
    frames: int

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall of events."""
        return 2 * self.right / max(self.gestures + self.events, 1)

    def false_alarms(self, fps: float) -> float:
        """Return events that name no gesture, per minute."""
        return (self.events - self.right) / (self.frames / fps / 60)


def judged(
    streams: Sequence[Continuous],
    shares: Sequence[Sequence[NDArray[Any] | None]],
    settings: Streaming,
    classes: Sequence[str],
) -> Judged:
    """Judge the events that probabilities lead to.

    An event is right if it has the class of a gesture and overlaps with it, by at least half of the
    shorter of the two. Each gesture counts once.
    """
    gestures = events = right = frames = 0
    delays: list[int] = []
    for one, rows in zip(streams, shares, strict=True):
        decide = Decider(settings, classes)
        told = [(now, decide(now, row)) for now, row in enumerate(rows)]
        told.append((len(rows) - 1, decide.close(len(rows) - 1)))
        truth = one.gestures(settings.nothing)
        taken: set[int] = set()
        found = [(now, event) for now, event in told if event is not None]
        for now, event in found:
            place = next((i for i, each in enumerate(truth) if i not in taken
                          and _same(event, each)), None)  # fmt: skip
            if place is not None:
                taken.add(place)
                delays.append(now - truth[place][2])
        gestures += len(truth)
        events += len(found)
        right += len(taken)
        frames += len(rows)
    return Judged(gestures, events, right, tuple(delays), frames)


def _same(event: Event, gesture: tuple[int, int, int]) -> bool:
    label, start, end = gesture
    common = min(event.end, end) - max(event.start, start) + 1
    shorter = min(event.end - event.start, end - start) + 1
    return event.label == label and 2 * common >= shorter


THRESHOLDS = tuple(round(0.3 + 0.05 * i, 2) for i in range(14))  # 0.3 to 0.95


def calibrated(
    streams: Sequence[Continuous], stream: Stream, shares: Sequence[Any] | None = None
) -> Streaming:
    """Return a stream's settings with the threshold that finds the most gestures.

    The one with the largest F1 of events is taken; among equals the middle one. A gesture ends at
    two thirds of it.

    Args:
        streams: Recordings that the network was not trained on.
        stream: A stream of the network.
        shares: Its probabilities, if they are known already (`Stream.shares`).
    """
    rows = [stream.shares(one.pushed()) for one in streams] if shares is None else shares
    tried = [
        replace(stream.settings, threshold=each, release=round(each * 2 / 3, 4))
        for each in THRESHOLDS
    ]
    scores = [judged(streams, rows, each, stream.classes).f1 for each in tried]
    best = [i for i, score in enumerate(scores) if score >= max(scores) - 1e-9]
    return tried[best[len(best) // 2]]
