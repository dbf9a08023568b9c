"""``trellis shrink``: from recordings to a network that is a thousandth of its size."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from trellis import skeleton
from trellis.cli.arguments import Json
from trellis.cli.device import Device, Precision, chosen_device
from trellis.cli.fitting import Overwrite, Seed, check_seed
from trellis.cli.progress import phases_bar
from trellis.cli.report import written
from trellis.cli.shrink_folder import (
    DENSE,
    MODEL,
    PAGE,
    check_run,
    folder_for,
    forget,
    held_run,
    killed_at_its_end,
    made_in,
    write_run,
)
from trellis.cli.sources import (
    DataSource,
    FoldName,
    Protocol,
    SkipBad,
    check_apart,
    chosen_fold,
    described,
)
from trellis.cli.sources import left_out as left_out_lines
from trellis.cli.tables import console, percent, print_json, show, table
from trellis.cli.train import Activation, Basis, Chunks, Filters, Frame, Heads, Kinds, Size
from trellis.errors import TrellisError
from trellis.report.history import left_and_right, missed
from trellis.report.model import model_report, models_in
from trellis.skeleton import Fold, Skeletons
from trellis.skeleton.readers.text import shown
from trellis.skeleton.shrink import Course, Outcome, course_named, options_for
from trellis.skeleton.shrink import shrink as shrunk
from trellis.skeleton.shrink.course import LONGEST

arg = tyro.conf.arg
_COUNTED = 10**18  # connections: more than any memory holds
Sparsity = Annotated[
    float | None,
    arg(metavar="FRACTION", help="The fraction removed: 0.999 keeps one in a thousand."),
]
Keep = Annotated[int | None, arg(metavar="N", help="How many connections stay, instead.")]
AtLeast = Annotated[
    float | None,
    arg(
        metavar="ACCURACY",
        help="Instead, search for the smallest network that names at least this share (0.9) of the "
        "training recordings that are held out for it. Test recordings are never looked at to "
        "choose.",
    ),
]
Out = Annotated[
    Path | None,
    arg(
        metavar="FOLDER",
        help="Where to write the small model (model/), the dense one (dense/) and report.html. A "
        "run that was killed goes on from there. Without it, a folder under runs/.",
    ),
]
CourseName = Annotated[
    Literal["default", "quick"],
    arg(
        help="default: 8,000 steps in all, on batches of 128, 12,000 to keep less than a "
        "hundredth, 16,000 to keep less than a thousandth: seconds on a GPU, many minutes on a "
        "CPU. quick: 720 steps, for a first look."
    ),
]
OwnFrame = Annotated[
    Frame | None,
    arg(
        help="Whose frame recordings are seen in: the body's, where the layout names one, unless "
        "told."
    ),
]
OwnSize = Annotated[
    Size | None,
    arg(help="How large skeletons are: all alike, where the layout has bones, unless told."),
]
NoMirror = Annotated[
    bool,
    arg(
        help="Never exchange left and right. Without this, half of the variants do, if the "
        "skeleton has a mirror image and the recordings say that it means nothing (no two actions "
        "are each other's)."
    ),
]
TeacherCount = Annotated[
    int | None,
    arg(
        metavar="N",
        help="So many networks that keep a hundredth are made first, each of a dense one of its "
        "own, and the small one learns from their answers too. By default 1 to keep less than a "
        "hundredth, or else none, and none where quick.",
    ),
]
AgreementWeight = Annotated[
    float,
    arg(
        metavar="WEIGHT",
        help="Draw together what a network says of two variants of a recording, so strongly. 1 is "
        "for recordings of one camera, where others will be used; where they will not, it gives "
        "nothing.",
    ),
]
Length = Annotated[
    float, arg(metavar="TIMES", help="Every phase so many times as long: 0.5 is half.")
]


def shrink(
    *,
    data: DataSource,
    sparsity: Sparsity = None,
    keep: Keep = None,
    at_least: AtLeast = None,
    out: Out = None,
    course: CourseName = "default",
    length: Length = 1.0,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "fp32",
    protocol: Protocol = None,
    fold: FoldName = None,
    heads: Heads = 16,
    filters: Filters = 128,
    chunks: Chunks = 32,
    channels: Kinds = ("coordinates",),
    activation: Activation = "abs",
    basis: Basis = "cosines",
    frame: OwnFrame = None,
    size: OwnSize = None,
    no_mirror: NoMirror = False,
    teachers: TeacherCount = None,
    agreement: AgreementWeight = 0.0,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Train a network on recordings, prune it while it trains, tune it, and save it.

    Every connection that is kept is on a path from an input to an output. Networks are trained on
    variants of the recordings, which they see as waves.

      trellis shrink --data hands45 --sparsity 0.999
      trellis shrink --data csv:recordings --at-least 0.9 --out small

    Killed? The same command goes on where it stopped, and ends with the same model. Then
    `trellis evaluate small/model wave.csv`, or open small/report.html.
    """
    settings = _course(course, length, teachers, mirror=not no_mirror, agreement=agreement)
    place = chosen_device(device, precision)
    asked = _asked(sparsity, keep, at_least)
    check_seed(seed)
    folder = folder_for(data, asked, seed, fold) if out is None else out
    check_apart(folder, data)
    check_run(folder, overwrite=overwrite)
    found = skeleton.load(data, protocol=protocol, skip_bad=skip_bad, progress=True)
    chosen = chosen_fold(found, fold)
    told = {"activation": activation, "basis": basis, "frame": frame, "size": size}
    how = options_for(found.layout) | {name: value for name, value in told.items() if value}
    fresh = skeleton.Recogniser.fresh(
        found, chosen, chunks=chunks, kinds=channels, seed=seed, heads=heads, filters=filters,
        **how,
    )  # fmt: skip
    with held_run(folder):
        check_run(folder, overwrite=overwrite)  # somebody may have come first
        if overwrite and killed_at_its_end(folder):
            forget(folder)  # it is asked for anew
        with phases_bar() as watch:
            make = partial(
                shrunk, fresh, found, chosen, settings, sparsity=sparsity, keep=keep,
                at_least=at_least, seed=seed, device=place, precision=precision, folder=folder,
                about={"protocol": protocol, "length": length, "skip_bad": skip_bad or None},
                watch=watch,
            )  # fmt: skip
            made, resumed = made_in(folder, make, overwrite=overwrite)
        write_run(folder, made)
        page = _page(folder, found, chosen)
        forget(folder)  # last: until then the same command goes on
    # Not before all is written: whoever reads this may have seen enough at any line.
    if not as_json:
        _print(folder, made, found, chosen, resumed=resumed)
    if isinstance(page, TrellisError):
        raise page
    if as_json:
        print_json(_summary(folder, made, found) | {"resumed": resumed})
    else:
        console().print("\n".join(page), soft_wrap=True)
    return 0


