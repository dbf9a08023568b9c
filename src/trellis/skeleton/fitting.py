"""Training a recogniser, and tuning one that was pruned."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import TrellisError
from ..masks import Masks, weights_hash
from ..masks.of import carried_masks
from ..train import Recipe, Training, Weights, forward_of, run, stack, unstack
from ..train.batches import Feed
from ..train.provenance import hardware, versions
from .augmentation import Augmentation, Augmenter
from .channels import seeing
from .evaluation import Evaluation
from .narrow import narrowed
from .recogniser import Recogniser
from .skeletons import Fold, Indices, Skeletons
from .teaching import Teaching


def fit(
    recogniser: Recogniser,
    data: Skeletons,
    fold: Fold,
    recipe: Recipe,
    *,
    seed: int = 0,
    tune: bool = False,
    device: torch.device | str = "cpu",
    precision: str = "fp32",
    augmentation: Augmentation | None = None,
    teaching: Teaching | None = None,
    about: Mapping[str, Any] | None = None,
    checkpoint: Path | None = None,
    watch: Callable[[Training], None] | None = None,
) -> Recogniser:
    """Train a recogniser's network in place on a fold, and return it with a longer history.

    Masks stay as they are: only kept connections (and biases) are touched. ``tune`` takes the
    recipe's rate and length for tuning; ``augmentation`` shows the network variants of the
    recordings, in place of the recipe's noise; ``teaching`` lets it learn from other models as well
    as from labels; ``about`` is what else the history should say. With
    ``checkpoint`` a training that was killed goes on where it stopped and ends the same, bit for
    bit; that file is the caller's to remove.
    """
    labels = recogniser.labels(data)
    for part, chosen in (("train", fold.train), ("test", fold.test)):
        if len(chosen) == 0:
            raise TrellisError(f"fold {fold.name!r} of {data.source!r} has no {part} recordings")
    model = recogniser.model
    same = dict(about or {}) | {
        "architecture": model.described(),
        "tuning": tune,
        "begun with": weights_hash(model),
        "normalisation": recogniser.normalisation.to_dict(),
        "channels": list(recogniser.kinds),
        "basis": recogniser.basis,
        "augmentation": None if augmentation is None else augmentation.to_dict(),
        "taught": None if teaching is None else teaching.to_dict(),
    }
    teachers = None if teaching is None else teaching.of(recogniser, device)
    masks = carried_masks(model)
    if masks is not None:
        masks.bake(model)
    try:
        x = torch.from_numpy(recogniser.places([data.sequences[i] for i in fold.train]))
        weights = {name: weight.to(device) for name, weight in stack([model]).items()}
        forward, kept = forward_of(model.to(device)), _stacked(masks)
        narrow = None if kept is None else narrowed(model, kept, device)
        if narrow is not None and kept is not None:
            weights, kept, forward = narrow.narrow(weights), narrow.narrow(kept), narrow.forward()
        training = Training(
            seeing(recogniser.channels, forward),
            weights,
            x.to(device),
            torch.from_numpy(labels[fold.train]).to(device),
            recipe,
            seeds=[seed],
            masks=kept,
            tune=tune,
            precision=precision,
            teachers=teachers,
            feed=feed_of(recogniser, augmentation, [seed], device),
        )
        seconds = run(training, checkpoint, about=same, watch=watch)
        unstack(weights if narrow is None else narrow.whole(weights), [model])
        model.to("cpu")
    finally:
        if masks is not None:
            masks.apply(model)
    step = dataclasses.asdict(recipe) | {
        "epochs": training.epochs,
        "rate": training.first_rate,
        "smoothing": training.smoothing,
    }
    for name in ("tune_epochs", "tune_rate", "tune_smoothing"):
        del step[name]
    return recogniser.after(
        step="tune" if tune else "train",
        source=data.source,
        synthetic=data.synthetic,
        fold=fold.name,
        recordings={"train": len(fold.train), "test": len(fold.test)},
        digest=data.digest,
        recipe=step,
        augmentation=None if augmentation is None else augmentation.to_dict(),
        taught=None if teaching is None else teaching.to_dict(),
        seed=seed,
        precision=precision,
        device=torch.device(device).type,
        hardware=hardware(torch.device(device)),
        versions=versions(),
        seconds=round(seconds, 1),
        metrics=metrics(recogniser, data, fold),
        **(about or {}),
    )


def feed_of(
    recogniser: Recogniser,
    augmentation: Augmentation | None,
    seeds: Sequence[int],
    device: torch.device | str,
) -> Feed | None:
    """What shows a stack of networks like this one variants of its recordings."""
    if augmentation is None:
        return None
    place = torch.device(device)
    return Augmenter(seeds, augmentation, recogniser.layout, recogniser.chunks, place)


def evaluated(recogniser: Recogniser, data: Skeletons, chosen: Indices) -> Evaluation:
    """How well it names the ``chosen`` recordings of ``data``."""
    labels = recogniser.labels(data)[chosen]
    said = recogniser.probabilities([data.sequences[i] for i in chosen]).argmax(axis=1)
    return Evaluation.of(labels, said, recogniser.classes)


def metrics(recogniser: Recogniser, data: Skeletons, fold: Fold) -> dict[str, Any]:
    """Top-1 and mean-class accuracy on the test recordings, top-1 on those trained on."""
    test = evaluated(recogniser, data, fold.test)
    train = evaluated(recogniser, data, fold.train)
    return {"top1": test.top1, "mean_class": test.mean_class, "train_top1": train.top1}


def _stacked(masks: Masks | None) -> Weights | None:
    """Masks of a stack of one."""
    return None if masks is None else {name: mask[None] for name, mask in masks.items()}
