"""``trellis shrink``: train a network on recordings and prune it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from .. import skeleton, training
from ..errors import TrellisError
from ..files import check_writable, locked, remove_drafts, remove_stale_lock, replacing
from ..saving.folder import DESCRIPTION, TENSORS, is_saved, tidy_folder
from ..skeleton import Fold, Layout, Skeletons
from ..skeleton.data.readers.reader import READERS
from ..skeleton.data.readers.text import shown
from .data_arguments import (
    CellCpus,
    CellGpus,
    DataAlias,
    Device,
    FoldName,
    Json,
    OptionalSource,
    Precision,
    Protocol,
    RayAddress,
    SkipBad,
    arg,
    check_apart,
    check_ray,
    chosen_device,
    chosen_fold,
    cluster_of,
    described,
)
from .data_arguments import left_out as left_out_lines
from .output import console, counted, percent, phases_bar, print_json, show, table
from .train import (
    Activation,
    Basis,
    Chunks,
    Frame,
    Heads,
    Overwrite,
    Seed,
    Size,
    check_seed,
)

if TYPE_CHECKING:
    from ..skeleton.shrink import Course, Outcome

# The folder of a run: two models, the curve of a search, a report, and checkpoints meanwhile.


MODEL, DENSE, CURVE, PAGE = "model", "dense", "curve.json", "report.html"
_CHECKPOINTS = ".*.safetensors"


def folder_for(data: str, asked: str, seed: int, fold: str | None) -> Path:
    """Return the default folder; the same command has the same folder, so that it continues."""
    parts = [data, asked, *([f"fold-{fold}"] if fold else []), f"seed-{seed}"]
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.")[-60:] for part in parts)
    return Path("runs") / f"shrink-{'-'.join(words)}"


def check_run(folder: Path, *, overwrite: bool) -> None:
    """Raise if a folder cannot be written to, or holds something else."""
    _check_reachable(folder)
    if finished(folder) and not overwrite and not killed_at_its_end(folder):
        remove_stale_lock(folder)
        raise TrellisError(
            f"{str(folder)!r} holds a finished run: name another folder with --out, or pass "
            "--overwrite"
        )
    if is_saved(folder):
        raise TrellisError(f"{str(folder)!r} holds a model; name another folder with --out")
    for each in (folder, folder / MODEL, folder / DENSE):
        if each.exists() and not each.is_dir():
            raise TrellisError(f"cannot write {str(each)!r}: it is a file; name a folder")
    first = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    if not first.is_dir():
        raise TrellisError(f"cannot make the folder {str(folder)!r}: {str(first)!r} is a file")
    for name in (CURVE, PAGE):  # model/ exists if a run was killed while it wrote
        check_writable(first / name)
    for part in (folder / MODEL, folder / DENSE):
        if part.exists():
            for name in (TENSORS, DESCRIPTION):
                check_writable(part / name)


def _check_reachable(folder: Path) -> None:
    """Raise if the folder's name is invalid, or a parent may not be read."""
    try:
        (folder / MODEL / f".{TENSORS}.0badcafe").exists()  # no path in there is longer
    except OSError as error:
        raise TrellisError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}; name another with --out"
        ) from None


def finished(folder: Path) -> bool:
    """Return whether the folder holds a finished run.

    Its checkpoints are gone, or its report is newer than its model. Another run that will replace
    it may be under way.
    """
    model, page = folder / MODEL, folder / PAGE
    if not is_saved(model):
        return False
    if not begun(folder):
        return True
    written = (model / DESCRIPTION).stat().st_mtime_ns
    return page.exists() and page.stat().st_mtime_ns >= written


def begun(folder: Path) -> bool:
    """Return whether the folder holds checkpoints."""
    return any(folder.glob(_CHECKPOINTS))


def killed_at_its_end(folder: Path) -> bool:
    """Return whether a run was killed after it had written everything.

    Its checkpoints are then older than its model. Newer ones are of a run that will replace it.
    """
    if not (finished(folder) and begun(folder)):
        return False
    written = (folder / MODEL / DESCRIPTION).stat().st_mtime_ns
    return all(each.stat().st_mtime_ns <= written for each in folder.glob(_CHECKPOINTS))


