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
        help="Training recipe. default: cosine schedule, weight decay, label smoothing, input "
        "noise. paper: plain Adam with the paper's learning-rate rule, 2700 epochs. quick: small "
        "batches and few epochs, for a first look on a CPU."
    ),
]
Epochs = Annotated[
    int | None, arg(metavar="N", help="Number of epochs (default: from the recipe).")
]
Seed = Annotated[
    int, arg(help="Seed of initial weights and noise. The same seed gives the same model.")
]
Augment = Annotated[
    bool,
    arg(
        help="Data augmentation: rotated, scaled, cropped and time-warped recordings. Improves "
        "accuracy on new recordings; works best with more epochs."
    ),
]
TeacherFolders = Annotated[
    tuple[Path, ...],
    arg(
        metavar="FOLDER …",
        help_behavior_hint="(default: none)",
        help="Models to distill from, in addition to the labels. They must have been trained on "
        "the same recordings and share one architecture.",
    ),
]
TeacherWeight = Annotated[
    float | None,
    arg(
        metavar="SHARE",
        help="Share of the distillation loss, 0 to 1 (default 0.7).",
        help_behavior_hint="",
    ),
]
Temperature = Annotated[
    float | None,
    arg(
        metavar="TIMES",
        help="Softmax temperature of the distillation (default 2).",
        help_behavior_hint="",
    ),
]
Overwrite = Annotated[bool, arg(help="Replace what --out already holds.")]
Out = Annotated[
    Path,
    arg(
        metavar="FOLDER",
        help="Output folder for model.safetensors and model.json. It also holds the checkpoint "
        "from which a stopped run continues.",
    ),
]


def check_seed(seed: int) -> None:
    """Raise if a seed is out of range."""
    if not 0 <= seed < 2**63:
        raise TrellisError(f"--seed {seed}: expected a whole number from 0 to 2^63 - 1")


def changed_recipe(name: str, epochs: int | None, *, tune: bool) -> Recipe:
    """Return the recipe, with the given number of epochs."""
    if epochs is None:
        return recipe_named(name)
    if epochs < 1:
        raise TrellisError(f"--epochs {epochs}: expected a whole number of at least 1")
    return recipe_named(name, **{"tune_epochs" if tune else "epochs": epochs})


def taught(
    folders: tuple[Path, ...], weight: float | None, temperature: float | None
) -> tuple[Teaching | None, dict[str, Any]]:
    """Load the teachers, and return a note about them for the model's history."""
    told = {
        name: value
        for name, value in (("weight", weight), ("temperature", temperature))
        if value is not None
    }
    if not folders:
        for name, value in told.items():
            option = "--teacher-weight" if name == "weight" else "--temperature"
            raise TrellisError(
                f"{option} {value:g} needs a teacher: name the folder of a model with --teacher"
            )
        return None, {}
    models = [Recognizer.load(folder) for folder in folders]
    return Teaching(models, **told), {"teacher": [str(each) for each in folders]}


def check_folder(out: Path, *, overwrite: bool, resumes: bool = False) -> None:
    """Raise early if a model cannot or must not be written to a folder.

    A command that ``resumes`` may also finish a run that was killed after it wrote its model.
    """
    _check_unfinished(out, overwrite=overwrite, resumes=resumes)
    if out.is_dir():
        with locked(out):
            return
    if out.exists():
        raise TrellisError(f"cannot write {str(out)!r}: it is a file; name a folder")
    check_writable(out)


@contextmanager
def held_folder(out: Path, *, overwrite: bool, resumes: bool = False) -> Iterator[None]:
    """Make the folder and lock it against other processes.

    A folder made here that is still empty at the end (no checkpoint, no model) is removed.
    """
    made = not out.exists()
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise TrellisError(f"cannot make the folder {str(out)!r}: {error.strerror}") from error
    try:
        with locked(out):
            # Another process may have finished meanwhile.
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
    """Whether a training was killed after it wrote its model.

    Its checkpoint is then older than the model. A run that overwrites the model has a newer one.
    """
    checkpoint, model = out / CHECKPOINT, out / DESCRIPTION
    if not (checkpoint.exists() and is_saved(out)):
        return False
    return checkpoint.stat().st_mtime_ns <= model.stat().st_mtime_ns


def print_result(
    recogniser: Recognizer, data: Skeletons, out: Path, *, resumed: bool, as_json: bool
) -> None:
    """Print the result of the last step in a recogniser's history."""
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
        lines.append(f"this is one of {len(data.folds)} folds; choose another with --fold")
    lines += left_out(data)
    lines.append(f"wrote {out}")
    to.print("\n".join(lines), soft_wrap=True)
