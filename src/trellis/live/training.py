"""From a few recorded clips to a small network that recognises gestures in a stream.

Clips are joined to continuous recordings with pauses, in random order. Windows are cut from those;
the label of a window is that of its middle frame. So the network sees what a stream shows it: parts
of gestures, and what lies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..deploy.stream import Streaming
from ..errors import TrellisError
from ..skeleton import Fold, Frames, Layout, Recognizer, Skeletons
from ..skeleton.data.preparation import COORDINATES
from ..skeleton.data.streams import Continuous, calibrated, cut, joined, judged
from ..skeleton.model.fitting import Evaluation
from ..skeleton.shrink import Course, course_named, options_for, shrink
from ..skeleton.shrink.stages import Maker
from ..training import Training, unstack

Progress = Callable[[str, float], None]
CHUNKS = 16
# Filters that slide over time would take three times as long to train.
SIZES: dict[str, Any] = {"heads": 4, "filters": 24, "kinds": COORDINATES}
_WINDOWS = 150  # of each class, at most
_STREAMS = 6  # recordings that clips are joined to
_FOLDS = 4  # at most
_SHARES = {"training": (0.0, 0.25), "pruning": (0.25, 0.7), "tuning": (0.7, 1.0)}


@dataclass(frozen=True)
class Take:
    """A clip: its gesture, its session, and its frames (frames, joints, 3)."""

    name: str
    session: int
    frames: Frames


@dataclass(frozen=True, eq=False)
class Trained:
    """A network and what is known of it.

    Attributes:
        recognizer: The small network, with the settings of its stream.
        evaluation: Of clips that were left out of training, by session or by part.
        by_session: Whether whole sessions were left out.
        events_f1: How well gestures were found in streams of clips that were left out.
        kept: Connections kept.
        total: Connections of the dense network.
        record: Gestures to record more of, and why; most urgent first.
    """

    recognizer: Recognizer
    evaluation: Evaluation
    by_session: bool
    events_f1: float
    kept: int
    total: int
    record: tuple[tuple[str, str], ...]


def windows_for(takes: Sequence[Take], nothing: str) -> tuple[int, ...]:
    """Return lengths of windows that suit the gestures: short, usual and long ones.

    >>> takes = [Take("wave", 1, np.zeros((n, 1, 3), np.float32)) for n in (20, 28, 30, 40)]
    >>> windows_for(takes, "nothing")
    (14, 21, 29)
    """
    lengths = [len(take.frames) for take in takes if take.name != nothing]
    usual = float(np.median(lengths))
    return tuple(sorted({max(round(usual * share), 4) for share in (0.5, 0.74, 1.0)}))


def train(
    takes: Sequence[Take],
    layout: Layout,
    *,
    nothing: str = "nothing",
    sparsity: float = 0.9,
    length: float = 1.0,
    seed: int = 0,
    progress: Progress = lambda phase, share: None,
) -> Trained:
    """Train, prune and judge a network on clips.

    Args:
        takes: The clips: two gestures or more, at least two clips of each.
        layout: The skeleton.
        nothing: The name of the background class, which includes pauses between gestures.
        sparsity: The fraction of connections to remove.
        length: A factor on the length of training.
        seed: The seed.
        progress: Called with a phase in words and the share of all work that is done.

    Raises:
        TrellisError: There are too few clips.
    """
    classes = _checked(takes, nothing)
    windows = windows_for(takes, nothing)
    settings = Streaming(windows, classes.index(nothing))
    course = course_named("quick").times(length)
    folds = list(_left_out(takes, nothing))
    said: list[int] = []
    truth: list[int] = []
    streams: list[Continuous] = []
    shares: list[Any] = []
    stream = None
    work = len(folds) + 3.0
    for number, (learn, judge) in enumerate(folds):
        words = f"measuring, {number + 1} of {len(folds)}"
        begun = number / work
        data = _data(learn, classes, layout, windows, seed)
        fresh = _fresh(data, seed, settings)
        progress(words, begun)

        def told(_: str, each: Training, words: str = words, begun: float = begun) -> None:
            progress(words, begun + each.epochs_done / each.epochs / work)

        found = _dense(fresh, data, course, seed, told)
        tested = [take for take in judge if take.name != nothing]
        if tested:
            rows = found.probabilities([take.frames for take in tested])
            said += rows.argmax(axis=1).tolist()
            truth += [classes.index(take.name) for take in tested]
        one = _streams(judge, classes, nothing, 1, seed)
        streams += one
        stream = found.stream()
        shares += [stream.shares(each.pushed()) for each in one]
    assert stream is not None
    settings = calibrated(streams, stream, shares)
    score = judged(streams, shares, settings, classes).f1
    begun = len(folds) / work

    def watch(phase: str, each: Training) -> None:
        low, high = _SHARES.get(phase.split()[0], (0.0, 1.0))
        share = low + (high - low) * each.epochs_done / each.epochs
        progress(f"{phase.split()[0]} the network", begun + (1 - begun) * share)

    data = _data(takes, classes, layout, windows, seed)
    fresh = _fresh(data, seed, settings)
    made = shrink(fresh, data, data.folds[0], course, sparsity=sparsity, seed=seed, watch=watch)
    evaluation = Evaluation.of(np.array(truth, np.int64), np.array(said, np.int64), classes)
    by_session = len({take.session for take in takes}) > 1
    return Trained(
        replace(made.small, streaming=settings), evaluation, by_session, score, made.kept,
        made.total, tuple(_wanted(takes, evaluation, nothing)),
    )  # fmt: skip


def _checked(takes: Sequence[Take], nothing: str) -> tuple[str, ...]:
    """Return the classes; raise if there is too little to train on."""
    counts: dict[str, int] = {}
    for take in takes:
        counts[take.name] = counts.get(take.name, 0) + 1
    gestures = [name for name in counts if name != nothing]
    if len(gestures) < 2:
        raise TrellisError(f"expected two gestures or more, got {len(gestures)}; record another")
    for name in gestures:
        if counts[name] < 2:
            raise TrellisError(f"expected two clips or more of {name!r}, got 1; record another")
    if not counts.get(nothing):
        raise TrellisError(f"there is no clip of {nothing!r}; record how your hand rests")
    return (nothing, *sorted(gestures))


def _left_out(takes: Sequence[Take], nothing: str) -> list[tuple[list[Take], list[Take]]]:
    """Return (clips to train on, clips to judge by), a session at a time, or parts of the only one.

    A session is left out only if the others have every gesture.
    """
    names = {take.name for take in takes if take.name != nothing}
    sessions = sorted({take.session for take in takes})
    found = []
    if len(sessions) > 1:
        for session in sessions[-_FOLDS:]:
            learn = [take for take in takes if take.session != session]
            judge = [take for take in takes if take.session == session]
            if names <= {take.name for take in learn} and any(t.name in names for t in judge):
                found.append((learn, judge))
    if not found:
        counts: dict[str, int] = {}
        parts = []
        for take in takes:
            parts.append(counts.get(take.name, 0))
            counts[take.name] = parts[-1] + 1
        many = min(_FOLDS, min(count for name, count in counts.items() if name in names))
        for part in range(many):
            judge = [t for t, p in zip(takes, parts, strict=True) if p % many == part]
            learn = [t for t, p in zip(takes, parts, strict=True) if p % many != part]
            found.append((learn, judge))
    # A single clip of nothing is on both sides: it only fills pauses.
    rests = [take for take in takes if take.name == nothing]
    return [
        (
            learn if any(t.name == nothing for t in learn) else [*learn, *rests],
            judge if any(t.name == nothing for t in judge) else [*judge, *rests],
        )
        for learn, judge in found
    ]


def _streams(
    takes: Sequence[Take], classes: Sequence[str], nothing: str, count: int, seed: int
) -> list[Continuous]:
    random = np.random.default_rng(seed)
    rests = [take.frames for take in takes if take.name == nothing]
    clips = [(take.frames, classes.index(take.name)) for take in takes if take.name != nothing]
    return [
        joined(
            [clips[i] for i in random.permutation(len(clips))], classes.index(nothing), random,
            rests=rests,
        )
        for _ in range(count)
    ]  # fmt: skip


def _data(
    takes: Sequence[Take], classes: tuple[str, ...], layout: Layout, windows: Sequence[int],
    seed: int,
) -> Skeletons:  # fmt: skip
    """Return windows to train on, with all clips as test recordings (they are not used)."""
    random = np.random.default_rng(seed)
    nothing = classes[0]
    streams = _streams(takes, classes, nothing, _STREAMS, seed + 1)
    rests = [take.frames for take in takes if take.name == nothing]
    streams += [Continuous(each, np.zeros(len(each), np.int64)) for each in rests]
    sequences, labels = cut(streams, windows, most=_WINDOWS, random=random)
    own = [take for take in takes if take.name != nothing]
    sequences += [take.frames for take in own]
    mine = np.array([classes.index(take.name) for take in own], np.int64)
    labels = np.concatenate([labels, mine])
    everyone = np.arange(len(labels))
    return Skeletons(
        "clips", tuple(sequences), labels, classes,
        tuple(f"window {i}" for i in everyone), layout,
        (Fold("all", everyone, everyone[-len(own) :]),),
    )  # fmt: skip


def _fresh(data: Skeletons, seed: int, settings: Streaming) -> Recognizer:
    fresh = Recognizer.fresh(
        data, data.folds[0], chunks=CHUNKS, seed=seed, **options_for(data.layout) | SIZES
    )
    return replace(fresh, streaming=settings)


def _dense(
    fresh: Recognizer, data: Skeletons, course: Course, seed: int,
    watch: Callable[[str, Training], None],
) -> Recognizer:  # fmt: skip
    """Return a dense network; pruning it too would take three times as long."""
    fold = data.folds[0]
    x = torch.from_numpy(fresh.places([data.sequences[i] for i in fold.train]))
    y = torch.from_numpy(fresh.labels(data)[fold.train])
    weights = Maker(fresh, x, y, course, watch=watch).train([seed])
    unstack({name: weight.cpu() for name, weight in weights.items()}, [fresh.model])
    return fresh


_FEW = 10  # clips of a gesture below which more are asked for


def _wanted(takes: Sequence[Take], evaluation: Evaluation, nothing: str) -> list[tuple[str, str]]:
    """Return gestures to record more of, and why."""
    found: dict[str, str] = {}
    for confusion in evaluation.confusions():
        if confusion.truth != nothing:
            found.setdefault(
                confusion.truth,
                f"{confusion.count} of {confusion.of} clips left out of training were taken for "
                f"{confusion.taken_for}",
            )
    counts: dict[str, int] = {}
    for take in takes:
        counts[take.name] = counts.get(take.name, 0) + 1
    for name, count in sorted(counts.items(), key=lambda item: item[1]):
        if count < _FEW and name != nothing:
            found.setdefault(name, f"there are only {count} clips")
    return list(found.items())