def forget(folder: Path) -> None:
    """Remove the checkpoints of a run."""
    for checkpoint in folder.glob(_CHECKPOINTS):
        training.remove_checkpoint(checkpoint)


def made_in(folder: Path, make: Callable[[], Outcome], *, overwrite: bool) -> tuple[Outcome, bool]:
    """Return the result of a run, and whether it was continued from checkpoints.

    Checkpoints of a run with other settings raise an error, or are removed with ``overwrite``.
    """
    from ..training.checkpoint import OtherSettings

    resumed = begun(folder)
    try:
        return make(), resumed
    except OtherSettings as error:
        if not overwrite:
            raise TrellisError(
                f"{str(folder)!r} holds a run that was begun with other settings: "
                f"{error.differs}. Give those settings, name another folder with --out, or pass "
                "--overwrite to start again"
            ) from None
    forget(folder)
    return make(), False


def write_run(folder: Path, made: Outcome) -> None:
    """Write the models and the curve of a search.

    An old model is removed only after the new dense one is written, because the disk may be full.
    """
    for name in (DENSE, MODEL):  # temporary files of a run that was killed
        tidy_folder(folder / name)
    remove_drafts(folder, CURVE, PAGE)
    made.dense.save(folder / DENSE)
    (folder / MODEL / DESCRIPTION).unlink(
        missing_ok=True
    )  # never an old model beside a new dense one
    if made.curve:
        points = [point.to_dict() for point in made.curve]
        with replacing(folder / CURVE) as [draft]:
            draft.write_text(json.dumps(points, indent=2) + "\n")
    else:
        (folder / CURVE).unlink(missing_ok=True)  # of the overwritten run
    made.small.save(folder / MODEL, nested=made.nested)


