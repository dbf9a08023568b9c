"""``trellis evaluate``: measure a model's accuracy, or name the action in a recording."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from .. import skeleton
from ..errors import TrellisError
from ..skeleton.data.readers.text import shown
from .data_arguments import (
    Json,
    OwnFold,
    OwnProtocol,
    OwnSparsity,
    SkipBad,
    arg,
    described,
    fold_for,
    left_out,
    protocol_for,
)
from .model_arguments import model_folder
from .output import console, percent, print_json, say, show, table

HubFolder = Annotated[
    Path,
    tyro.conf.Positional,
    arg(
        metavar="FOLDER|hf:OWNER/NAME",
        help="Model folder that `trellis train`, `prune` or `tune` wrote, or a model on the "
        "Hugging Face Hub.",
    ),
]
Recordings = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    arg(
        metavar="[RECORDING ...]",
        help="Files to name the action of, one recording each (.csv, .txt, .npz, .json).",
        help_behavior_hint="(any number, instead of --data)",
    ),
]
Labelled = Annotated[
    str | None,
    arg(
        metavar="SOURCE",
        help="Labelled recordings to test on, named as for `trellis train`.",
    ),
]
Split = Annotated[
    str | None,
    arg(
        metavar="test|train|all",
        help="Part of --data to test on.",
        help_behavior_hint="(default: test)",
    ),
]
Top = Annotated[
    int | None,
    arg(
        metavar="N",
        help="Number of confusions to show (default 10), or of actions per recording (default 3).",
    ),
]


def evaluate(
    model: HubFolder,
    recordings: Recordings = (),
    /,
    *,
    data: Labelled = None,
    sparsity: OwnSparsity = None,
    split: Split = None,
    protocol: OwnProtocol = None,
    fold: OwnFold = None,
    skip_bad: SkipBad = False,
    top: Top = None,
    as_json: Json = False,
) -> int:
    """Measure a model's accuracy, class by class, or name the action in a recording.

    Give a set of labelled recordings, or files to name the action of:

      trellis evaluate hands --data hands45
      trellis evaluate hands wave.csv point.csv
      trellis evaluate hf:OWNER/NAME wave.csv
      trellis evaluate all --data hands45 --sparsity 0.995

    With --data, it prints the accuracy over all recordings (top-1), the mean over classes, each
    class, and the confusions, worst first. Without --protocol and --fold, the data is divided as
    in the model's training, so that it is not tested on training data. With files, it prints the
    likeliest actions and their probabilities.
    """
    if (data is None) == (not recordings):
        raise TrellisError(
            "expected either --data SOURCE or files, such as: evaluate FOLDER wave.csv"
        )
    if top is not None and top < 1:
        raise TrellisError(f"--top {top}: expected a whole number of at least 1")
    if split not in (None, "test", "train", "all"):
        raise TrellisError(f"--split {split!r}: expected test, train or all")
    if data is None:
        for name, value in {"split": split, "protocol": protocol, "fold": fold}.items():
            if value is not None:
                raise TrellisError(f"--{name} {value!r} is for --data: leave it out with files")
    recogniser = skeleton.Recognizer.load(_local(model), sparsity=sparsity)
    if data is None:
        return _name(recogniser, recordings, top=top or 3, skip_bad=skip_bad, as_json=as_json)
    split, protocol = split or "test", protocol_for(recogniser, data, protocol)
    found = skeleton.load_dataset(data, protocol=protocol, skip_bad=skip_bad, progress=True)
    # With --split all, the division does not matter.
    part = found.folds[0] if split == "all" and fold is None else fold_for(recogniser, found, fold)
    chosen = {"test": part.test, "train": part.train, "all": np.arange(len(found))}[split]
    if len(chosen) == 0:
        raise TrellisError(f"fold {part.name!r} of {data!r} has no {split} recordings")
    result = skeleton.evaluated(recogniser, found, chosen)
    if as_json:
        about = {"model": str(model), "source": found.source, "synthetic": found.synthetic,
                 "protocol": protocol, "fold": None if split == "all" else part.name,
                 "split": split, "left_out": len(found.left_out)}  # fmt: skip
        print_json(about | result.to_dict())
        return 0
    where = f"all of {described(found)}"
    if split != "all":
        where = f"the {split} recordings of {described(found)} ({shown(part.name)})"
    _print(result, where, top or 10)
    if lines := left_out(found):
        console().print("\n".join(["", *lines]), soft_wrap=True)
    return 0


def _local(model: Path) -> Path:
    """Return the folder of a model, after downloading it if it is on the Hub."""
    if not str(model).startswith("hf:"):
        return model_folder(str(model))
    from ..integrations.hub import download  # optional, and slow to import

    return download(str(model).removeprefix("hf:"))


def _print(result: skeleton.Evaluation, where: str, top: int) -> None:
    out = console()
    made = table(["class", "recordings", "right", "accuracy"])
    seen = [i for i in range(len(result.classes)) if result.counts[i]]
    for i in sorted(seen, key=lambda i: (result.accuracy(i), result.classes[i])):
        count, right = int(result.counts[i]), int(result.matrix[i, i])
        made.add_row(shown(result.classes[i]), f"{count:,}", f"{right:,}", percent(right / count))
    made.add_section()
    right = int(np.trace(result.matrix))
    made.add_row("all", f"{result.recordings:,}", f"{right:,}", percent(result.top1), style="bold")
    show(made, out)
    out.print()
    if confusions := result.confusions():
        pairs = table(["class", "taken for", "times", "of"], words=2)
        for one in confusions[:top]:
            names = (shown(one.truth), shown(one.taken_for))
            pairs.add_row(*names, f"{one.count:,}", f"{one.of:,}")
        show(pairs, out)
        rest = len(confusions) - top
        out.print(f"and {rest:,} more pairs (--top {len(confusions)})\n" if rest > 0 else "")
    out.print(
        f"top-1 {percent(result.top1)}, mean-class {percent(result.mean_class)}, on {where}",
        soft_wrap=True,
    )


def _name(
    recogniser: skeleton.Recognizer,
    paths: tuple[Path, ...],
    *,
    top: int,
    skip_bad: bool,
    as_json: bool,
) -> int:
    read: list[tuple[Path, skeleton.Frames]] = []  # a list: one file may be given twice
    bad: list[tuple[Path, str]] = []
    for path in paths:
        try:
            read.append((path, skeleton.read_recording(path, recogniser.layout)))
        except TrellisError as error:
            if not skip_bad:
                raise
            bad.append((path, str(error)))
    if not read:
        raise TrellisError(
            f"no recordings to name; {len(bad):,} of {len(paths):,} left out: {bad[0][1]}"
        )
    rows = recogniser.probabilities([frames for _, frames in read])
    named = [
        (path, len(frames), _ranked(recogniser, row))
        for (path, frames), row in zip(read, rows, strict=True)
    ]
    if as_json:
        print_json(
            {
                "recordings": [
                    {"file": str(path), "frames": frames, "action": next(iter(likely)),
                     "probabilities": likely}
                    for path, frames, likely in named
                ],
                "left_out": [{"file": str(path), "why": why} for path, why in bad],
            }
        )  # fmt: skip
        return 0
    made = table(["recording", "action", "probability"], words=2)
    for path, _, likely in named:
        for place, (action, share) in enumerate(list(likely.items())[:top]):
            made.add_row("" if place else shown(path), shown(action), percent(share))
        made.add_section()
    show(made, console())
    if bad:
        told = (f"  {shown(why)}" for _, why in bad)
        say(f"left out: {len(bad):,} of {len(paths):,}", *told, to=sys.stderr)
    return 0


def _ranked(recogniser: skeleton.Recognizer, row: Any) -> dict[str, float]:
    order = np.argsort(-row, kind="stable")
    return {recogniser.classes[i]: float(row[i]) for i in order}
