"""The model that a command line names: a factory with weights and inputs, or a saved folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trellis.cli.aside import aside
from trellis.cli.inputs import example_inputs
from trellis.cli.target import load_model
from trellis.errors import TrellisError
from trellis.saved import save
from trellis.saved.folder import own_files, read_folder
from trellis.saved.model import rebuilt
from trellis.saved.weights import load_weights
from trellis.ship.compact import Compacted
from trellis.skeleton.gcn import GCN
from trellis.skeleton.recogniser import NOTES


@dataclass(frozen=True, eq=False)
class Opened:
    """A model, example inputs for it and, where it comes from a folder, that folder's notes."""

    model: nn.Module
    examples: tuple[Tensor, ...]
    notes: dict[str, Any] | None = None

    def save(self, folder: Path, step: Mapping[str, Any]) -> None:
        """Write the model to a folder, with one more step of its history among the notes."""
        notes = dict(self.notes or {})
        part = dict(notes.get(NOTES) or {})
        part["history"] = [*part.get("history", []), dict(step)]
        save(self.model, folder, notes=notes | ({NOTES: part} if NOTES in notes else part))


def is_folder(target: str) -> bool:
    """Whether a target is a saved model rather than ``package.module:factory``.

    >>> is_folder("shop.models:detector"), is_folder(".")
    (False, True)
    """
    return Path(target).is_dir()


def input_files(target: str, *files: Path | None) -> list[Path]:
    """What a command reads: the files of a saved model or of a module, and ``files``.

    >>> [str(each) for each in input_files("shop.models:detector", None, Path("w.safetensors"))]
    ['shop/models.py', 'shop/models/__init__.py', 'w.safetensors']
    """
    own = own_files(target)
    if not is_folder(target):
        module = target.partition(":")[0].replace(".", "/")
        own = [Path(f"{module}.py"), Path(module, "__init__.py")]
    return [*own, *(each for each in files if each is not None)]


def opened(target: str, inputs: Sequence[str], weights: Path | None) -> Opened:
    """Whatever a user's model prints on the way goes to stderr."""
    if not is_folder(target):
        if ":" not in target:
            load_model(target)  # raises, and says what a target looks like
        examples = example_inputs(inputs)
        model = load_model(target)
        with aside():
            if weights is not None:
                load_weights(model, weights)
        return Opened(model, examples)
    if weights is not None:
        raise TrellisError(f"--weights: the folder {target!r} has weights of its own; leave it out")
    saved = read_folder(target)
    model = rebuilt(saved)
    return Opened(model, example_inputs(inputs) if inputs else _example(model), saved.notes)


def _example(model: nn.Module) -> tuple[Tensor, ...]:
    if isinstance(model, Compacted):
        return model.example()
    assert isinstance(model, GCN)
    return (torch.zeros(1, model.sizes["nodes"], model.sizes["channels"]),)
