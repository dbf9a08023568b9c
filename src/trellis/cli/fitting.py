"""What ``trellis train`` and ``trellis tune`` share: arguments, folders, the table at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro

from trellis.cli.tables import console, percent, print_json, show, table
from trellis.errors import TrellisError
from trellis.files import check_writable
from trellis.saved.folder import is_saved
from trellis.skeleton import Fold, Recogniser, Skeletons
from trellis.train import Recipe, recipe_named

arg = tyro.conf.arg
CHECKPOINT = ".checkpoint.safetensors"

RecipeName = Annotated[
    Literal["default", "paper", "quick"],
    arg(
        help="default: cosine schedule, weight decay, label smoothing, a little noise on the "
        "inputs; best for use. paper: plain Adam with the paper's learning-rate rule, 2,700 "
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
Device = Annotated[
    str, arg(metavar="auto|cpu|cuda", help="Where to train; auto takes a GPU if there is one.")
]
Precision = Annotated[
    Literal["fp32", "tf32", "bf16"],
    arg(help="How exactly to multiply: tf32 and bf16 are faster on a GPU that knows them."),
]
Protocol = Annotated[
    str | None,
    arg(
        metavar="NAME",
        help="How recordings are divided, where a source knows several ways: fpha 1:1 or "
        "subjects, shrec17 14 or 28. `trellis data info SOURCE` lists the folds.",
    ),
]
FoldName = Annotated[
    str | None,
    arg(
        metavar="NAME|NUMBER",
        help="Which fold to train on and to test, by name or counted from 1, where the protocol "
        "has several. Without it, the one the model was trained on, or the first.",
    ),
]
SkipBad = Annotated[
    bool, arg(help="Leave out recordings that cannot be read, and count them, instead of stopping.")
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
DataSource = Annotated[
    str,
    arg(
        metavar="SOURCE",
        help="fpha:PATH, sbu:PATH, nw-ucla:PATH, shrec17:PATH, mtm1:PATH, npz:FILE or csv:FOLDER "
        "for recordings of your own, or hands45, which is built in.",
    ),
]


def changed_recipe(name: str, epochs: int | None, *, tune: bool) -> Recipe:
    """The recipe, with as many epochs as asked for."""
    if epochs is None:
        return recipe_named(name)
    if epochs < 1:
        raise TrellisError(f"--epochs {epochs}: give a whole number from 1 up")
    return recipe_named(name, **{"tune_epochs" if tune else "epochs": epochs})


def chosen_device(name: str, precision: str) -> torch.device:
    """``auto`` is a GPU if there is one; only a GPU gains by multiplying less exactly."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TrellisError(f"--device {name!r} cannot be used: {reason:.200}") from None
    if device.type == "cpu" and precision != "fp32":
        raise TrellisError(f"--precision {precision} is for a GPU: leave it out on a CPU")
    return device


def chosen_fold(data: Skeletons, wanted: str | None) -> Fold:
    """By name, or by number from 1; the first if none is wanted."""
    if wanted is None:
        return data.folds[0]
    for fold in data.folds:
        if fold.name == wanted:
            return fold
    if wanted.isascii() and wanted.isdecimal() and 1 <= int(wanted) <= len(data.folds):
        return data.folds[int(wanted) - 1]
    names = ", ".join(fold.name for fold in data.folds)
    raise TrellisError(
        f"--fold {wanted!r}: {data.source!r} has {names}; give a name or 1 to {len(data.folds)}"
    )


def check_folder(out: Path, *, overwrite: bool) -> None:
    """Refuse what cannot be written, or should not be, before anybody has waited."""
    if is_saved(out) and not overwrite:
        raise TrellisError(
            f"{str(out)!r} holds a finished model: name another folder, or pass --overwrite"
        )
    if out.is_dir():
        return
    if out.exists():
        raise TrellisError(f"cannot write {str(out)!r}: it is a file; name a folder")
    check_writable(out)


def prepare_folder(out: Path, *, overwrite: bool) -> None:
    """Check a folder, and make it, so that a checkpoint has a place."""
    check_folder(out, overwrite=overwrite)
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise TrellisError(f"cannot make the folder {str(out)!r}: {error.strerror}") from error


def print_result(
    recogniser: Recogniser, data: Skeletons, out: Path, *, resumed: bool, as_json: bool
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
        step["fold"],
        f"{counts['train']:,} + {counts['test']:,}",
        *(percent(scores[name]) for name in ("top1", "mean_class", "train_top1")),
    )
    show(made, to)
    recipe = step["recipe"]
    lines = [
        "",
        f"top-1 and mean-class on the {counts['test']:,} test recordings, training on the "
        f"{counts['train']:,} it was trained on; one seed ({step['seed']}).",
        f"recipe {recipe['name']}, {recipe['epochs']:,} epochs, {step['precision']} on "
        f"{step['device']}",
    ]
    if len(data.folds) > 1:
        lines.append(f"this is one fold of {len(data.folds)}; choose another with --fold")
    lines += left_out(data)
    lines.append(f"wrote {out}")
    to.print("\n".join(lines), soft_wrap=True)


def described(data: Skeletons) -> str:
    """The source's name; what a program made up is called so."""
    return f"{data.source} (synthetic)" if data.synthetic else data.source


def left_out(data: Skeletons) -> list[str]:
    """A line on what could not be read, and the first few reasons."""
    if not data.left_out:
        return []
    count = len(data.left_out)
    shown = [f"  {item.name}: {item.why}" for item in data.left_out[:5]]
    more = [f"  and {count - 5:,} more"] if count > 5 else []
    return [f"left out, because they could not be read: {count:,}", *shown, *more]
