"""Train a recognizer, fine-tune a pruned one, and evaluate it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import TrellisError
from ...masks import Masks, weights_hash
from ...masks.masks import carried_masks
from ...training import Recipe, Teachers, Training, Weights, forward_of, run, stack, unstack
from ...training.batches import Feed
from ...training.checkpoint import hardware, versions
from ...training.distillation import check_distillation
from ..data.augmentation import Augmentation, Augmenter
from ..data.dataset import Fold, Indices, Skeletons
from ..data.preparation import reading_channels
from .gcn import GCN
from .gcn_stacks import narrowed
from .recognizer import Recognizer

# Accuracy and confusions of a network.


Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Confusion:
    """A confusion: ``count`` of ``of`` recordings of class ``truth`` were predicted as another."""

    truth: str
    taken_for: str
    count: int
    of: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A confusion matrix (classes, classes): rows are true classes, columns predictions.

    >>> found = Evaluation.of(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), ["wave", "point"])
    >>> found.top1, found.mean_class
    (0.75, 0.75)
    >>> found.confusions()
    [Confusion(truth='wave', taken_for='point', count=1, of=2)]
    """

    classes: tuple[str, ...]
    matrix: Integers

    @classmethod
    def of(cls, labels: Integers, said: Integers, classes: Sequence[str]) -> Evaluation:
        """Return the evaluation of predictions ``said`` for recordings with these labels."""
        count = len(classes)
        cells = np.bincount(labels * count + said, minlength=count * count)
        return cls(tuple(classes), cells.reshape(count, count).astype(np.int64))

    @property
    def recordings(self) -> int:
        """The number of recordings."""
        return int(self.matrix.sum())

    @property
    def top1(self) -> float:
        """The share of recordings that are predicted correctly."""
        return float(np.trace(self.matrix) / self.matrix.sum())

    @property
    def counts(self) -> Integers:
        """The number of recordings of each class."""
        return self.matrix.sum(axis=1)  # type: ignore[no-any-return]

    @property
    def mean_class(self) -> float:
        """The mean accuracy over classes that have recordings."""
        seen = self.counts > 0
        return float((np.diag(self.matrix)[seen] / self.counts[seen]).mean())

    def accuracy(self, label: int) -> float | None:
        """Return the accuracy of one class; None if it has no recordings."""
        count = int(self.counts[label])
        return int(self.matrix[label, label]) / count if count else None

    def confusions(self) -> list[Confusion]:
        """Return all confusions, most frequent first, then by their share of the class."""
        rows, columns = np.nonzero(self.matrix * (1 - np.eye(len(self.classes), dtype=np.int64)))
        found = [
            Confusion(
                self.classes[row],
                self.classes[column],
                int(self.matrix[row, column]),
                int(self.counts[row]),
            )
            for row, column in zip(rows, columns, strict=True)
        ]
        return sorted(found, key=lambda c: (-c.count, -c.count / c.of, c.truth, c.taken_for))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        return {
            "recordings": self.recordings,
            "top1": self.top1,
            "mean_class": self.mean_class,
            "classes": [
                {"name": name, "recordings": int(self.counts[i]), "accuracy": self.accuracy(i)}
                for i, name in enumerate(self.classes)
            ],
            "confusions": [vars(confusion) for confusion in self.confusions()],
        }


# Training.