@contextmanager
def held_run(folder: Path) -> Iterator[None]:
    """Create and lock the folder; on failure, remove the folders created if they are empty."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrellisError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from error
    try:
        with locked(folder):
            yield
    finally:
        with suppress(OSError):  # not empty
            for each in made:
                each.rmdir()


_COUNTED = 10**18  # connections; more than any memory holds
Sparsity = Annotated[
    tuple[float, ...],
    arg(
        metavar="FRACTION",
        help="Fraction of connections to remove; 0.999 keeps one in 1,000. Several fractions make "
        "nested networks in one folder; `export` and `evaluate` take any rate out of it.",
        help_behavior_hint="(required, or --keep, or --at-least)",
    ),
]
Keep = Annotated[
    tuple[int, ...],
    arg(
        metavar="N",
        help="Number of connections to keep, or several, instead of --sparsity.",
        help_behavior_hint="",
    ),
]
AtLeast = Annotated[
    float | None,
    arg(
        metavar="ACCURACY",
        help="Instead of --sparsity, search for the smallest network with this accuracy (such as "
        "0.9) on training recordings that are held out. Test recordings are not used.",
    ),
]
Out = Annotated[
    Path | None,
    arg(
        metavar="FOLDER",
        help="Folder for the small model (model/), the dense one (dense/) and report.html. The "
        "same command continues a run that was killed. Default: a folder under runs/.",
    ),
]
CourseName = Annotated[
    Literal["default", "quick"],
    arg(
        help="default: 8,000 steps on batches of 128; 12,000 below 1 percent of the connections, "
        "16,000 below 0.1 percent; seconds on a GPU, many minutes on a CPU. quick: 720 steps, for "
        "a first try."
    ),
]
OwnFilters = Annotated[
    int | None,
    arg(
        metavar="N",
        help="Output channels of each head's convolution. Default: 64 with windows, else 128.",
    ),
]
OwnKinds = Annotated[
    tuple[Literal["windows", "coordinates", "velocity", "bones"], ...],
    arg(
        metavar="KIND …",
        help="Input channels of each joint: coordinates, velocity (difference between chunks), "
        "bones (offset from the parent joint); and windows, before the others: parts of the "
        "recording, over which filters then slide. Default: windows coordinates, if the layout "
        "names no body, the basis is cosines and chunks are a multiple of 8; else coordinates.",
    ),
]
OwnFrame = Annotated[
    Frame | None,
    arg(help="Frame of the coordinates. Default: body if the layout names one, else camera."),
]
OwnSize = Annotated[
    Size | None,
    arg(help="Size of skeletons. Default: alike (one size) if the layout has bones."),
]
NoMirror = Annotated[
    bool,
    arg(
        help="Do not mirror recordings. By default, half of the variants are mirrored if the "
        "skeleton has a mirror image and mirrored recordings keep their class."
    ),
]
Length = Annotated[float, arg(metavar="TIMES", help="Factor on the length of every phase.")]


_MODEL = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")


def command_for(words: Sequence[str]) -> Callable[..., int]:
    """Return the command for recordings, or the one for a model and its data.

    >>> command_for(["shop.models:net", "--data", "shop.data:loaders"]).__name__
    'shrink_model'
    >>> command_for(["csv:recordings"]).__name__
    'shrink'
    """
    has_data = any(word == "--data" or word.startswith("--data=") for word in words)
    # A value of --data does not name a model.
    first = next((w for w in words if not w.startswith("-")), "") if words else ""
    if has_data and words and words[0] == first and _MODEL.fullmatch(first):
        from .shrink_model import shrink_model

        return shrink_model
    if any(word.partition("=")[0] == "--quantize" for word in words):
        raise TrellisError(
            "--quantize is for models, not for recordings: trellis shrink shop.models:net --data "
            "shop.data:loaders --quantize int8"
        )
    return shrink


def shrink(
    source: OptionalSource = None,
    /,
    *,
    data: DataAlias = None,
    sparsity: Sparsity = (),
    keep: Keep = (),
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
    filters: OwnFilters = None,
    chunks: Chunks = 32,
    channels: OwnKinds = (),
    activation: Activation = "abs",
    basis: Basis = "cosines",
    frame: OwnFrame = None,
    size: OwnSize = None,
    no_mirror: NoMirror = False,
    ray: RayAddress = None,
    cell_cpus: CellCpus = 1,
    cell_gpus: CellGpus = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Train a network on recordings, prune it while it trains, fine-tune it, and save it.

    Every kept connection is on a path from an input to an output. Networks are trained on random
    variants of the recordings, represented by their discrete cosine transform.

      trellis shrink hands45 --sparsity 0.999
      trellis shrink hands45 --sparsity 0.9 0.99 0.999 --out all
      trellis shrink csv:recordings --at-least 0.9 --out small

    Any other model, with the data to train it on, in your own modules (its options:
    `trellis shrink shop.models:net --data shop.data:loaders --help`):

      trellis shrink shop.models:net --data shop.data:loaders --sparsity 0.99 --out run

    With --ray, a cluster makes the networks that --at-least tries. The rest is made here.

    If a run is killed, the same command continues it and ends with the same model. Then run
    `trellis evaluate small/model wave.csv`, or open small/report.html.
    """
    module = (source or "").partition(":")[0]
    if data is None and source and _MODEL.fullmatch(source) and "." in module:
        raise TrellisError(
            f"expected recordings, got the model {source!r}; pass the data to train it on as "
            "--data package.module:loaders"
        )
    data = _source(source, data)
    settings = _course(course, length, mirror=not no_mirror)
    check_ray(ray, cell_cpus, cell_gpus)
    if ray is not None and at_least is None:
        raise TrellisError("--ray spreads the search of --at-least, and no accuracy is given")
    place = chosen_device(device, precision)
    asked = _asked(sparsity, keep, at_least)
    check_seed(seed)
    runner = None
    if ray is not None:
        runner, _ = cluster_of(ray, cell_cpus, cell_gpus, place.type, precision)
    folder = folder_for(data, asked, seed, fold) if out is None else out
    check_apart(folder, data)
    check_run(folder, overwrite=overwrite)
    try:
        found = skeleton.load_dataset(data, protocol=protocol, skip_bad=skip_bad, progress=True)
    except TrellisError as error:
        if not _MODEL.fullmatch(source or "") or READERS.get(module) is not None:
            raise
        raise TrellisError(
            f"{error}; to shrink a model of your own, also give --data package.module:loaders"
        ) from None
    chosen = chosen_fold(found, fold)
    told: dict[str, Any] = {
        "activation": activation, "basis": basis, "frame": frame, "size": size,
        "kinds": channels, "filters": filters,
    }  # fmt: skip
    fresh = skeleton.Recognizer.fresh(
        found, chosen, chunks=chunks, seed=seed, heads=heads, **_form(found.layout, chunks, told)
    )
    with phases_bar() as watch:
        made, resumed, page = shrink_in(
            folder, fresh, found, chosen, settings, overwrite=overwrite,
            sparsity=sparsity or None, keep=keep or None, at_least=at_least, seed=seed,
            device=place, precision=precision,
            about={"protocol": protocol, "length": length, "skip_bad": skip_bad or None},
            watch=watch, runner=runner,
        )  # fmt: skip
    # Print only when all is written: a reader such as `head` may close the output at any line.
    if not as_json:
        _print(folder, made, found, chosen, resumed=resumed)
    if isinstance(page, TrellisError):
        raise page
    if as_json:
        print_json(_summary(folder, made, found) | {"resumed": resumed})
    else:
        console().print("\n".join(page), soft_wrap=True)
    return 0


