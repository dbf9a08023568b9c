"""``trellis train`` and ``trellis tune``: train a graph network on recordings, or fine-tune one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from .. import skeleton, training
from ..errors import TrellisError
from ..files import check_writable, locked, remove_stale_lock
from ..saving.folder import DESCRIPTION, is_saved, tidy_folder
from ..skeleton import Skeletons
from ..skeleton.data.readers.text import shown
from .data_arguments import (
    DataSource,
    Device,
    FoldName,
    Json,
    ModelFolder,
    OwnFold,
    OwnProtocol,
    Precision,
    Protocol,
    SkipBad,
    Source,
    arg,
    check_apart,
    chosen_device,
    chosen_fold,
    described,
    fold_for,
    left_out,
    protocol_for,
)
from .output import console, counted, percent, print_json, show, table, training_bar

Heads = Annotated[int, arg(help="Number of attention matrices over the joints.")]
Filters = Annotated[int, arg(help="Output channels of each head's convolution.")]
Blocks = Annotated[int, arg(help="Number of blocks of attention and convolution.")]
Shared = Annotated[bool, arg(help="One convolution shared by all heads.")]
Combine = Annotated[
    Literal["concat", "sum"], arg(help="How heads are combined: concatenated or summed.")
]
Activation = Annotated[
    Literal["relu", "abs"],
    arg(
        help="Activation of hidden units. relu: as in the paper. abs: absolute value, often more "
        "accurate in small networks."
    ),
]
Bias = Annotated[bool, arg(help="Biases in convolutions and in the dense layer.")]
Bones = Annotated[
    Literal["free", "start", "limit", "fixed"],
    arg(
        help="Attention between joints. free: random initial values. start: initialised with the "
        "skeleton's bones. limit: only between joints with a bone. fixed: the bones, not trained."
    ),
]
Chunks = Annotated[
    int, arg(help="Number of equal time intervals over which a recording is averaged.")
]
Kinds = Annotated[
    tuple[Literal["windows", "coordinates", "velocity", "bones"], ...],
    arg(
        metavar="KIND …",
        help="Input channels of each joint: coordinates, velocity (difference between chunks), "
        "bones (offset from the parent joint); and windows, before the others: parts of the "
        "recording, over which filters then slide.",
    ),
]
Basis = Annotated[
    Literal["chunks", "cosines"],
    arg(
        help="Representation of time. chunks: averages over intervals. cosines: their discrete "
        "cosine transform, which suits networks with few weights."
    ),
]
Frame = Annotated[
    Literal["camera", "body"],
    arg(
        help="Coordinate frame. body: rotated so that the person stands upright and faces one "
        "direction; needs a layout that defines it."
    ),
]
Size = Annotated[
    Literal["recorded", "alike"],
    arg(help="Size of skeletons. recorded: unchanged. alike: rescaled to one mean bone length."),
]
Origin = Annotated[
    Literal["frame", "recording"] | None,
    arg(
        help="Origin of coordinates. frame: the root joints in each frame. recording: their mean "
        "position over time (default: frame with the recipe paper, else recording)."
    ),
]


def train(
    source: Source,
    /,
    *,
    out: Out,
    recipe: RecipeName = "default",
    epochs: Epochs = None,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "fp32",
    protocol: Protocol = None,
    fold: FoldName = None,
    heads: Heads = 16,
    filters: Filters = 128,
    blocks: Blocks = 1,
    shared: Shared = False,
    combine: Combine = "concat",
    bias: Bias = False,
    activation: Activation = "relu",
    bones: Bones = "free",
    chunks: Chunks = 32,
    channels: Kinds = ("coordinates",),
    basis: Basis = "chunks",
    frame: Frame = "camera",
    size: Size = "recorded",
    origin: Origin = None,
    augment: Augment = False,
    teacher: TeacherFolder = None,
    teacher_weight: TeacherWeight = None,
    temperature: Temperature = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Train a graph network on recordings of moving skeletons, and save it as a folder.

    The built-in data needs no download. Your own recordings need one folder per action:

      trellis train hands45 --out hands
      trellis train csv:recordings --out mine --epochs 300

    If it is stopped, the same command continues and gives the same model. Next:
    `trellis evaluate hands --data hands45`, or `trellis prune hands --sparsity 0.99 --out small`.
    """
    settings = changed_recipe(recipe, epochs, tune=False)
    if origin is not None:
        settings = dataclasses.replace(settings, origin=origin)
    place = chosen_device(device, precision)
    check_seed(seed)
    teaching, told = taught(teacher, teacher_weight, temperature)
    check_apart(out, source)
    check_folder(out, overwrite=overwrite, resumes=True)
    data = skeleton.load_dataset(source, protocol=protocol, skip_bad=skip_bad, progress=True)
    chosen = chosen_fold(data, fold)
    options: dict[str, Any] = {
        "heads": heads, "filters": filters, "blocks": blocks, "shared": shared,
        "combine": combine, "bias": bias, "activation": activation,
        "first_weights": settings.first_weights,
    }  # fmt: skip
    if bones != "free":
        options |= {"adjacency": data.layout.adjacency(), "edges": bones}
    fresh = skeleton.Recognizer.fresh(
        data, chosen, chunks=chunks, kinds=channels, basis=basis, frame=frame, size=size,
        origin=settings.origin, seed=seed, **options,
    )  # fmt: skip
    checkpoint = out / CHECKPOINT
    with held_folder(out, overwrite=overwrite, resumes=True):
        resumed = checkpoint.exists()
        with training_bar("training") as watch:
            trained = skeleton.fit(
                fresh, data, chosen, settings, seed=seed, device=place, precision=precision,
                augmentation=skeleton.Augmentation() if augment else None,
                about={"protocol": protocol, "bones": bones, "skip_bad": skip_bad or None} | told,
                teaching=teaching, checkpoint=checkpoint, watch=watch,
            )  # fmt: skip
        trained.save(out)
        training.remove_checkpoint(checkpoint)
    print_result(trained, data, out, resumed=resumed, as_json=as_json)
    return 0


