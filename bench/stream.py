"""Gestures in continuous recordings: the dense network and its pruned ones, beside cut clips.

    python bench/stream.py mtm1 PATH
    python bench/stream.py hands45

MTM-1's videos are continuous and labelled by frame. The recordings of `hands45` are joined to
streams, with pauses in which the hand moves from one to the next. Networks are trained on windows
cut from the training part. The threshold is calibrated on a part that they are not trained on. All
figures are of the test part. Runs are short (the course "quick", one seed, a CPU): they compare
ways, and are no record.

Writes `bench/results/stream.json`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import trellis
from trellis.deploy.native_library import program
from trellis.deploy.stream import Streaming
from trellis.masks import Masks
from trellis.skeleton import GCN, Fold, Layout, Recognizer, Skeletons, load_dataset
from trellis.skeleton.data.layouts import MEDIAPIPE_HAND
from trellis.skeleton.data.readers.mtm1 import CLASSES, TEST, read_video
from trellis.skeleton.data.streams import Continuous, calibrated, cut, joined, judged
from trellis.skeleton.shrink import Maker, course_named, options_for
from trellis.training import unstack

RESULTS = Path(__file__).parent / "results" / "stream.json"
FPS = 30.0
SPARSITIES = (0.0, 0.99, 0.999)
HELD = (23,)  # videos to calibrate on
Clips = list[tuple[Any, int]]


class Material:
    """Streams to train, calibrate and test on, and cut clips to test on."""

    def __init__(
        self, classes: Sequence[str], layout: Layout, windows: tuple[int, ...], most: int,
        train: list[Continuous], held: list[Continuous], test: list[Continuous], clips: Clips,
    ) -> None:  # fmt: skip
        self.classes, self.layout, self.windows, self.most = tuple(classes), layout, windows, most
        self.train, self.held, self.test, self.clips = train, held, test, clips


def mtm1(path: Path) -> Material:
    """The videos; frames without a hand are the class Negative."""
    folder = path / "graphdata" if (path / "graphdata").is_dir() else path
    videos = {}
    for file in sorted(folder.glob("*_original.csv")):
        labels, frames = read_video(file)
        seen = (frames != 0).any(axis=(1, 2))
        videos[int(file.name.split("_")[0])] = Continuous(frames, np.array(labels), seen)
    test = [video for number, video in videos.items() if number in TEST]
    held = [video for number, video in videos.items() if number in HELD]
    train = [video for number, video in videos.items() if number not in (*TEST, *HELD)]
    data = load_dataset(f"mtm1:{path}")
    clips = [(data.sequences[i], int(data.labels[i])) for i in data.folds[0].test]
    return Material(CLASSES, MEDIAPIPE_HAND, (8, 16, 32), 400, train, held, test, clips)


def hands45() -> Material:
    """Gestures with pauses: a fifth of the training recordings to calibrate on."""
    data = load_dataset("hands45")
    fold = data.folds[0]
    random = np.random.default_rng(0)
    classes = ("nothing", *data.classes)

    def stream(which: Any) -> list[Continuous]:
        order = random.permutation(which)
        clips = [(data.sequences[i], int(data.labels[i]) + 1) for i in order]
        return [joined(part, 0, random, noise=0.5) for part in np_split(clips, 6)]

    held, train, test = fold.train[::5], np.setdiff1d(fold.train, fold.train[::5]), fold.test[::4]
    clips = [(data.sequences[i], int(data.labels[i]) + 1) for i in test]
    return Material(
        classes, data.layout, (24, 48, 80), 30, stream(train), stream(held), stream(test), clips
    )


def np_split(clips: Clips, parts: int) -> list[Clips]:
    return [clips[i::parts] for i in range(parts)]


# The network and the length of its training; those of hands45 are smaller, to take minutes.
SIZES = {
    "mtm1": ({"heads": 16, "filters": 128}, 1.0),
    "hands45": ({"heads": 8, "filters": 64}, 0.5),
}


def networks(material: Material, source: str) -> dict[float, Recognizer]:
    """The dense network and the ones made of it, by sparsity."""
    sizes, length = SIZES[source]
    random = np.random.default_rng(1)
    sequences, labels = cut(material.train, material.windows, most=material.most, random=random)
    everyone = np.arange(len(labels))
    data = Skeletons(
        "windows", tuple(sequences), labels, material.classes, tuple(map(str, everyone)),
        material.layout, (Fold("all", everyone, everyone[:1]),),
    )  # fmt: skip
    options = options_for(material.layout) | {"kinds": ("coordinates",)} | sizes
    fresh = Recognizer.fresh(data, data.folds[0], **options)
    fresh = replace(fresh, streaming=Streaming(material.windows, 0))
    x, y = torch.from_numpy(fresh.places(sequences)), torch.from_numpy(labels)
    maker = Maker(fresh, x, y, course_named("quick").times(length), watch=said)
    dense = maker.train([0])
    targets = [round(maker.connections * (1 - s)) for s in SPARSITIES[1:]]
    small = maker.shrink(dense, [0], targets)
    found = {}
    for number, sparsity in enumerate(SPARSITIES):
        model = GCN(**fresh.model.sizes)
        stack, place = (dense, 0) if number == 0 else (small.weights, number - 1)
        unstack({name: each[place : place + 1].cpu() for name, each in stack.items()}, [model])
        if number:
            Masks({name: mask[place] for name, mask in small.masks.items()}).apply(model)
        found[sparsity] = replace(fresh, model=model.eval())
    return found


_told = [0.0]


def said(phase: str, training: Any) -> None:
    if time.monotonic() - _told[0] > 20:
        _told[0] = time.monotonic()
        print(f"  {phase}: epoch {training.epochs_done} of {training.epochs}", flush=True)


def figures(one: Recognizer, material: Material) -> dict[str, Any]:
    """All figures of a network."""
    stream = one.stream()
    held = [stream.shares(each.pushed()) for each in material.held]
    settings = calibrated(material.held, stream, held)
    one = replace(one, streaming=settings)
    rows = [stream.shares(each.pushed()) for each in material.test]
    right = frames = 0
    for each, shares in zip(material.test, rows, strict=True):
        for now in range(settings.lag, len(shares)):
            share = shares[now]
            best = 0 if share is None else int(share.argmax())
            right += best == each.labels[now - settings.lag]
            frames += 1
    found = judged(material.test, rows, settings, one.classes)
    answers = np.concatenate([
        one.probabilities([clip for clip, _ in part]).argmax(axis=1)
        for part in (material.clips[i : i + 100] for i in range(0, len(material.clips), 100))
    ])  # fmt: skip
    clip_labels = np.array([label for _, label in material.clips])
    delays = np.array(found.delays) / FPS
    return {
        "clips_top1": float((answers == clip_labels).mean()),
        "frame_accuracy": right / frames,
        "event_f1": found.f1,
        "gestures": found.gestures, "events": found.events, "right": found.right,
        "delay_seconds": float(np.median(delays)) if len(delays) else None,
        "false_alarms_per_minute": found.false_alarms(FPS),
        "threshold": settings.threshold,
        "lag_frames": settings.lag,
        "minutes": frames / FPS / 60,
    } | cost(one)  # fmt: skip


TIMER = """
#include "stream.h"
#include <math.h>
#include <stdio.h>
#include <time.h>
static trellis_stream stream;
int main(void) {
    static float frame[TRELLIS_FRAME];
    trellis_event event;
    double best = 1e9;
    int told = 0;
    trellis_stream_begin(&stream);
    for (int round = 0; round < 5; round++) {
        const int many = 400;
        const clock_t began = clock();
        for (int t = 0; t < many; t++) {
            for (int i = 0; i < TRELLIS_FRAME; i++) frame[i] = 0.1f * (float)((t * 7 + i) % 13);
            told += trellis_stream_push(&stream, frame, &event);
        }
        const double took = 1e6 * (double)(clock() - began) / CLOCKS_PER_SEC / many;
        if (took < best) best = took;
    }
    printf("%.3f %lu %d\\n", best, (unsigned long)sizeof stream, told);
    return 0;
}
"""


def cost(one: Recognizer) -> dict[str, Any]:
    """Microseconds a frame of the exported C, and its memory; gcc -O2, one core."""
    network = one.network()
    example = torch.zeros(1, len(one.layout.joints), 3 * one.chunks)
    with tempfile.TemporaryDirectory() as scratch:
        about: dict[str, Any] = {"classes": one.classes, "recording": one.recording}
        made = trellis.export_c(network, example, scratch, **about)
        Path(scratch, "timer.c").write_text(TIMER)
        names = [str(Path(scratch, name)) for name in ("model.c", "stream.c", "timer.c")]
        cc = program("gcc") or program("clang")
        assert cc is not None
        timer = str(Path(scratch, "timer"))
        subprocess.run([cc, "-std=c99", "-O2", "-o", timer, *names, "-lm"], check=True)
        took, memory, _ = subprocess.run(
            [timer], capture_output=True, text=True, check=True
        ).stdout.split()
    return {"microseconds_a_frame": float(took), "stream_bytes": int(memory),
            "weights": made.weights, "table_bytes": made.flash}  # fmt: skip


def main(words: list[str]) -> None:
    sources: dict[str, Callable[[], Material]] = {
        "mtm1": lambda: mtm1(Path(words[1])), "hands45": hands45,
    }  # fmt: skip
    material = sources[words[0]]()
    print(f"{words[0]}: {sum(len(s.frames) for s in material.test):,} test frames", flush=True)
    found = {}
    for sparsity, one in networks(material, words[0]).items():
        found[str(sparsity)] = figures(one, material)
        print(sparsity, json.dumps(found[str(sparsity)]), flush=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept[words[0]] = found
    RESULTS.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
