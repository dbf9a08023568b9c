"""What `shrink` is asked for, looked at before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ...errors import TrellisError
from ...files import intact
from ...schema import CheckpointHeader, fitted, parsed
from ...select.budget import as_written
from ...train.checkpoint import HEADER, Another
from ...train.differing import differing


def accuracy_of(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, Real | Decimal):
        raise TrellisError(f"at_least={given!r} is not a number: give an accuracy, such as 0.9")
    value = float(as_written(given))
    if not 0 < value <= 1:
        raise TrellisError(f"at_least={given!r} is not an accuracy above 0 and up to 1")
    return value


def seed_of(given: Any) -> int:
    whole = isinstance(given, Integral) and not isinstance(given, bool)
    if not (whole and 0 <= int(given) < 2**63):
        raise TrellisError(f"seed={given!r}: give a whole number from 0 up to 2^63 - 1")
    return int(given)


def device_of(given: torch.device | str) -> torch.device:
    try:
        device = torch.device(given)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise TrellisError(f"device={given!r}: give 'cpu', 'cuda', or 'cuda:N'")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrellisError(f"device={str(given)!r}: there is no CUDA device here; give 'cpu'")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise TrellisError(f"device={str(given)!r}: there are {count} of them, from 'cuda:0'")
    return device


def folder_of(given: str | PathLike[str] | None) -> Path | None:
    if given is None:
        return None
    folder = Path(given)
    if not folder.is_dir():
        raise TrellisError(f"folder={str(folder)!r}: there is no such folder; make it first")
    return folder


def as_json(given: Any) -> Any:
    """What JSON can hold, of a number of any kind. What is none is refused later.

    >>> import numpy as np
    >>> as_json(np.int64(60)), as_json(0.9), as_json(Decimal("0.9"))
    (60, 0.9, '0.9')
    """
    if given is None or isinstance(given, bool | int | float):
        return given
    return int(given) if isinstance(given, Integral) else str(given)


def check_begun(folder: Path, about: Mapping[str, Any]) -> None:
    """Refuse to go on with what was begun otherwise, before anybody has waited: the phase that
    would find out may come after a search."""
    wanted = json.loads(json.dumps(dict(about)))
    for path in sorted(folder.glob(".*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                names: list[str] = file.keys()
                if not intact({name: file.get_tensor(name) for name in names}, metadata):
                    continue
            stored = fitted(parsed(metadata.get(HEADER, "null")), CheckpointHeader)["settings"]
        except (OSError, SafetensorError, TrellisError):
            continue  # its phase will tell what is wrong with it, if it is one's at all
        differs = differing({name: stored.get(name) for name in wanted}, wanted)
        if differs:
            raise Another(path, differs)
