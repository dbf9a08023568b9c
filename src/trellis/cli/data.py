"""``trellis data``: describe a source of recordings, draw one of them, or write it as CSV."""

from __future__ import annotations

import difflib
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from ..errors import TrellisError
from ..files import check_writable, replacing
from ..skeleton import Skeletons, load_dataset
from ..skeleton.data.dataset import branches, placed, turn_of
from ..skeleton.data.readers.csv_folder import KINDS
from ..skeleton.data.readers.reader import EXPLAINED, HALVES
from ..skeleton.data.readers.recording import csv_text
from ..skeleton.data.readers.text import shown
from .data_arguments import Json, Protocol, SkipBad, Source, arg
from .output import console, counted, print_json, say, show, table

# A page that plays a recording: one HTML file that needs no network.


VIEWS = {"front": (0, 0), "side": (90, 0), "top": (0, 90)}  # rotation and tilt in degrees
GRID = 1000  # positions are whole numbers from -GRID to GRID: a third of the size


def page(
    data: Skeletons, number: int, *, view: str = "front", up: str | None = None, fps: float = 30
) -> str:
    """Return the page for ``data.sequences[number]``."""
    turn = turn_of(data.layout, up)
    name, label = shown(data.names[number]), shown(data.classes[data.labels[number]])
    frames = counted(len(data.sequences[number]), "frame")
    about = f"{shown(data.source)} · {name} · {frames}"
    if data.synthetic:
        about += " · synthetic"
    content = {
        "frames": placed(data.sequences[number], turn, GRID).tolist(),
        "bones": data.layout.bones,
        "joints": [shown(joint) for joint in data.layout.joints],
        "colours": branches(data.layout),
        "views": VIEWS,
        "view": view,
        "fps": fps,
        "grid": GRID,
    }
    parts = {
        "title": html.escape(f"{label} · {name}"),
        "heading": html.escape(label),
        "about": html.escape(about),
        "data": _inside_script(content),
    }
    template = files("trellis.cli").joinpath("animation.html").read_text(encoding="utf-8")
    # One pass: text that is inserted is not searched for placeholders.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def _inside_script(value: Any) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


LISTED = 10  # skipped recordings that are listed; --json has all

Index = Annotated[
    str,
    tyro.conf.Positional,
    arg(metavar="INDEX", help="Recording: its number from 0, or its name."),
]
Out = Annotated[
    Path | None,
    arg(metavar="FILE", help="Output file (default: recording-INDEX.html)."),
]
View = Annotated[Literal["front", "side", "top"], arg(help="Initial view; the page can rotate it.")]
Up = Annotated[
    Literal["auto", "x", "y", "z", "x-down", "y-down", "z-down"],
    arg(help="Axis that points up, or down. auto: known for published sets, otherwise y up."),
]
Rate = Annotated[float, arg(metavar="FRAMES", help="Frames per second.")]


