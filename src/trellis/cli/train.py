"""``trellis train``: a network that names actions in recordings of moving skeletons."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import tyro

from .. import skeleton
from ..training import remove_checkpoint
from .data_arguments import FoldName, Json, Protocol, SkipBad, Source, check_apart, chosen_fold
from .device import Device, Precision, chosen_device
from .fitting import (
    CHECKPOINT,
    Augment,
    Epochs,
    Out,
    Overwrite,
    RecipeName,
    Seed,
    TeacherFolders,
    TeacherWeight,
    Temperature,
    changed_recipe,
    check_folder,
    check_seed,
    held_folder,
    print_result,
    taught,
)
from .output import training_bar

arg = tyro.conf.arg
Heads = Annotated[int, arg(help="How many attention matrices look at the skeleton.")]
Filters = Annotated[int, arg(help="Channels that each head's convolution gives.")]
Blocks = Annotated[int, arg(help="How many blocks of attention and convolution are stacked.")]
Shared = Annotated[bool, arg(help="One convolution for all heads.")]
Combine = Annotated[
    Literal["concat", "sum"], arg(help="Whether heads lie side by side or are added.")
]
Activation = Annotated[
    Literal["relu", "abs"],
    arg(
        help="What a hidden unit makes of its sum: relu, as in the paper, or abs, which answers to "
        "a motion and to its opposite: small networks are often more accurate with it."
    ),
]
Bias = Annotated[bool, arg(help="Give convolutions and the dense layer biases.")]
Bones = Annotated[
    Literal["free", "start", "limit", "fixed"],
    arg(
        help="Attention between joints. free: learnt from nothing. start: begins with the "
        "skeleton's bones. limit: never leaves them. fixed: is the bones, and not trained."
    ),
]
Chunks = Annotated[
    int, arg(help="A recording of any length becomes so many averages over equal stretches.")
]
Kinds = Annotated[
    tuple[Literal["coordinates", "velocity", "bones"], ...],
    arg(
        metavar="KIND …",
        help="What it sees of each joint: coordinates, velocity (from chunk to chunk), bones (from "
        "the joint it hangs on).",
    ),
]
Basis = Annotated[
    Literal["chunks", "cosines"],
    arg(
        help="Whether it sees each joint moment by moment, or as waves over the whole recording "
        "(the cosine transform of its chunks): few weights say more of waves."
    ),
]
Frame = Annotated[
    Literal["camera", "body"],
    arg(
        help="Whose frame the recordings are seen in. body: turned so that a person stands upright "
        "and faces the same way, for skeletons that say which joints tell."
    ),
]
Size = Annotated[
    Literal["recorded", "alike"],
    arg(
        help="How large skeletons are. alike: as if all had bones of the same mean length, so that "
        "it does not matter who moves nor, in pictures, how far away."
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
    augment: Augment = False,
    teacher: TeacherFolders = (),
    teacher_weight: TeacherWeight = None,
    temperature: Temperature = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Train a graph network on recordings of moving skeletons, and save it as a folder.

    The built-in data needs no download; recordings of your own go in a folder per action:

      trellis train hands45 --out hands
      trellis train csv:recordings --out mine --epochs 300

    Killed? The same command goes on where it stopped, and ends with the same model. Then
    `trellis evaluate hands --data hands45`, or `trellis prune hands --sparsity 0.99 --out small`.
    """
    settings = changed_recipe(recipe, epochs, tune=False)
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
    }  # fmt: skip
    if bones != "free":
        options |= {"adjacency": data.layout.adjacency(), "edges": bones}
    fresh = skeleton.Recognizer.fresh(
        data, chosen, chunks=chunks, kinds=channels, basis=basis, frame=frame, size=size,
        seed=seed, **options,
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
        remove_checkpoint(checkpoint)
    print_result(trained, data, out, resumed=resumed, as_json=as_json)
    return 0
