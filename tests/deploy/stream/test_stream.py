"""Gestures in a stream: the same events in Python, C and WebAssembly, and windows by definition."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trellis
from tests.deploy.tools import SANITIZED, compiled, ran, tool
from trellis.deploy.stream import Decider, Stream, Streaming, Windows
from trellis.errors import TrellisError
from trellis.skeleton import GCN, Layout, Normalization, Recognizer, chunked

ARM = Layout("arm", ("shoulder", "elbow", "hand"), parents=(-1, 0, 1))
CLASSES = ("nothing", "wave", "point")
SETTINGS = Streaming((5, 12, 24), nothing=0, threshold=0.5, release=0.3, hold=2, every=1)


def recogniser(basis: str = "cosines", settings: Streaming = SETTINGS) -> Recognizer:
    """An untrained one that is sure of itself, so that random motions are gestures."""
    torch.manual_seed(3)
    model = GCN(3, 8 * 3, 3, heads=2, filters=12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
    normalization = Normalization((0,), 0.5, bones=ARM.bones, length=0.7)
    return Recognizer(
        model, 8, normalization, CLASSES, ARM, basis=basis, streaming=settings
    )  # fmt: skip


def motion(frames: int, seed: int) -> list[Any]:
    """Motions that change now and then, and frames without a skeleton."""
    random = np.random.default_rng(seed)
    found: list[Any] = []
    while len(found) < frames:
        count, speed = int(random.integers(8, 50)), random.normal(size=(3, 3))
        start = random.normal(size=(3, 3)) + np.array([[100, -40, 7]])
        if random.random() < 0.2:
            found += [None] * int(random.integers(1, 9))
        for t in range(count):
            found.append((start + np.sin(0.4 * t * speed)).astype(np.float32))
    return found[:frames]


@given(window=st.integers(1, 40), chunks=st.integers(1, 12), more=st.integers(0, 30))
@settings(max_examples=60)
def test_windows_from_sums_are_those_that_are_cut(window: int, chunks: int, more: int) -> None:
    """Over a ring that has gone round, with sums that wrap."""
    random = np.random.default_rng(window * 100 + chunks)
    units = random.integers(-(2**20), 2**20, (window + more, 6)).astype(np.int32)
    rows = window + 1
    sums = np.zeros((rows, 6), np.uint32)
    sums[0] = 2**32 - 5
    for t, row in enumerate(units):
        sums[(t + 1) % rows] = sums[t % rows] + row.view(np.uint32)
    found = Windows(window, chunks).means(sums, np.array([len(units)], np.int64), 0.5)
    cut = (units[-window:] * 0.5).astype(np.float32).reshape(window, 2, 3)
    wanted = chunked([cut], chunks)[0].reshape(2, chunks, 3).transpose(1, 0, 2)
    np.testing.assert_allclose(found[0].reshape(chunks, 2, 3), wanted, rtol=1e-5, atol=0.6)


@pytest.mark.parametrize("basis", ["chunks", "cosines"])
def test_probabilities_are_those_of_windows_cut_out(basis: str) -> None:
    one = recogniser(basis)
    frames = [frame for frame in motion(60, 1) if frame is not None]
    stream = one.stream()
    for t, frame in enumerate(frames, 1):
        stream.push(frame)
        cuts = [np.stack(frames[t - w : t]) for w in SETTINGS.windows if w <= t]
        if not cuts:
            assert stream.probabilities is None
            continue
        assert stream.probabilities is not None
        wanted = one.probabilities(cuts).mean(axis=0)
        np.testing.assert_allclose(stream.probabilities, wanted, atol=2e-3)


def test_all_at_once_is_as_frame_by_frame() -> None:
    stream = recogniser().stream()
    frames = motion(300, 4)
    found = stream.shares(frames)
    for frame, shares in zip(frames, found, strict=True):
        stream.push(frame)
        assert (shares is None) == (stream.probabilities is None)
        if shares is not None and stream.probabilities is not None:
            np.testing.assert_allclose(shares, stream.probabilities, atol=1e-4)


def literal(settings: Streaming, shares: list[list[float] | None]) -> list[tuple[int, int]]:
    """The rule of `Streaming`, one gesture after the other, looked up in the whole past.

    Returns the class of each event and the frame at which it was told.
    """
    events, active, ended, state_from = [], -1, (-1, -(10**9)), 0

    def best(row: list[float] | None) -> int:
        if row is None:
            return -1
        order = [i for i in range(len(row)) if i != settings.nothing]
        top = max(order, key=lambda i: (row[i], -i))
        return top if row[top] >= settings.threshold else -1

    for now in range(len(shares)):
        recent = shares[max(now - settings.hold + 1, state_from) : now + 1]
        if active >= 0:
            against = [
                row is None or row[active] < settings.release or best(row) not in (-1, active)
                for row in recent
            ]
            if len(against) == settings.hold and all(against):
                events.append((active, now))
                ended, active = (active, now), -1
        if active < 0:
            last = [best(row) for row in shares[max(now - settings.hold + 1, 0) : now + 1]]
            one = last[-1]
            again = one == ended[0] and now - ended[1] < settings.apart
            if one >= 0 and last == [one] * settings.hold and not again:
                active, state_from = one, now + 1
    return events


@given(data=st.data())
@settings(max_examples=150)
def test_decisions_follow_the_rule(data: st.DataObject) -> None:
    choice = Streaming((4,), nothing=data.draw(st.sampled_from([None, 0])), threshold=0.5,
                       release=0.25, hold=data.draw(st.integers(1, 3)))  # fmt: skip
    level = st.sampled_from([0.0, 0.2, 0.25, 0.3, 0.5, 0.7])
    row = st.one_of(st.none(), st.lists(level, min_size=3, max_size=3))
    shares = data.draw(st.lists(row, max_size=40))
    decide = Decider(choice, CLASSES)
    told = []
    for now, each in enumerate(shares):
        event = decide(now, None if each is None else np.array(each))
        if event is not None:
            told.append((event.label, now))
            assert 0 <= event.start <= event.end <= now
    assert told == literal(choice, shares)


def test_one_gesture_gives_one_event_with_its_start_and_end() -> None:
    """Of a network that knows which of two places a hand is at."""

    def predict(recordings: list[Any]) -> Any:
        high = np.array([[each[:, 0, 1].mean()] for each in recordings])
        return np.hstack([0 * high, 20 * high - 10])

    choice = Streaming((6, 10), nothing=0, hold=2)
    stream = Stream(choice, ("nothing", "up"), 1, 4, 1.0, predict)
    frames = np.zeros((120, 1, 3), np.float32)
    frames[30:50, 0, 1] = frames[80:110, 0, 1] = 1
    events = stream.all(frames)
    assert [event.name for event in events] == ["up", "up"]
    for event, (start, end) in zip(events, [(30, 49), (80, 109)], strict=True):
        assert abs(event.start - start) <= 3 and abs(event.end - end) <= 3


def by_c(folder: Path, frames: list[Any]) -> list[tuple[str, int, int, float]]:
    sources = [folder / name for name in ("model.c", "stream.c", "stream_main.c")]
    program = compiled(sources, folder / "stream", *SANITIZED)
    rows = [np.zeros(9) if frame is None else frame.reshape(-1) for frame in frames]
    done = ran(program, "\n".join(",".join(map(repr, row.tolist())) for row in rows))
    assert done.returncode == 0, done.stderr
    lines = [line.split(",") for line in done.stdout.splitlines()]
    return [(name, int(start), int(end), float(p)) for name, start, end, p in lines]


NODE = """
import {readFileSync} from "node:fs";
const [folder] = process.argv.slice(2);
const {openNetwork, openStream} = await import(`${folder}/model.mjs`);
const stream = openStream(await openNetwork(readFileSync(`${folder}/model.wasm`)));
const frames = JSON.parse(readFileSync(`${folder}/frames.json`));
const found = frames.map(frame => stream.push(frame && Float32Array.from(frame)));
console.log(JSON.stringify([...found, stream.close()].filter(event => event)));
"""


def by_wasm(folder: Path, frames: list[Any]) -> list[tuple[str, int, int, float]]:
    node = tool("node", package="nodejs")
    (folder / "frames.json").write_text(
        json.dumps([None if frame is None else frame.reshape(-1).tolist() for frame in frames])
    )
    (folder / "program.mjs").write_text(NODE)
    done = subprocess.run(
        [node, str(folder / "program.mjs"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [
        (CLASSES[event["label"]], event["start"], event["end"], event["probability"])
        for event in json.loads(done.stdout)
    ]


def test_the_same_events_in_python_c_and_webassembly(tmp_path: Path) -> None:
    one = recogniser()
    frames = motion(900, 5)
    wanted = [(e.name, e.start, e.end, e.probability) for e in one.stream().all(frames)]
    assert len(wanted) >= 10 and {name for name, *_ in wanted} == {"wave", "point"}
    example = torch.zeros(1, 3, 24)
    about: dict[str, Any] = {"classes": CLASSES, "recording": one.recording}
    trellis.export_c(one.network(), example, tmp_path / "c", **about)
    trellis.export_wasm(one.network(), example, tmp_path / "wasm", **about)
    run_time = trellis.Runtime(tmp_path / "c" / "model.trellis")
    of_file = [(e.name, e.start, e.end, e.probability) for e in run_time.stream().all(frames)]
    for found in (of_file, by_c(tmp_path / "c", frames), by_wasm(tmp_path / "wasm", frames)):
        assert [event[:3] for event in found] == [event[:3] for event in wanted]
        np.testing.assert_allclose([e[3] for e in found], [e[3] for e in wanted], atol=2e-4)


def test_settings_are_saved_with_the_model(tmp_path: Path) -> None:
    recogniser().save(tmp_path / "model")
    assert Recognizer.load(tmp_path / "model").streaming == SETTINGS
    plain = replace(recogniser(), streaming=None)
    assert plain.stream().settings.nothing == 0  # by its name


def test_frames_that_are_refused_change_nothing() -> None:
    stream, other = recogniser().stream(), recogniser().stream()
    frames = [frame for frame in motion(40, 2) if frame is not None]
    for frame in frames:
        for bad in (np.full((3, 3), np.nan), np.full((3, 3), 1e9), np.zeros((2, 3))):
            with pytest.raises(TrellisError, match="frame"):
                stream.push(bad)
        assert stream.push(frame) == other.push(frame)
        for one, two in zip([stream.probabilities], [other.probabilities], strict=True):
            assert (one is None and two is None) or (np.asarray(one) == np.asarray(two)).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"windows": ()}, {"windows": (5, 5)}, {"windows": (9, 5)}, {"windows": (0,)},
        {"windows": (5000,)}, {"threshold": 1.0}, {"threshold": 0.2}, {"release": 0.0},
        {"hold": 0}, {"every": 0}, {"nothing": -1}, {"nothing": 3},
    ],
)  # fmt: skip
def test_settings_out_of_range(changes: dict[str, Any]) -> None:
    with pytest.raises(TrellisError, match=next(iter(changes))):
        recogniser(settings=replace(SETTINGS, **changes)).stream()