def info(
    source: Source,
    /,
    *,
    protocol: Protocol = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> int:
    """Count recordings, classes, frames, joints and folds, and list skipped recordings.

    This reads everything: a source that passes can be trained on.

      trellis data info csv:recordings --skip-bad
    """
    data = load_dataset(source, protocol=protocol, skip_bad=skip_bad, progress=True)
    if as_json:
        print_json(summary(data))
    else:
        print_summary(data)
    return 0


def animate(
    source: Source,
    index: Index,
    /,
    *,
    out: Out = None,
    view: View = "front",
    up: Up = "auto",
    fps: Rate = 30.0,
    protocol: Protocol = None,
    skip_bad: SkipBad = False,
) -> int:
    """Write a page that plays one recording: play, pause, rotate with the mouse.

    The page is one file that needs no network.

      trellis data show hands45 12 --out hand.html
    """
    if not (np.isfinite(fps) and 0 < fps <= 1000):
        raise TrellisError(
            f"--fps {fps}: expected a number of frames per second up to 1000, such as 30"
        )
    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise TrellisError(f"--out {str(out)!r}: expected a name that ends in .html")
    if out is not None:
        check_writable(out)
    data = load_dataset(source, protocol=protocol, skip_bad=skip_bad, progress=True)
    number = number_of(data, index)
    target = Path(f"recording-{number}.html") if out is None else out
    check_writable(target)
    text = page(data, number, view=view, up=None if up == "auto" else up, fps=fps)
    with replacing(target) as [draft]:
        draft.write_text(text, encoding="utf-8")
    name, label = shown(data.names[number]), shown(data.classes[data.labels[number]])
    say(f"wrote {target}: {name}, {label}, {counted(len(data.sequences[number]), 'frame')}")
    return 0


CsvFile = Annotated[
    Path | None,
    arg(metavar="FILE", help="Output file (default: recording-INDEX.csv)."),
]


def write_csv(
    source: Source,
    index: Index,
    /,
    *,
    out: CsvFile = None,
    protocol: Protocol = None,
    skip_bad: SkipBad = False,
) -> int:
    """Write one recording as CSV: one frame per row, columns joint_x, joint_y, joint_z.

    `trellis evaluate`, csv: folders and exported C read such files.

      trellis data export hands45 167 --out wave.csv
    """
    if out is not None and out.suffix.lower() not in KINDS:
        raise TrellisError(f"--out {str(out)!r}: expected a name that ends in {', '.join(KINDS)}")
    if out is not None:
        check_writable(out)
    data = load_dataset(source, protocol=protocol, skip_bad=skip_bad, progress=True)
    number = number_of(data, index)
    target = Path(f"recording-{number}.csv") if out is None else out
    check_writable(target)
    with replacing(target) as [draft]:
        draft.write_text(csv_text(data.sequences[number], data.layout.joints), encoding="utf-8")
    name, label = shown(data.names[number]), shown(data.classes[data.labels[number]])
    say(f"wrote {target}: {name}, {label}, {counted(len(data.sequences[number]), 'frame')}")
    return 0


Command = (
    Annotated[int, tyro.conf.subcommand("info", constructor=info)]
    | Annotated[int, tyro.conf.subcommand("show", constructor=animate)]
    | Annotated[int, tyro.conf.subcommand("export", constructor=write_csv)]
)


def data(command: Annotated[Command, arg(name="")]) -> int:
    """Look at recordings before training on them.

    Describe a source, draw one of its recordings, or write it as CSV:

      trellis data info hands45
      trellis data show hands45 12 --out hand.html
      trellis data export hands45 167 --out wave.csv
    """
    return command


def number_of(data: Skeletons, index: str) -> int:
    if index.isascii() and index.isdecimal() and len(index) < 19 and int(index) < len(data):
        return int(index)
    if index in data.names:
        return data.names.index(index)
    close = difflib.get_close_matches(index, data.names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise TrellisError(
        f"{data.source!r} has no recording {index!r:.200}: give a number from 0 to "
        f"{len(data) - 1}, or a name such as {data.names[0]!r}{hint}"
    )


def summary(data: Skeletons) -> dict[str, Any]:
    """Return what ``info`` prints, for programs."""
    lengths = np.array([len(sequence) for sequence in data.sequences])
    return {
        "source": data.source,
        "synthetic": data.synthetic,
        "recordings": len(data),
        "frames": data.frames,
        "lengths": {
            "shortest": int(lengths.min()),
            "median": float(np.median(lengths)),
            "longest": int(lengths.max()),
        },
        "layout": {
            "name": data.layout.name,
            "joints": list(data.layout.joints),
            "parents": list(data.layout.parents),
            "roots": list(data.layout.roots),
        },
        "classes": [
            {
                "name": name,
                "recordings": int((data.labels == label).sum()),
                "frames": int(lengths[data.labels == label].sum()),
            }
            for label, name in enumerate(data.classes)
        ],
        "folds": [
            {"name": fold.name, "train": len(fold.train), "test": len(fold.test)}
            for fold in data.folds
        ],
        "left_out": [{"name": item.name, "why": item.why} for item in data.left_out],
    }


def print_summary(data: Skeletons) -> None:
    """Print the summary as text and tables."""
    found, out = summary(data), console()
    lengths, layout = found["lengths"], data.layout
    roots = ", ".join(shown(layout.joints[root]) for root in layout.roots)
    made_up = " Synthetic: made by a program." if data.synthetic else ""
    out.print(
        f"{shown(data.source)}: {counted(len(data), 'recording')} of "
        f"{counted(len(data.classes), 'class', 'classes')}, "
        f"{counted(data.frames, 'frame')}.{made_up}",
        f"lengths: {lengths['shortest']:,} to {lengths['longest']:,} frames, median "
        f"{lengths['median']:g}",
        f"joints: {len(layout.joints)} ({layout.name}), {counted(len(layout.bones), 'bone')}, "
        f"centred on {roots}",
        "",
        sep="\n",
        soft_wrap=True,
    )
    folds = table(["fold", "train", "test"])
    for fold in found["folds"]:
        folds.add_row(shown(fold["name"]), f"{fold['train']:,}", f"{fold['test']:,}")
    show(folds, out)
    if any(fold["name"] == HALVES for fold in found["folds"]):
        out.print(EXPLAINED, soft_wrap=True)
    out.print()
    classes = table(["class", "recordings", "frames"])
    for item in found["classes"]:
        cells = (f"{item['recordings']:,}", f"{item['frames']:,}")
        classes.add_row(shown(item["name"]), *cells, style="" if item["recordings"] else "red")
    show(classes, out)
    if data.left_out:
        out.print(f"\nleft out: {len(data.left_out):,}", soft_wrap=True)
        for left in data.left_out[:LISTED]:
            out.print(f"- {shown(left.name)}: {shown(left.why)}", soft_wrap=True)
        if len(data.left_out) > LISTED:
            out.print(f"- and {len(data.left_out) - LISTED:,} more (see --json)", soft_wrap=True)