def _course(name: str, length: float, teachers: int | None, **settings: Any) -> Course:
    if not 0 < length <= LONGEST:
        raise TrellisError(
            f"--length {length!r}: give a number above 0, such as 0.5, and up to {LONGEST:,}"
        )
    told = settings if teachers is None else settings | {"teachers": teachers}
    return course_named(name, **told).times(length)


def _asked(sparsity: float | None, keep: int | None, at_least: float | None) -> str:
    """What was asked for, in a word; one thing only."""
    if keep is not None and abs(keep) >= _COUNTED:
        raise TrellisError(
            f"--keep {keep!s:.20}…: no network has so many connections; give how many stay"
        )
    given = {"sparsity": sparsity, "keep": keep, "at-least": at_least}
    found = [f"{name}-{value:g}" for name, value in given.items() if value is not None]
    if len(found) != 1:
        raise TrellisError(
            "give one of --sparsity (such as 0.999), --keep (a number of connections) and "
            "--at-least (an accuracy to hold, such as 0.9)"
        )
    if sparsity is not None and not 0 <= sparsity < 1:
        meant = f"; did you mean {sparsity / 100:g}?" if 10 < sparsity < 100 else ""
        raise TrellisError(
            f"--sparsity {sparsity:g} is out of range: it is the fraction removed, from 0 to below "
            f"1{meant}"
        )
    if at_least is not None and not 0 < at_least <= 1:
        meant = f"; did you mean {at_least / 100:g}?" if 10 < at_least <= 100 else ""
        raise TrellisError(
            f"--at-least {at_least:g} is out of range: it is a share, above 0 and up to 1{meant}"
        )
    return found[0]


