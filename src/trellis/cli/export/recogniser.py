"""What an export has to know of a model that names the action in a recording."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trellis.cli.opened import Opened, is_folder
from trellis.ship.recording import Recording
from trellis.ship.tables.build import tables
from trellis.ship.tables.form import Tables
from trellis.skeleton import Recogniser
from trellis.skeleton.recogniser import NOTES


def recogniser_of(given: Opened, target: str) -> Recogniser | None:
    """A recogniser, where the target is a folder that says what the model expects of recordings."""
    knows = is_folder(target) and bool(given.notes and given.notes.get(NOTES))
    return Recogniser.load(target) if knows else None


def example_of(recogniser: Recogniser) -> Tensor:
    """One prepared recording, in shape: (1, joints, chunks * 3)."""
    return torch.zeros(1, len(recogniser.layout.joints), 3 * recogniser.chunks)


def lowered(given: Opened, recogniser: Recogniser | None) -> Tables:
    """A model's tables; a recogniser's begin with a prepared recording."""
    if recogniser is None:
        return tables(given.model, given.examples)
    return tables(recogniser.network(), (example_of(recogniser),))


def described_input(recogniser: Recogniser) -> dict[str, Any]:
    """What the run-time has to know of a recogniser beside its network."""
    normalisation = recogniser.normalisation
    return {
        "classes": recogniser.classes,
        "recording": Recording(
            recogniser.layout.joints, recogniser.chunks, normalisation.roots,
            normalisation.scale, recogniser.basis, normalisation.body, normalisation.bones,
            normalisation.length,
        ),
    }  # fmt: skip


def told_input(recogniser: Recogniser, folder: str) -> str:
    """In words, for whoever feeds the network without our C."""
    joints, chunks = recogniser.layout.joints, recogniser.chunks
    names = ", ".join(joints[root] for root in recogniser.normalisation.roots)
    each = "x y z of each chunk"
    if recogniser.basis == "cosines":
        each = "x y z of each coefficient of the orthonormal cosine transform (DCT-II) over chunks"
    turned = ""
    if body := recogniser.normalisation.body:
        bottom, top, left, right = (joints[joint] for joint in body)
        turned = (
            f" It is turned so that y is from {bottom} to {top} on average, and x from {left} to "
            f"{right}."
        )
    if bones := recogniser.normalisation.bones:
        long = recogniser.normalisation.length / recogniser.normalisation.scale
        turned += (
            f" It is then scaled so that its {len(bones)} bones are {long:.6g} long on average."
        )
    return (
        f"Its input is (batch, {len(joints)}, {3 * chunks}): of each joint, {each}. A recording is "
        f"averaged over {chunks} chunks, centred on {names or 'nothing'} and divided by "
        f"{recogniser.normalisation.scale:.6g} first.{turned} In Python, "
        f"trellis.skeleton.Recogniser.load({folder!r}).prepared(recordings) does it; the same is "
        "in the file's metadata, as `recording`."
    )
