"""Pruning the cells of a table: each is a dense network, a method and a rate, on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import TrellisError
from ..files import intact
from ..masks import Masks
from ..paths.audit import audit
from ..select.prune import prune
from ..trace.trellis import trace
from .methods import METHODS
from .network import Architecture
from .plan import Row


@dataclass(frozen=True)
class Job:
    """A cell to prune: network ``place`` of the stack stored in ``dense``."""

    dense: Path
    place: int
    row: Row
    seed: int


@dataclass(frozen=True, eq=False)
class Selection:
    """What was kept: masks as packed bits (none for a dense network), and the audit's figures.

    ``refused`` is why the method could not keep to this budget, where it could not.
    """

    bits: dict[str, NDArray[np.uint8]]
    figures: dict[str, Any]
    refused: str | None = None

    def masks(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
        return {
            name: torch.from_numpy(np.unpackbits(bits, count=int(np.prod(shapes[name]))))
            .bool()
            .reshape(shapes[name])
            for name, bits in self.bits.items()
        }


class Bench:
    """One network of an architecture, traced once; every job's weights are laid into it."""

    def __init__(self, architecture: Architecture) -> None:
        self.model, self.shapes = architecture.build(0), architecture.shapes
        example = torch.zeros(1, architecture.nodes, architecture.channels)
        self.net = trace(self.model, example)

    def select(self, job: Job) -> Selection:
        """Prune a job's network. The same job gives the same selection, wherever it is done."""
        dense = read_network(job.dense, job.place, self.shapes)
        self._lay(dense)
        if job.row.method is None:
            return Selection({}, self._audited())
        options = dict(job.row.method.options)
        try:
            if job.row.method.budgets_of is not None:
                model = METHODS[job.row.method.budgets_of].options
                options["scope"] = _counts(self._pruned(job, model))
                self._lay(dense)
                masks = prune(self.net, seed=job.seed, **options)
            else:
                masks = self._pruned(job, options)
        except TrellisError as error:
            return Selection({}, {}, refused=str(error))
        figures = self._audited() | {"budget": masks.budget}
        bits = {name: np.packbits(mask.numpy()) for name, mask in masks.items()}
        return Selection(bits, figures)

    def _pruned(self, job: Job, options: dict[str, Any]) -> Masks:
        return prune(self.net, sparsity=job.row.sparsity, seed=job.seed, **options)  # type: ignore[arg-type]

    def _audited(self) -> dict[str, Any]:
        found = audit(self.net)
        return {
            "total": found.total,
            "kept": found.kept,
            "live": found.live,
            "outputs_reached": found.outputs_reached,
            "layers": {layer.name: layer.kept for layer in found.layers},
            "live_layers": {layer.name: layer.live for layer in found.layers},
        }

    def _lay(self, weights: dict[str, Tensor]) -> None:
        """Take the last job's masks off, and put these weights in their place."""
        worn = {
            name: torch.ones(shape, dtype=torch.bool)
            for name, shape in self.net.connections.items()
        }
        Masks(worn).bake(self.model)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])


def _counts(masks: Masks) -> dict[str, int]:
    return {name: int(mask.sum()) for name, mask in masks.items()}


def read_network(
    path: Path, place: int, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """Network ``place`` of a stored stack, whose parameters have these shapes."""
    try:
        at = path.stat()
        _check_intact(path, at.st_mtime_ns, at.st_size)
        with safe_open(path, framework="pt") as file:
            found = {name: file.get_slice(name)[place] for name in shapes}
    except (OSError, SafetensorError, IndexError) as error:
        raise _damaged(path, str(error)) from None
    for name, shape in shapes.items():
        if tuple(found[name].shape) != shape:
            raise _damaged(path, f"{name!r} has the shape {tuple(found[name].shape)}, not {shape}")
    return found


@lru_cache(maxsize=1 << 10)
def _check_intact(path: Path, changed: int, size: int) -> None:
    """Once for each file: many networks are read of one."""
    with safe_open(path, framework="pt") as file:
        names: list[str] = file.keys()
        sound = intact({name: file.get_tensor(name) for name in names}, file.metadata() or {})
    if not sound:
        raise _damaged(path, "its content is not what was written, or it has no digest")


def _damaged(path: Path, why: str) -> TrellisError:
    return TrellisError(
        f"the dense networks in {str(path)!r} cannot be used ({why:.200}): delete that file and "
        "give the same command again; they are made anew"
    )
