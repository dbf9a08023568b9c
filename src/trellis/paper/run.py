"""Carrying out a plan: what is still to do, in order, in a folder of its own."""

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

# The files that a run ends with.


def write_outputs(folder: Folder) -> None:
    """``table.txt``, ``.md``, ``.csv`` and ``.tex``, from what the folder holds now."""
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
    """Make a table in the folder ``out``, or go on with the one begun there.

    ``device`` is where to train, of the kind that the settings name; ``workers`` is how many
    processes prune, which changes no figure.
    """
    place = torch.device(settings.device if device is None else device)
    if place.type != settings.device:
        raise TrellisError(f"the settings are for {settings.device!r} and the device is {place}")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise TrellisError("there is no CUDA device here: give --device cpu")
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
    stored = all(cell.key in folder.records for cell in part.cells)
    return stored and (not part.dense or folder.dense(part.number).exists())


def _each(waiting: list[Stack], recordings: Recordings, stacks: Stacks, *, ahead: bool) -> None:
    """One stack after another. With ``ahead`` the CPU prunes the next while the GPU tunes this."""
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
