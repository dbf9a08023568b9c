"""What ``trellis train`` and ``trellis tune`` share: arguments, folders, the table at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..errors import TrellisError
from ..files import check_writable, locked, remove_stale_lock
from ..saving.folder import DESCRIPTION, is_saved, tidy_folder
from ..skeleton import Recognizer, Skeletons, Teaching
from ..skeleton.data.readers.text import shown
from ..training import Recipe, recipe_named, remove_checkpoint
from ..training.provenance import in_words
from .data_arguments import described, left_out
from .output import console, counted, percent, print_json, show, table

arg = tyro.conf.arg
CHECKPOINT = ".checkpoint.safetensors"

RecipeName = Annotated[
    Literal["default", "paper", "quick"],
    arg(
        help="default: cosine schedule, weight decay, label smoothing, a little noise on the "
        "inputs; best for use. paper: plain Adam with the paper's learning-rate rule, 2700 "
        "epochs; to compare with its figures. quick: small batches and few epochs, for a first "
        "look on a CPU."
    ),
]
Epochs = Annotated[
    int | None, arg(metavar="N", help="How many times to see the data, instead of the recipe's.")
]
Seed = Annotated[
    int, arg(help="For the first weights and the noise. The same seed gives the same model.")
]
Augment = Annotated[
    bool,
    arg(
        help="Show the network variants of the recordings: turned, scaled, cropped, at other "
        "speeds. More accurate on new recordings; best with more epochs."
    ),
]
TeacherFolders = Annotated[
    tuple[Path, ...],
    arg(
        metavar="FOLDER …",
        help_behavior_hint="(default: none)",
        help="Learn from what these models say as well as from labels: trained on the same "
        "recordings, all of one architecture.",
    ),
]
TeacherWeight = Annotated[
    float | None,
    arg(
        metavar="SHARE",
        help="Which share of the loss comes from teachers: 0.7, unless told.",
        help_behavior_hint="",
    ),
]
Temperature = Annotated[
    float | None,
    arg(
        metavar="TIMES",
        help="How much teachers' answers are flattened, so that lesser ones are heard too: 2, "
        "unless told.",
        help_behavior_hint="",
    ),
]
Overwrite = Annotated[bool, arg(help="Replace the model that --out already holds.")]
Out = Annotated[
    Path,
    arg(
        metavar="FOLDER",
        help="Where to write the model: model.safetensors and model.json. A run that was killed "
        "goes on from a checkpoint there.",
    ),
]


def check_seed(seed: int) -> None:
    """Refuse a number that no generator can begin with."""
    if not 0 <= seed < 2**63:
        raise TrellisError(f"--seed {seed}: give a whole number from 0 up to 2^63 - 1")


def changed_recipe(name: str, epochs: int | None, *, tune: bool) -> Recipe:
    """The recipe, with as many epochs as asked for."""
    if epochs is None:
        return recipe_named(name)
    if epochs < 1:
        raise TrellisError(f"--epochs {epochs}: give a whole number from 1 up")
    return recipe_named(name, **{"tune_epochs" if tune else "epochs": epochs})


def taught(
    folders: tuple[Path, ...], weight: float | None, temperature: float | None
) -> tuple[Teaching | None, dict[str, Any]]:
    """The teachers in these folders, and what a history says of where they are."""
    told = {
        name: value
        for name, value in (("weight", weight), ("temperature", temperature))
        if value is not None
    }
    if not folders:
        for name, value in told.items():
            option = "--teacher-weight" if name == "weight" else "--temperature"
            raise TrellisError(
                f"{option} {value:g} is how teachers teach, and there is none: name the folder of "
                "a model with --teacher"
            )
        return None, {}
    models = [Recognizer.load(folder) for folder in folders]
    return Teaching(models, **told), {"teacher": [str(each) for each in folders]}


def check_folder(out: Path, *, overwrite: bool, resumes: bool = False) -> None:
    """Refuse what cannot be written, or should not be, before anybody has waited. A command that
    ``resumes`` finishes one of its kind that was killed when its model had been written."""
    _check_unfinished(out, overwrite=overwrite, resumes=resumes)
    if out.is_dir():
        with locked(out):
            return
    if out.exists():
        raise TrellisError(f"cannot write {str(out)!r}: it is a file; name a folder")
    check_writable(out)


@contextmanager
def held_folder(out: Path, *, overwrite: bool, resumes: bool = False) -> Iterator[None]:
    """Make the folder, and hold it: nobody else may write there meanwhile.

    One that was made here and is still empty in the end (no checkpoint, no model) is removed.
    """
    made = not out.exists()
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise TrellisError(f"cannot make the folder {str(out)!r}: {error.strerror}") from error
    try:
        with locked(out):
            # Somebody may have come first.
            _check_unfinished(out, overwrite=overwrite, resumes=resumes)
            tidy_folder(out)
            if overwrite and _killed_at_its_end(out):
                remove_checkpoint(out / CHECKPOINT)
            yield
    finally:
        if made:
            with suppress(OSError):  # not empty
                out.rmdir()


def _check_unfinished(out: Path, *, overwrite: bool, resumes: bool) -> None:
    if overwrite or not is_saved(out) or (resumes and _killed_at_its_end(out)):
        return
    remove_stale_lock(out)
    raise TrellisError(
        f"{str(out)!r} holds a finished model: name another folder, or pass --overwrite"
    )


def _killed_at_its_end(out: Path) -> bool:
    """Whether a training was killed when its model had been written: its checkpoint is older. What
    overwrites that model leaves newer ones."""
    checkpoint, model = out / CHECKPOINT, out / DESCRIPTION
    if not (checkpoint.exists() and is_saved(out)):
        return False
    return checkpoint.stat().st_mtime_ns <= model.stat().st_mtime_ns


def print_result(
    recogniser: Recognizer, data: Skeletons, out: Path, *, resumed: bool, as_json: bool
) -> None:
    """What the last step of a recogniser's history came to."""
    step: dict[str, Any] = recogniser.history[-1]
    if as_json:
        print_json({"out": str(out), "resumed": resumed, "left_out": len(data.left_out)} | step)
        return
    to = console()
    made = table(["data", "fold", "recordings", "top-1", "mean-class", "training"], words=2)
    scores = step["metrics"]
    counts = step["recordings"]
    made.add_row(
        described(data),
        shown(step["fold"]),
        f"{counts['train']:,} + {counts['test']:,}",
        *(percent(scores[name]) for name in ("top1", "mean_class", "train_top1")),
    )
    show(made, to)
    recipe = step["recipe"]
    lines = [
        "",
        f"top-1 and mean-class on {counted(counts['test'], 'test recording')}; training: top-1 on "
        f"the {counts['train']:,} for training; one seed ({step['seed']}).",
        f"recipe {recipe['name']}, {counted(recipe['epochs'], 'epoch')}, "
        f"{step['precision']}: {in_words(step['seconds'])} on {step['hardware']}",
    ]
    if len(data.folds) > 1:
        lines.append(f"this is one fold of {len(data.folds)}; choose another with --fold")
    lines += left_out(data)
    lines.append(f"wrote {out}")
    to.print("\n".join(lines), soft_wrap=True)
