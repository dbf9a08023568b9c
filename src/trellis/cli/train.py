"""``trellis train``: train a graph network on recordings of moving skeletons."""

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
    tuple[Literal["coordinates", "velocity", "bones"], ...],
    arg(
        metavar="KIND …",
        help="Input channels of each joint: coordinates, velocity (difference between chunks), "
        "bones (offset from the parent joint).",
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

    The built-in data needs no download. Your own recordings need one folder per action:

      trellis train hands45 --out hands
      trellis train csv:recordings --out mine --epochs 300

    If it is stopped, the same command continues and gives the same model. Next:
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