@dataclass(frozen=True, eq=False)
class Teaching:
    """Distillation from a trained recognizer.

    The teacher must have the same classes, joints, chunks and normalization as the student. Its
    size and channels may differ.

    Args:
        teacher: The recognizer to learn from.
        weight: Share of the loss that comes from the teacher; the rest comes from the labels.
        temperature: Divisor of the logits of teacher and student.

    Raises:
        TrellisError: A value is out of range.
    """

    teacher: Recognizer
    weight: float = 0.7
    temperature: float = 2.0

    def __post_init__(self) -> None:
        check_distillation(self.weight, self.temperature)

    def of(self, student: Recognizer, device: torch.device | str) -> Teachers:
        """Return the teacher for the training of a student.

        Raises:
            TrellisError: The teacher does not fit the student.
        """
        _check_alike(self.teacher, student)
        model = bare(self.teacher.model)
        weights = {name: weight.to(device) for name, weight in stack([model]).items()}
        forward = reading_channels(self.teacher.channels, forward_of(model.to(device)))
        return Teachers(forward, weights, self.weight, self.temperature)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and the hash of the teacher, as JSON can hold them."""
        return {
            "weight": self.weight,
            "temperature": self.temperature,
            "teachers": [weights_hash(self.teacher.model)],
        }


def bare(model: GCN) -> GCN:
    """Return a copy with its masks baked in."""
    found = copy.deepcopy(model)
    masks = carried_masks(found)
    if masks is not None:
        masks.bake(found)
    return found


def _check_alike(teacher: Recognizer, student: Recognizer) -> None:
    """Raise if a teacher has other inputs or classes than the student."""
    for what, own, wanted in (
        ("classes", teacher.classes, student.classes),
        ("joints", teacher.layout.joints, student.layout.joints),
        ("chunks", teacher.chunks, student.chunks),
        ("normalization", teacher.normalization.to_dict(), student.normalization.to_dict()),
    ):
        if own != wanted:
            raise TrellisError(
                f"the teacher has other {what} than its student: expected {wanted!r:.100}, got "
                f"{own!r:.100}; give a teacher that was trained on the same recordings, with the "
                "same chunks, frame and size"
            )


def fit(
    recognizer: Recognizer,
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
) -> Recognizer:
    """Train a recognizer's network on a fold, in place.

    Masks stay: only kept connections and biases are trained.

    Args:
        recognizer: The recognizer.
        data: The recordings.
        fold: Which of them to train and to test on.
        recipe: Epochs, learning rates and so on.
        seed: The seed of noise and augmentation.
        tune: Whether to use the recipe's settings for fine-tuning.
        device: Where to train.
        precision: "fp32", "tf32" (GPUs only) or "bf16".
        augmentation: Random variants of the recordings, in place of the recipe's noise.
        teaching: Distillation from other recognizers.
        about: Further facts for the history.
        checkpoint: A file for checkpoints. The same call then continues a training that was
            killed, with the same result. The caller removes the file.
        watch: Called with the training after every epoch.

    Returns:
        The recognizer with one more step in its history.

    Raises:
        TrellisError: Arguments do not fit together, or training diverged.
    """
    labels = recognizer.labels(data)
    for part, chosen in (("train", fold.train), ("test", fold.test)):
        if len(chosen) == 0:
            raise TrellisError(f"fold {fold.name!r} of {data.source!r} has no {part} recordings")
    model = recognizer.model
    same = dict(about or {}) | {
        "architecture": model.described(),
        "tuning": tune,
        "begun with": weights_hash(model),
        "normalisation": recognizer.normalization.to_dict(),  # as stored checkpoints spell it
        "channels": list(recognizer.kinds),
        "basis": recognizer.basis,
        "augmentation": None if augmentation is None else augmentation.to_dict(),
        "taught": None if teaching is None else teaching.to_dict(),
    }
    teachers = None if teaching is None else teaching.of(recognizer, device)
    masks = carried_masks(model)
    if masks is not None:
        masks.bake(model)
    try:
        x = torch.from_numpy(recognizer.places([data.sequences[i] for i in fold.train]))
        weights = {name: weight.to(device) for name, weight in stack([model]).items()}
        forward, kept = forward_of(model.to(device)), _stacked(masks)
        narrow = None if kept is None else narrowed(model, kept, device)
        if narrow is not None and kept is not None:
            weights, kept, forward = narrow.narrow(weights), narrow.narrow(kept), narrow.forward()
        training = Training(
            reading_channels(recognizer.channels, forward),
            weights,
            x.to(device),
            torch.from_numpy(labels[fold.train]).to(device),
            recipe,
            seeds=[seed],
            masks=kept,
            tune=tune,
            precision=precision,
            teachers=teachers,
            feed=feed_of(recognizer, augmentation, [seed], device),
        )
        seconds = run(training, checkpoint, about=same, watch=watch)
        unstack(weights if narrow is None else narrow.whole(weights), [model])
        model.to("cpu")
    finally:
        if masks is not None:
            masks.apply(model)
    step = recipe.to_dict() | {
        "epochs": training.epochs,
        "rate": training.first_rate,
        "smoothing": training.smoothing,
    }
    for name in ("tune_epochs", "tune_rate", "tune_smoothing"):
        del step[name]
    step.pop("origin", None)  # the recognizer's normalization says which
    if tune:
        step.pop("first_weights", None)
    return recognizer.after(
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
        metrics=metrics(recognizer, data, fold),
        **(about or {}),
    )


def feed_of(
    recognizer: Recognizer,
    augmentation: Augmentation | None,
    seeds: Sequence[int],
    device: torch.device | str,
) -> Feed | None:
    """Return the data augmentation for a stack of networks like this one; None for none."""
    if augmentation is None:
        return None
    place = torch.device(device)
    return Augmenter(seeds, augmentation, recognizer.layout, recognizer.chunks, place)


def evaluated(recognizer: Recognizer, data: Skeletons, chosen: Indices) -> Evaluation:
    """Return the evaluation on the ``chosen`` recordings of ``data``."""
    labels = recognizer.labels(data)[chosen]
    said = recognizer.probabilities([data.sequences[i] for i in chosen]).argmax(axis=1)
    return Evaluation.of(labels, said, recognizer.classes)


def metrics(recognizer: Recognizer, data: Skeletons, fold: Fold) -> dict[str, Any]:
    """Return top-1 and mean-class accuracy on test recordings, and top-1 on training ones."""
    test = evaluated(recognizer, data, fold.test)
    train = evaluated(recognizer, data, fold.train)
    return {"top1": test.top1, "mean_class": test.mean_class, "train_top1": train.top1}


def _stacked(masks: Masks | None) -> Weights | None:
    """Return the masks of a stack of one network."""
    return None if masks is None else {name: mask[None] for name, mask in masks.items()}
