"""Recognisers that teach another one: it learns from what they say of a recording, too."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import TrellisError
from ..masks import weights_hash
from ..masks.of import carried_masks
from ..train import Teachers, forward_of, stack
from ..train.teachers import check_teaching
from .channels import seeing
from .gcn import GCN
from .recogniser import Recogniser


@dataclass(frozen=True, eq=False)
class Teaching:
    """Trained ``teachers``; ``weight`` is the share of the loss that comes from them rather than
    from the labels, ``temperature`` how much their answers are flattened.

    They see what the student sees: the same joints, chunks and normalisation, as models have that
    were made one of the other, or on the same recordings. What channels they make of that, and how
    large they are, is their own.
    """

    teachers: Sequence[Recogniser]
    weight: float = 0.7
    temperature: float = 2.0

    def __post_init__(self) -> None:
        check_teaching(self.weight, self.temperature)
        if not self.teachers:
            raise TrellisError("there are no teachers: give one model or several")
        first = self.teachers[0]
        for other in self.teachers[1:]:
            if _form(other) != _form(first):
                raise TrellisError(
                    "teachers of different architectures or channels cannot teach together: "
                    f"{_form(first)} and {_form(other)}"
                )

    def of(self, student: Recogniser, device: torch.device | str) -> Teachers:
        """As the student's training takes them."""
        for teacher in self.teachers:
            _check_alike(teacher, student)
        models = [bare(teacher.model) for teacher in self.teachers]
        weights = {name: weight.to(device) for name, weight in stack(models).items()}
        forward = seeing(self.teachers[0].channels, forward_of(models[0].to(device)))
        return Teachers(forward, weights, self.weight, self.temperature)

    def to_dict(self) -> dict[str, Any]:
        """What a student's result depends on, as JSON holds it."""
        return {
            "weight": self.weight,
            "temperature": self.temperature,
            "teachers": [weights_hash(teacher.model) for teacher in self.teachers],
        }


def bare(model: GCN) -> GCN:
    """A copy whose masks, if it has any, are zeros for good."""
    found = copy.deepcopy(model)
    masks = carried_masks(found)
    if masks is not None:
        masks.bake(found)
    return found


def _form(teacher: Recogniser) -> dict[str, Any]:
    return teacher.model.described() | {"channels": teacher.kinds, "basis": teacher.basis}


def _check_alike(teacher: Recogniser, student: Recogniser) -> None:
    """Refuse a teacher that does not see or name what the student does."""
    for what, own, wanted in (
        ("classes", teacher.classes, student.classes),
        ("joints", teacher.layout.joints, student.layout.joints),
        ("chunks", teacher.chunks, student.chunks),
        ("normalisation", teacher.normalisation.to_dict(), student.normalisation.to_dict()),
    ):
        if own != wanted:
            raise TrellisError(
                f"a teacher has other {what} than its student, {own!r:.100} and not "
                f"{wanted!r:.100}: teach by a model that was trained on the same recordings, with "
                "the same --chunks, --frame and --size"
            )
