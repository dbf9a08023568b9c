"""Pruned networks as a run keeps them: the places and values of kept connections alone.

One network stands for each row, that of seed 0 and the first fold, where a tenth or less is kept:
those are to be looked at. Larger ones would fill a disk, and nobody could see anything in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..errors import TrellisError
from ..files import intact
from .plan import Cell

LEAST = 90.0  # percent removed


def is_packed(cell: Cell) -> bool:
    """Whether a cell's network is kept."""
    return cell.row.rate >= LEAST and cell.seed == cell.fold == 0


def packed(
    cells: Sequence[Cell], weights: Mapping[str, Tensor], masks: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The networks to keep of a stack, as tensors ``ROW/NAME/places`` and ``ROW/NAME/values``.

    ``weights`` and ``masks`` are stacked as the cells are. Places count a parameter's entries in
    row-major order.
    """
    found: dict[str, Tensor] = {}
    for i, cell in enumerate(cells):
        for name in weights if is_packed(cell) else ():
            places = masks[name][i].flatten().nonzero().flatten()
            found[f"{cell.row.key}/{name}/places"] = places.int().cpu()
            found[f"{cell.row.key}/{name}/values"] = weights[name][i].flatten()[places].cpu()
    return found


def kept_of(
    path: Path, row: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[Tensor, Tensor]] | None:
    """Places and values that a row's network keeps, by name; None where the file has none of it."""
    if not path.is_file():  # a pipe would be read for ever
        return None
    try:
        with safe_open(path, framework="pt") as file:
            names: list[str] = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
            if intact(tensors, file.metadata() or {}) is False:  # older releases wrote no digest
                raise _damaged(path, "its content is not what was written (digest)")
            if f"{row}/{next(iter(shapes))}/places" not in file.keys():  # noqa: SIM118
                return None
            stored = {
                name: (
                    file.get_tensor(f"{row}/{name}/places"),
                    file.get_tensor(f"{row}/{name}/values"),
                )
                for name in shapes
            }
    except FileNotFoundError:
        return None
    except (OSError, SafetensorError) as error:
        raise _damaged(path, str(error)) from None
    for name, (places, values) in stored.items():
        size = math.prod(shapes[name])
        fits = places.ndim == 1 and places.shape == values.shape and places.dtype == torch.int32
        if not fits or (len(places) and not 0 <= int(places.min()) <= int(places.max()) < size):
            raise _damaged(path, f"{name!r} has places that are not in the network")
    return stored


def unpacked(
    path: Path, row: str, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]] | None:
    """Weights and masks of a row's network in full; None where the file does not hold it."""
    stored = kept_of(path, row, shapes)
    if stored is None:
        return None
    weights, masks = {}, {}
    for name, (places, values) in stored.items():
        size = math.prod(shapes[name])
        weight, mask = torch.zeros(size), torch.zeros(size, dtype=torch.bool)
        weight[places.long()], mask[places.long()] = values.float(), True
        weights[name], masks[name] = weight.reshape(shapes[name]), mask.reshape(shapes[name])
    return weights, masks


def _damaged(path: Path, why: str) -> TrellisError:
    return TrellisError(
        f"the networks in {str(path)!r} cannot be read ({why:.200}): delete that file to do "
        "without them"
    )