def _summary(folder: Path, made: Outcome, data: Skeletons) -> dict[str, Any]:
    return {
        "out": str(folder),
        "report": str(folder / PAGE),
        "budget": made.budget,
        "kept": made.kept,
        "total": made.total,
        "sparsity": 1 - made.kept / made.total,
        "at_least": made.at_least,
        "met": made.met,
        "dense": made.dense.history[-1]["metrics"],
        "small": made.small.history[-1]["metrics"],
        "loss": made.small.history[-1]["loss"],
        "curve": [point.to_dict() for point in made.curve],
        "left_out": len(data.left_out),
    }


def _print(folder: Path, made: Outcome, data: Skeletons, fold: Fold, *, resumed: bool) -> None:
    to = console()
    if made.curve:
        rows = table(["connections", "removed", "held-out accuracy", ""], words=0)
        for point in made.curve:
            held = "" if made.at_least is None or point.accuracy < made.at_least else "holds"
            share = f"{100 * (1 - point.kept / point.total):.5g} %"
            rows.add_row(f"{point.kept:,}", share, percent(point.accuracy), held)
        show(rows, to)
        to.print()
        to.print(_verdict(made), soft_wrap=True)
        to.print()
    rows = table(["network", "connections", "removed", "top-1", "mean-class", "training"])
    for name, kept, recogniser in (
        ("dense", made.total, made.dense),
        ("small", made.kept, made.small),
    ):
        scores = recogniser.history[-1]["metrics"]
        rows.add_row(
            name, f"{kept:,}", f"{100 * (1 - kept / made.total):.5g} %",
            *(percent(scores[key]) for key in ("top1", "mean_class", "train_top1")),
        )  # fmt: skip
    show(rows, to)
    lines = [
        "",
        f"{described(data)}, fold {shown(fold.name)}: top-1 and mean-class on "
        f"{len(fold.test):,} test recordings, trained on {len(fold.train):,}; one seed.",
        *_fewer(made),
        *_mirrored(made),
        *left_out_lines(data),
        *(["went on from where it had been stopped"] if resumed else []),
        f"wrote {folder / MODEL}, {folder / DENSE}",
    ]
    to.print("\n".join(lines), soft_wrap=True)


def _page(folder: Path, data: Skeletons, fold: Fold) -> list[str] | TrellisError:
    """Write the page, and say where it is and what it lacks; or else why there is none. It is the
    one thing that may still fail, and can be made again by itself."""
    try:
        return written(folder / PAGE, model_report(models_in(folder, None), data, fold))
    except TrellisError as error:
        again = shlex.join(["trellis", "report", str(folder)])
        return TrellisError(f"{error}; the models are written, and `{again}` makes the page")


def _fewer(made: Outcome) -> list[str]:
    """That there are fewer connections than were asked for, where that is so."""
    if made.kept == made.budget:
        return []
    return [
        f"{made.budget:,} connections were asked for: of what was left, no more than {made.kept:,} "
        "could be kept so that all of them live."
    ]


def _mirrored(made: Outcome) -> list[str]:
    """What was found out about left and right, where there was anything to find."""
    said = left_and_right(made.small.history[-1])
    if said is None or made.small.layout.mirror is None:
        return []
    return [f"left and right are {said}."]


def _verdict(made: Outcome) -> str:
    assert made.at_least is not None
    if made.met:
        return (
            f"{made.budget:,} connections are the fewest of those tried that hold "
            f"{percent(made.at_least)} on the recordings held out; this network is now made from "
            "all training recordings:"
        )
    return (
        f"{missed(made.small.history[-1])}. Here is one of its size, {made.budget:,} connections, "
        "made from all training recordings:"
    )