CHECKPOINT = ".checkpoint.safetensors"

RecipeName = Annotated[
    Literal["default", "paper", "quick"],
    arg(
        help="Training recipe. default: cosine schedule, weight decay, label smoothing, input "
        "noise. paper: plain Adam with the paper's learning-rate rule, 2700 epochs, every frame "
        "relative to its root joints, first weights normal / sqrt(fan-in). quick: small "
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
TeacherFolder = Annotated[
    Path | None,
    arg(
        metavar="FOLDER",
        help_behavior_hint="(default: none)",
        help="Model to distill from, in addition to the labels. It must have been trained on the "
        "same recordings.",
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


def changed_recipe(name: str, epochs: int | None, *, tune: bool) -> training.Recipe:
    """Return the recipe, with the given number of epochs."""
    if epochs is None:
        return training.recipe_named(name)
    if epochs < 1:
        raise TrellisError(f"--epochs {epochs}: expected a whole number of at least 1")
    return training.recipe_named(name, **{"tune_epochs" if tune else "epochs": epochs})


def taught(
    folder: Path | None, weight: float | None, temperature: float | None
) -> tuple[skeleton.Teaching | None, dict[str, Any]]:
    """Load the teacher, and return a note about it for the model's history."""
    told = {
        name: value
        for name, value in (("weight", weight), ("temperature", temperature))
        if value is not None
    }
    if folder is None:
        for name, value in told.items():
            option = "--teacher-weight" if name == "weight" else "--temperature"
            raise TrellisError(
                f"{option} {value:g} needs a teacher: name the folder of a model with --teacher"
            )
        return None, {}
    teaching = skeleton.Teaching(skeleton.Recognizer.load(folder), **told)
    return teaching, {"teacher": [str(folder)]}


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
                training.remove_checkpoint(out / CHECKPOINT)
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
    recogniser: skeleton.Recognizer, data: Skeletons, out: Path, *, resumed: bool, as_json: bool
) -> None:
    """Print the result of the last step in a recogniser's history."""
    from ..training.checkpoint import in_words

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


NoiseSeed = Annotated[int, arg(help="Seed of the input noise.")]


def tune(
    model: ModelFolder,
    /,
    *,
    data: DataSource,
    out: Out,
    recipe: RecipeName = "default",
    epochs: Epochs = None,
    seed: NoiseSeed = 0,
    device: Device = "auto",
    precision: Precision = "fp32",
    protocol: OwnProtocol = None,
    fold: OwnFold = None,
    augment: Augment = False,
    teacher: TeacherFolder = None,
    teacher_weight: TeacherWeight = None,
    temperature: Temperature = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Fine-tune a pruned model: kept connections are trained, removed ones stay removed.

    This restores most of the accuracy that pruning costs:

      trellis train hands45 --out hands
      trellis prune hands --sparsity 0.99 --out small
      trellis tune small --data hands45 --out tuned

    With `--teacher hands`, the dense model is distilled into the pruned one.

    Recordings are prepared as in the model's first training. Without --protocol and --fold, they
    are also divided as then. A model that is not pruned is trained further as a whole.
    """
    settings = changed_recipe(recipe, epochs, tune=True)
    place = chosen_device(device, precision)
    recogniser = skeleton.Recognizer.load(model)
    check_seed(seed)
    teaching, told = taught(teacher, teacher_weight, temperature)
    check_apart(out, data)
    check_folder(out, overwrite=overwrite, resumes=True)
    protocol = protocol_for(recogniser, data, protocol)
    found = skeleton.load_dataset(data, protocol=protocol, skip_bad=skip_bad, progress=True)
    chosen = fold_for(recogniser, found, fold)
    checkpoint = out / CHECKPOINT
    with held_folder(out, overwrite=overwrite, resumes=True):
        resumed = checkpoint.exists()
        with training_bar("fine-tuning") as watch:
            tuned = skeleton.fit(
                recogniser, found, chosen, settings, seed=seed, tune=True, device=place,
                precision=precision, augmentation=skeleton.Augmentation() if augment else None,
                about={"protocol": protocol, "skip_bad": skip_bad or None} | told,
                teaching=teaching, checkpoint=checkpoint, watch=watch,
            )  # fmt: skip
        tuned.save(out)
        training.remove_checkpoint(checkpoint)
    print_result(tuned, found, out, resumed=resumed, as_json=as_json)
    return 0