def _form(layout: Layout, chunks: int, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form of the network: defaults for the layout, and what was ``told``.

    Windows need the basis of cosines and chunks that can be divided. Without them, the network is
    the paper's.
    """
    from ..skeleton.shrink import filters_for, options_for

    usual = options_for(layout)
    if told["basis"] != "cosines" or chunks % 8:
        usual["kinds"] = ("coordinates",)
    usual["filters"] = filters_for(told["kinds"] or usual["kinds"])
    return usual | {name: value for name, value in told.items() if value not in (None, ())}


def _source(source: str | None, data: str | None) -> str:
    """Return the recordings, named as an argument or with --data."""
    given = [each for each in (source, data) if each is not None]
    if len(given) != 1:
        got = "both" if given else "neither"
        raise TrellisError(
            f"expected SOURCE or --data SOURCE, got {got}; give the recordings once, such as "
            "`trellis shrink hands45 --sparsity 0.99`"
        )
    return given[0]


def shrink_in(
    folder: Path,
    fresh: skeleton.Recognizer,
    data: Skeletons,
    fold: Fold,
    course: Course,
    *,
    overwrite: bool = False,
    **options: Any,
) -> tuple[Outcome, bool, list[str] | TrellisError]:
    """Run `trellis.skeleton.shrink.shrink` in a folder, and write models and page there.

    Returns:
        The outcome, whether a stopped run was continued, and the lines about the page (or the
        reason why none was written).
    """
    from ..skeleton.shrink import shrink as shrunk

    with held_run(folder):
        check_run(folder, overwrite=overwrite)  # another process may have finished meanwhile
        if overwrite and killed_at_its_end(folder):
            forget(folder)
        make = partial(shrunk, fresh, data, fold, course, folder=folder, **options)
        made, resumed = made_in(folder, make, overwrite=overwrite)
        write_run(folder, made)
        page = _page(folder, data, fold)
        forget(folder)  # last: until then the same command can continue
    return made, resumed, page


def _course(name: str, length: float, *, mirror: bool) -> Course:
    from ..skeleton.shrink import course_named
    from ..skeleton.shrink.course import LONGEST

    if not 0 < length <= LONGEST:
        raise TrellisError(
            f"--length {length!r}: give a number above 0 and up to {LONGEST:,}, such as 0.5"
        )
    return course_named(name, mirror=mirror).times(length)


def source_first(words: Sequence[str]) -> list[str]:
    """Move a word that follows the numbers of --sparsity or --keep before them: it is the source.

    >>> source_first(["--sparsity", "0.9", "0.99", "hands45", "--seed", "1"])
    ['hands45', '--sparsity', '0.9', '0.99', '--seed', '1']
    """
    begun = None
    for place, word in enumerate(words):
        if word.startswith("--"):
            begun = place if word in ("--sparsity", "--keep") else None
        elif begun is not None and place > begun + 1 and not _is_number(word):
            return [*words[:begun], word, *words[begun:place], *words[place + 1 :]]
    return list(words)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _asked(sparsity: Sequence[float], keep: Sequence[int], at_least: float | None) -> str:
    """Return the target as words for the folder's name; check that there is one only."""
    for number in keep:
        if abs(number) >= _COUNTED:
            raise TrellisError(
                f"--keep {number!s:.20}… is too large; give the number of connections to keep"
            )
    search = [] if at_least is None else [at_least]
    given = {"sparsity": sparsity, "keep": keep, "at-least": search}
    found = [
        "-".join([name, *(f"{value:g}" for value in values)])
        for name, values in given.items() if values
    ]  # fmt: skip
    if len(found) != 1:
        raise TrellisError(
            "give one of --sparsity (such as 0.999), --keep (a number of connections) and "
            "--at-least (an accuracy to hold, such as 0.9)"
        )
    for fraction in sparsity:
        if not 0 <= fraction < 1:
            meant = f"; did you mean {fraction / 100:g}?" if 10 < fraction < 100 else ""
            raise TrellisError(
                f"--sparsity {fraction:g} is out of range: it is the fraction removed, from 0 to "
                f"below 1{meant}"
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
        "rates": made.rates,
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
    networks = [("dense", made.total, made.dense.history[-1]["metrics"])]
    if made.rates:
        asked = [rate for rate in made.rates if rate["asked"]]
        networks += [("nested", rate["kept"], rate["metrics"]) for rate in asked]
    else:
        networks.append(("small", made.kept, made.small.history[-1]["metrics"]))
    for name, kept, scores in networks:
        rows.add_row(
            name, f"{kept:,}", f"{100 * (1 - kept / made.total):.5g} %",
            *(percent(scores[key]) for key in ("top1", "mean_class", "train_top1")),
        )  # fmt: skip
    show(rows, to)
    lines = [
        "",
        f"{described(data)}, fold {shown(fold.name)}: top-1 and mean-class on "
        f"{counted(len(fold.test), 'test recording')}, trained on {len(fold.train):,}; one seed.",
        *_fewer(made),
        *_mirrored(made),
        *left_out_lines(data),
        *(["continued a run that was stopped"] if resumed else []),
        f"wrote {folder / MODEL}, {folder / DENSE}",
    ]
    to.print("\n".join(lines), soft_wrap=True)


def _page(folder: Path, data: Skeletons, fold: Fold) -> list[str] | TrellisError:
    """Write the report; return lines about it, or the error that prevented it.

    The models are written already, and `trellis report` can make the report again.
    """
    from ..report.model import model_report, models_in
    from .report import written

    try:
        return written(folder / PAGE, model_report(models_in(folder, None), data, fold))
    except TrellisError as error:
        again = shlex.join(["trellis", "report", str(folder)])
        return TrellisError(f"{error}; the models are written, and `{again}` makes the page")


def _fewer(made: Outcome) -> list[str]:
    """Return a line if fewer connections are kept than the budget."""
    if made.kept == made.budget:
        return []
    return [
        f"{counted(made.budget, 'connection')} requested, {made.kept:,} kept: no larger set was "
        "found in which every connection is live."
    ]


def _mirrored(made: Outcome) -> list[str]:
    """Return a line about mirroring, if the layout has a mirror image."""
    from ..report.history import left_and_right

    said = left_and_right(made.small.history[-1])
    if said is None or made.small.layout.mirror is None:
        return []
    return [f"left and right are {said}."]


def _verdict(made: Outcome) -> str:
    from ..report.history import missed

    assert made.at_least is not None
    if made.met:
        return (
            f"{made.budget:,} connections are the fewest of those tried that hold "
            f"{percent(made.at_least)} on the recordings held out. A network of this size, made "
            "from all training recordings:"
        )
    return (
        f"{missed(made.small.history[-1])}. A network of that size, {made.budget:,} connections, "
        "made from all training recordings:"
    )
