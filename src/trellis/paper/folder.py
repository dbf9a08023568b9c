"""The folder of a run: its settings, its finished cells, the weights of its dense networks.

::

    settings.json    settings, data and versions
    cells.jsonl      one line for each finished cell
    recordings.json  classes, joints, and the labels of the test recordings
    dense/           the dense networks, one safetensors file for each stack
    networks/        one pruned network of each row (kept weights only), one file for each stack
    table.*          the table, once all cells are finished
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import TrellisError
from ..files import locked, remove_drafts, replacing, write_tensors
from ..limits import read_limited
from ..schema import (
    LARGEST_LINES,
    Measured,
    Refused,
    RunHead,
    fitted,
    parsed,
    read_json,
)
from ..training.checkpoint import versions
from .plan import architecture_of
from .settings import Data, Settings

Record = dict[str, Any]  # a finished cell, as its line in cells.jsonl
FORMAT = 1
_MOST_NETWORKS = 1_000_000  # seeds, folds and rows multiplied
_MOST_CONNECTIONS = 10**9  # of each


class Folder:
    """A run on disk: `opened` adds to it, `stored` only reads it."""

    def __init__(
        self, path: Path, settings: Settings, data: Data, versions: dict[str, str]
    ) -> None:
        self.path, self.settings, self.data, self.versions = path, settings, data, versions
        self.records: dict[str, Record] = {}  # by cell

    def dense(self, stack: int) -> Path:
        """Return the file of a stack of dense networks."""
        return self.path / "dense" / f"stack-{stack}.safetensors"

    def write_dense(self, stack: int, weights: Mapping[str, Tensor]) -> None:
        """Store a stack of dense networks."""
        self.dense(stack).parent.mkdir(exist_ok=True)
        with replacing(self.dense(stack)) as [draft]:
            write_tensors(draft, {name: w.cpu().contiguous() for name, w in weights.items()})

    def networks(self, stack: int) -> Path:
        """Return the file of the pruned networks of a stack."""
        return self.path / "networks" / f"stack-{stack}.safetensors"

    def write_networks(self, stack: int, tensors: Mapping[str, Tensor]) -> None:
        """Store pruned networks of a stack."""
        self.networks(stack).parent.mkdir(exist_ok=True)
        with replacing(self.networks(stack)) as [draft]:
            write_tensors(draft, tensors)

    def take(self, files: Mapping[str, NDArray[np.uint8]]) -> None:
        """Store files that another process wrote, by their paths in the folder."""
        for name, content in files.items():
            path = self.path / name
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as [draft]:
                content.tofile(draft)

    def add(self, records: Sequence[Record]) -> None:
        """Append finished cells; they are on disk when this returns."""
        new = [record for record in records if record["cell"] not in self.records]
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in new)
        try:
            with (self.path / "cells.jsonl").open("ab") as file:
                file.write(lines.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise TrellisError(
                f"cannot write to {str(self.path)!r}: {error.strerror}; the cells finished so far "
                "are kept; run the same settings again to continue"
            ) from error
        self.records |= {record["cell"]: record for record in new}

    def write(self, texts: Mapping[str, str]) -> None:
        """Write files into the folder, all or none."""
        with replacing(*(self.path / name for name in texts)) as drafts:
            for draft, text in zip(drafts, texts.values(), strict=True):
                draft.write_text(text, encoding="utf-8", newline="")


@contextmanager
def opened(path: Path, settings: Settings, data: Data) -> Iterator[Folder]:
    """Begin a run in ``path``, or continue the one there; the folder is locked meanwhile."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file; name a folder" if path.exists() else error.strerror
        raise TrellisError(f"cannot make the folder {str(path)!r}: {why}") from error
    with locked(path):
        folder = Folder(path, settings, data, versions())
        _check_size(settings, data)
        if (path / "settings.json").exists():
            _check_same(folder, stored(path))
        else:
            strangers = [p.name for p in sorted(path.iterdir()) if not p.name.startswith(".")]
            if strangers:
                raise TrellisError(
                    f"expected an empty folder or one with a run, got {str(path)!r} with "
                    f"{strangers[0]!r} in it; give another folder"
                )
            folder.write({"settings.json": _head(folder)})
        # Of a run killed while it wrote.
        remove_drafts(path, "settings.json", "recordings.json", "table.*")
        remove_drafts(path / "dense", "stack-*")
        remove_drafts(path / "networks", "stack-*")
        folder.records = _read_cells(folder, cut=True)
        yield folder


def stored(path: Path) -> Folder:
    """Return the run in a folder, finished or not.

    Raises:
        TrellisError: The folder holds no run, or its files are damaged.
    """
    file = path / "settings.json"
    remedy = "restore the file, or start a run in another folder"
    try:
        given = read_json(file, dict[str, Any], remedy)
    except FileNotFoundError:
        raise TrellisError(
            f"{str(path)!r} holds no run; start one with trellis reproduce"
        ) from None
    if "format" in given and given["format"] != FORMAT:
        raise TrellisError(
            f"{str(file)!r}: expected format {FORMAT}, got format {given['format']!r:.60}; use the "
            "release that wrote it"
        )
    try:
        head = fitted(given, RunHead)
        settings, data = Settings.from_dict(head["settings"]), Data.from_dict(head["data"])
        _check_size(settings, data)
    except TrellisError as error:
        raise TrellisError(f"{str(file)!r}: {error!s:.400}; {remedy}") from None
    folder = Folder(path, settings, data, head["versions"])
    folder.records = _read_cells(folder, cut=False)
    return folder


