"""The folder of a run: its settings, its finished cells, the weights of its dense networks.

::

    settings.json    what was asked, of what data, with which versions
    cells.jsonl      a line for each finished cell
    recordings.json  classes, joints, and the labels of what is tested on
    dense/           the dense networks, a safetensors file for each stack
    networks/        a pruned network of each row, what it keeps alone: a file for each stack
    table.*          what it came to, once all cells are there
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import TrellisError
from ..files import read_whole, remove_drafts, replacing, write_tensors
from ..lock import locked
from ..train.provenance import versions
from .settings import Data, Settings

Record = dict[str, Any]  # a finished cell, as its line in cells.jsonl
FORMAT = 1


class Folder:
    """A run on disk. `opened` to add to it, `stored` to read only."""

    def __init__(
        self, path: Path, settings: Settings, data: Data, versions: dict[str, str]
    ) -> None:
        self.path, self.settings, self.data, self.versions = path, settings, data, versions
        self.records: dict[str, Record] = {}  # by cell

    def dense(self, stack: int) -> Path:
        return self.path / "dense" / f"stack-{stack}.safetensors"

    def write_dense(self, stack: int, weights: Mapping[str, Tensor]) -> None:
        self.dense(stack).parent.mkdir(exist_ok=True)
        with replacing(self.dense(stack)) as [draft]:
            write_tensors(draft, {name: w.cpu().contiguous() for name, w in weights.items()})

    def networks(self, stack: int) -> Path:
        return self.path / "networks" / f"stack-{stack}.safetensors"

    def write_networks(self, stack: int, tensors: Mapping[str, Tensor]) -> None:
        self.networks(stack).parent.mkdir(exist_ok=True)
        with replacing(self.networks(stack)) as [draft]:
            write_tensors(draft, tensors)

    def add(self, records: Sequence[Record]) -> None:
        """Append finished cells: on disk when this returns."""
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
                "are kept, and the same command goes on from there"
            ) from error
        self.records |= {record["cell"]: record for record in new}

    def write(self, texts: Mapping[str, str]) -> None:
        """Put files beside the cells, all or none."""
        with replacing(*(self.path / name for name in texts)) as drafts:
            for draft, text in zip(drafts, texts.values(), strict=True):
                draft.write_text(text, encoding="utf-8", newline="")


@contextmanager
def opened(path: Path, settings: Settings, data: Data) -> Iterator[Folder]:
    """Begin a run in ``path``, or go on with the one that is there; nobody else may meanwhile."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file; name a folder" if path.exists() else error.strerror
        raise TrellisError(f"cannot make the folder {str(path)!r}: {why}") from error
    with locked(path):
        folder = Folder(path, settings, data, versions())
        if (path / "settings.json").exists():
            _refuse_another(folder, stored(path))
        else:
            strangers = [p.name for p in sorted(path.iterdir()) if not p.name.startswith(".")]
            if strangers:
                raise TrellisError(
                    f"{str(path)!r} holds {strangers[0]!r} and no run of ours: name a folder of "
                    "its own with --out"
                )
            folder.write({"settings.json": _head(folder)})
        # Of a run killed while it wrote.
        remove_drafts(path, "settings.json", "recordings.json", "table.*")
        remove_drafts(path / "dense", "stack-*")
        remove_drafts(path / "networks", "stack-*")
        folder.records = _read_cells(path / "cells.jsonl", cut=True)
        yield folder


def stored(path: Path) -> Folder:
    """A run as it was left, finished or not."""
    file = path / "settings.json"
    try:
        head = json.loads(read_whole(file))
        if head["format"] != FORMAT:
            raise TrellisError(
                f"{str(file)!r} has format {head['format']!r}; this version reads {FORMAT}"
            )
        folder = Folder(
            path,
            Settings.from_dict(head["settings"]),
            Data.from_dict(head["data"]),
            dict(head["versions"]),
        )
    except FileNotFoundError:
        raise TrellisError(
            f"there is no run in {str(path)!r}: start one with trellis reproduce"
        ) from None
    except OSError as error:
        raise TrellisError(f"cannot read {str(file)!r}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TrellisError(f"{str(file)!r} is not the head of a run: {error!r}") from None
    folder.records = _read_cells(path / "cells.jsonl", cut=False)
    return folder


def _head(folder: Folder) -> str:
    head = {
        "format": FORMAT,
        "settings": folder.settings.to_dict(),
        "data": folder.data.to_dict(),
        "versions": folder.versions,
    }
    return json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _refuse_another(new: Folder, old: Folder) -> None:
    """Cells of one folder must all come from the same settings, data and versions."""
    differs = [
        f"{name.replace('_', ' ')} is {_short(before)} there and {_short(now)} now"
        for head in ("settings", "data", "versions")
        for name, before, now in _compared(_plain(old, head), _plain(new, head))
    ]
    if differs:
        more = f" (and {len(differs) - 4} more)" if len(differs) > 4 else ""
        raise TrellisError(
            f"{str(new.path)!r} holds another run: {'; '.join(differs[:4])}{more}. Choose another "
            "--out, or ask for the same again"
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


def _read_cells(path: Path, *, cut: bool) -> dict[str, Record]:
    """The finished cells. A last line without its end was being written when the run was killed:
    it is left out and, with ``cut``, off."""
    try:
        content = read_whole(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise TrellisError(f"cannot read {str(path)!r}: {error.strerror}") from error
    whole = content[: content.rfind(b"\n") + 1]
    if cut and len(whole) < len(content):
        os.truncate(path, len(whole))
    found: dict[str, Record] = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            record = json.loads(line)
            found.setdefault(record["cell"], record)
        except (ValueError, KeyError, TypeError) as error:
            raise TrellisError(
                f"{str(path)!r}, line {number}, is not a finished cell ({error}): delete that line "
                "and run again; its cell is made anew"
            ) from None
    return found
