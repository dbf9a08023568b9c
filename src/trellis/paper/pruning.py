"""Prune the cells of a table; each is a dense network, a method and a rate."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..cells import Here, Processes
from ..errors import TrellisError
from ..files import intact
from ..graph.trellis import trace
from ..masks import Masks
from ..methods import available
from ..methods.prune import prune
from ..paths.audit import audit
from .plan import Architecture, Cell, Row
from .settings import METHODS

# Pruned networks for the report: the places and values of kept connections.
#
# One network of each row is stored, that of seed 0 and the first fold, if at most a tenth of the
# connections is kept. Larger networks would fill the disk, and cannot be drawn.


LEAST = 90.0  # percent removed


def is_packed(cell: Cell) -> bool:
    """Return whether a cell's network is stored."""
    return cell.row.rate >= LEAST and cell.seed == cell.fold == 0


def packed(
    cells: Sequence[Cell], weights: Mapping[str, Tensor], masks: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the networks to store, as tensors ``ROW/NAME/places`` and ``ROW/NAME/values``.

    Places are indices into the flattened parameter.

    Args:
        cells: The cells of a stack.
        weights: Their weights, (cells, …) each.
        masks: Their masks, (cells, …) each.
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
    """Return places and values of a row's network by parameter; None if it is not stored."""
    if not path.is_file():  # reading a pipe would block
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
    """Return weights and masks of a row's network; None if it is not stored."""
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
        f"the networks in {str(path)!r} cannot be read ({why:.200}); delete that file to "
        "continue without them"
    )


@dataclass(frozen=True)
class Job:
    """A cell to prune: network number ``place`` of the stack in the file ``dense``."""

    dense: Path
    place: int
    row: Row
    seed: int


@dataclass(frozen=True, eq=False)
class Selection:
    """The result of pruning a cell.

    Args:
        bits: Masks as packed bits; empty for a dense network.
        figures: The figures of the audit.
        refused: The error message if the method could not meet the budget.
    """

    bits: dict[str, NDArray[np.uint8]]
    figures: dict[str, Any]
    refused: str | None = None

    def masks(self, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
        """Return the masks in the shapes of the parameters."""
        return {
            name: torch.from_numpy(np.unpackbits(bits, count=int(np.prod(shapes[name]))))
            .bool()
            .reshape(shapes[name])
            for name, bits in self.bits.items()
        }


class CellPruner:
    """A network that is traced once; the weights of each job are copied into it."""

    def __init__(self, architecture: Architecture) -> None:
        self.model, self.shapes = architecture.build(0), architecture.shapes
        example = torch.zeros(1, architecture.nodes, architecture.channels)
        self.net = trace(self.model, example)

    def __call__(self, job: Job) -> Selection:
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
        return prune(self.net, sparsity=job.row.sparsity, seed=job.seed, **options)

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
        raise _pruning_damaged(path, str(error)) from None
    for name, shape in shapes.items():
        if tuple(found[name].shape) != shape:
            raise _pruning_damaged(
                path, f"{name!r} has the shape {tuple(found[name].shape)}, not {shape}"
            )
    return found


@lru_cache(maxsize=1 << 10)
def _check_intact(path: Path, changed: int, size: int) -> None:
    """Check a file's digest; cached, because many networks are read from one file."""
    with safe_open(path, framework="pt") as file:
        names: list[str] = file.keys()
        sound = intact({name: file.get_tensor(name) for name in names}, file.metadata() or {})
    if not sound:
        raise _pruning_damaged(path, "its content is not what was written, or it has no digest")


def _pruning_damaged(path: Path, why: str) -> TrellisError:
    return TrellisError(
        f"the dense networks in {str(path)!r} cannot be used ({why:.200}); delete that file and "
        "run the same settings again to train them again"
    )


# Takes jobs, and returns a function that waits for their results, in the same order.
Begin = Callable[[Sequence[Job]], Callable[[], list[Selection]]]
_WORTH = 100_000  # connections; smaller networks are pruned faster than a process starts


@contextmanager
def pruning(architecture: Architecture, workers: int) -> Iterator[Begin]:
    """Yield a function that prunes cells, in ``workers`` processes if that is faster."""
    if workers < 2 or architecture.connections < _WORTH:
        with Here().cells(CellPruner, architecture) as cells:
            yield lambda jobs: lambda: [cells.submit(job).result() for job in jobs]
        return
    with Processes(workers).cells(_selecting, architecture, method_modules()) as cells:

        def begin(jobs: Sequence[Job]) -> Callable[[], list[Selection]]:
            begun = [cells.submit(job) for job in jobs]
            return lambda: [future.result() for future in begun]

        yield begin


def method_modules() -> list[tuple[str, str]]:
    """Return the modules that register methods, and the folders that they are imported from.

    A worker starts with the built-in methods only.
    """
    found = []
    for name in sorted({cls.__module__ for cls in available().values()} - {"__main__"}):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and not name.startswith("trellis."):
            path = Path(file).absolute()
            path = path.parent if path.stem == "__init__" else path  # a package
            found.append((name, str(path.parents[name.count(".")])))
    return found


def import_methods(modules: Sequence[tuple[str, str]]) -> None:
    """Import the modules of `method_modules` in a worker.

    Raises:
        TrellisError: A module is not on this machine.
    """
    for module, folder in modules:
        sys.path.append(folder)  # last: it must not shadow other modules
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise TrellisError(
                f"{module!r} registers a method and cannot be imported here ({error}); install it "
                f"in every worker, or put it into {folder!r} there"
            ) from None
        finally:
            sys.path.remove(folder)


def _selecting(
    architecture: Architecture, modules: Sequence[tuple[str, str]]
) -> Callable[[Job], Selection]:
    """Return the work of one of several processes that prune cells."""
    import_methods(modules)
    torch.set_num_threads(1)
    return CellPruner(architecture)