def _check_size(settings: Settings, data: Data) -> None:
    """Raise if a run is far too large: a damaged file may ask for any size."""
    rows = max(len(settings.rates) * len(settings.rows), len(settings.inverse_alphas) + 1) + 1
    networks = settings.seeds * len(data.folds) * rows
    connections = architecture_of(settings, data).connections
    for found, most, what in (
        (networks, _MOST_NETWORKS, "networks (seeds, folds and rows multiplied)"),
        (connections, _MOST_CONNECTIONS, "connections in a network"),
    ):
        if found > most:
            raise TrellisError(f"expected at most {most:,} {what}, got {found:,}")


def _head(folder: Folder) -> str:
    head = {
        "format": FORMAT,
        "settings": folder.settings.to_dict(),
        "data": folder.data.to_dict(),
        "versions": folder.versions,
    }
    return json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _check_same(new: Folder, old: Folder) -> None:
    """Raise if a folder's cells were made with other settings, data or versions."""
    differs = [
        f"{name.replace('_', ' '):.80} is {_short(before)} there and {_short(now)} now"
        for head in ("settings", "data", "versions")
        for name, before, now in _compared(_plain(old, head), _plain(new, head))
    ]
    if differs:
        more = f" (and {len(differs) - 4} more)" if len(differs) > 4 else ""
        raise TrellisError(
            f"{str(new.path)!r} holds another run: {'; '.join(differs[:4])}{more}. Give "
            "another folder, or the same settings"
        )


def _plain(folder: Folder, head: str) -> dict[str, Any]:
    part = getattr(folder, head)
    return dict(part) if isinstance(part, dict) else part.to_dict()


def _compared(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in dict.fromkeys([*old, *new]):
        before, now = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            for inner, *values in _compared(before, now):
                yield f"{name} {inner}", values[0], values[1]
        elif before != now:
            yield name, before, now


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _read_cells(folder: Folder, *, cut: bool) -> dict[str, Record]:
    """Return the finished cells.

    An incomplete last line was being written when the run was killed. It is ignored; with ``cut``
    it is also removed from the file.
    """
    path = folder.path / "cells.jsonl"
    try:
        content = read_limited(path, LARGEST_LINES, "delete it; its cells are computed again")
    except FileNotFoundError:
        return {}
    whole = content[: content.rfind(b"\n") + 1]
    if cut and len(whole) < len(content):
        os.truncate(path, len(whole))
    remedy = "delete that line and run again; its cell is computed again"
    found: dict[str, Record] = {}
    shapes = architecture_of(folder.settings, folder.data).shapes
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            given = parsed(line)
            refused = isinstance(given, dict) and "refused" in given
            record: Record = dict(fitted(given, Refused if refused else Measured))
            _check_cell(record, folder.settings, folder.data, shapes)
        except TrellisError as error:
            raise TrellisError(f"{str(path)!r}, line {number}: {error!s:.400}; {remedy}") from None
        found.setdefault(record["cell"], record)
    return found


def _check_cell(
    record: Record, settings: Settings, data: Data, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise if a cell does not belong to this run."""

    def check(name: str, fits: bool, expected: str) -> None:
        if not fits:
            raise TrellisError(f"expected {expected} at $.{name}, got {_short(record[name])}")

    row, seed, fold = record["row"], record["seed"], record["fold"]
    check("seed", seed < settings.seeds, f"a seed below {settings.seeds}")
    check("fold", fold < len(data.folds), f"a fold below {len(data.folds)}")
    cell = f"{row}/seed-{seed}/fold-{fold}"
    check("cell", record["cell"] == cell, _short(cell))
    if "refused" in record:
        return
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    total = sum(sizes.values())
    check("total", record["total"] == total, f"{total:,} connections")
    check("kept", record["kept"] <= total, f"at most {total:,} connections")
    check("live", record["live"] <= record["kept"], "at most what is kept")
    check("test", record["test"] == data.test[fold], f"{data.test[fold]:,} recordings")
    check("correct", record["correct"] <= record["test"], "at most what is tested on")
    check("train_correct", record["train_correct"] <= record["train"], "at most the training part")
    for name in ("layers", "live_layers"):
        if name in record:
            fits = record[name].keys() == sizes.keys() and all(
                count <= sizes[layer] for layer, count in record[name].items()
            )
            check(name, fits, f"a count for each of {', '.join(sizes)[:200]}")
    if "said" in record:
        fits = len(record["said"]) == record["test"] and max(record["said"]) < data.classes
        check("said", fits, f"{record['test']:,} classes below {data.classes}")
