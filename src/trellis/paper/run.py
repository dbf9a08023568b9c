"""Run a plan: train, prune and test the networks that are missing in the run's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from ..errors import TrellisError
from ..skeleton import Skeletons
from .folder import Folder, opened
from .plan import Stack, architecture_of, plan_of
from .pruning import Selection, pruning
from .recordings import Named, Recordings, Split, describe
from .render import comma, latex, markdown, text
from .settings import Settings
from .stacks import Stacks, Watch
from .tables import report_of


def write_outputs(folder: Folder) -> None:
    """Write ``table.txt``, ``.md``, ``.csv`` and ``.tex`` from the cells finished so far."""
    report = report_of(folder)
    folder.write(
        {
            "table.txt": text(report),
            "table.md": markdown(report),
            "table.csv": comma(report),
            "table.tex": latex(report),
        }
    )


def reproduce(
    settings: Settings,
    skeletons: Skeletons,
    out: Path,
    *,
    device: str | torch.device | None = None,
    workers: int = 1,
    watch: Watch | None = None,
) -> Folder:
    """Make a table in a folder, or continue the run that was begun there.

    Args:
        settings: The settings of the table.
        skeletons: The recordings.
        out: The folder of the run.
        device: The device to train on, of the kind in the settings (default: the first).
        workers: Processes that prune; figures do not depend on it.
        watch: Called with the progress several times a second.

    Returns:
        The folder with all finished cells and the tables.

    Raises:
        TrellisError: The folder holds another run, or the device does not fit the settings.
    """
    place = torch.device(settings.device if device is None else device)
    if place.type != settings.device:
        raise TrellisError(
            f"expected a {settings.device!r} device, as in the settings, got {place}"
        )
    if place.type == "cuda" and not torch.cuda.is_available():
        raise TrellisError("this machine has no CUDA device; give device='cpu'")
    data = describe(skeletons)
    plan = plan_of(settings, data)
    with opened(out, settings, data) as folder:
        folder.write({"recordings.json": Named.of(skeletons).text()})
        waiting = [part for part in plan.stacks if not finished(folder, part)]
        if waiting:
            recordings = Recordings(skeletons, settings.chunks)
            with pruning(architecture_of(settings, data), workers) as begin:
                stacks = Stacks(folder, plan, waiting, place, begin, watch)
                _each(waiting, recordings, stacks, ahead=place.type == "cuda")
        write_outputs(folder)
    return folder


def finished(folder: Folder, part: Stack) -> bool:
    """Return whether all results of a stack are stored."""
    stored = all(cell.key in folder.records for cell in part.cells)
    return stored and (not part.dense or folder.dense(part.number).exists())


def _each(waiting: list[Stack], recordings: Recordings, stacks: Stacks, *, ahead: bool) -> None:
    """Make one stack after another; with ``ahead``, prune the next one while this one trains."""
    begun: dict[int, Callable[[], list[Selection]]] = {}
    split: Split | None = None
    for i, part in enumerate(waiting):
        if split is None or part.fold != waiting[i - 1].fold:
            split = recordings.fold(part.fold, stacks.device)
        if part.dense:
            stacks.train(part, split)
            continue
        for later in waiting[i : i + 2 if ahead else i + 1]:
            if later.number not in begun:
                begun[later.number] = stacks.begin_pruning(later)
        stacks.tune(part, split, begun.pop(part.number))
