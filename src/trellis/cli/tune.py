"""``trellis tune``: fine-tune a pruned network."""

from __future__ import annotations

from typing import Annotated

import tyro

from .. import skeleton
from ..training import remove_checkpoint
from .data_arguments import (
    DataSource,
    Json,
    ModelFolder,
    OwnFold,
    OwnProtocol,
    SkipBad,
    check_apart,
    fold_for,
    protocol_for,
)
from .device import Device, Precision, chosen_device
from .fitting import (
    CHECKPOINT,
    Augment,
    Epochs,
    Out,
    Overwrite,
    RecipeName,
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

NoiseSeed = Annotated[int, tyro.conf.arg(help="Seed of the input noise.")]


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
    teacher: TeacherFolders = (),
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
        remove_checkpoint(checkpoint)
    print_result(tuned, found, out, resumed=resumed, as_json=as_json)
    return 0
