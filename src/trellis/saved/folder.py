"""The two files of a saved model.

``model.safetensors``
    Every parameter and buffer under the key it has in the unpruned model, tied ones once, +0.0
    where nothing is kept; and under ``masks:NAME`` the mask of parameter NAME, eight connections
    a byte as in a masks file.

``model.json``
    ``{"format": "trellis.model", "version": 1, "architecture": {"name": "GCN", "arguments":
    {...}}, "tensors": SHA-256 of model.safetensors, "notes": {...}}``. The architecture of a
    model that is not ours is null.

The JSON is written last, and names the other file by its hash: what a crash or a stray copy puts
together is never taken for a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trellis.errors import TrellisError
from trellis.files import check_writable, replacing
from trellis.limits import read_limited
from trellis.masks import Masks
from trellis.masks.file import pack, unpack
from trellis.saved.weights import MASK, read_tensors, write_weights

TENSORS, DESCRIPTION = "model.safetensors", "model.json"
FORMAT, VERSION = "trellis.model", 1
_LONGEST = 1 << 26  # bytes of JSON that are read at all


@dataclass(frozen=True)
class Folder:
    """What a folder holds: checked in itself, not yet against a model."""

    path: Path
    tensors: dict[str, Tensor]
    aliases: dict[str, str]  # as the file's metadata has them
    masks: Masks | None
    architecture: dict[str, Any] | None
    notes: dict[str, Any]


def write_folder(
    folder: str | PathLike[str],
    state: Mapping[str, Tensor],
    masks: Masks | None,
    architecture: dict[str, Any] | None,
    notes: Mapping[str, Any],
) -> None:
    """Write both files, or leave what was there. The folder is made, its parent must exist."""
    path = Path(folder)
    head = {"format": FORMAT, "version": VERSION, "architecture": architecture}
    _json(head | {"notes": dict(notes)})  # what cannot be written is told before anything is
    if clash := [name for name in state if name.startswith(MASK)]:
        raise TrellisError(f"{clash[0]!r}: no parameter may have a name that begins with {MASK!r}")
    made = not path.exists()
    if made:
        check_writable(path)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        why = "it is a file" if path.is_file() else error.strerror
        raise TrellisError(f"cannot make the folder {str(path)!r}: {why}") from error
    try:
        with replacing(path / TENSORS, path / DESCRIPTION) as [tensors, description]:
            packed = {MASK + n: torch.from_numpy(pack(m)) for n, m in (masks or {}).items()}
            write_weights(tensors, state, beside=packed)
            whole = head | {"tensors": _sha256(tensors), "notes": dict(notes)}
            description.write_text(_json(whole), encoding="utf-8")
    except BaseException:
        if made and not any(path.iterdir()):
            path.rmdir()
        raise


def read_folder(folder: str | PathLike[str]) -> Folder:
    """Read both files. Anything amiss is an error."""
    path = Path(folder)
    if not path.is_dir():
        raise TrellisError(f"there is no folder {str(path)!r}: give one written by trellis.save")
    description = _description(path / DESCRIPTION)
    stored = path / TENSORS
    if not stored.is_file():
        raise TrellisError(f"{str(path)!r} holds no model: there is no {TENSORS} in it")
    try:
        digest = _sha256(stored)
    except OSError as error:
        raise TrellisError(f"{str(stored)!r} cannot be read: {error.strerror}") from error
    if digest != description["tensors"]:
        raise TrellisError(
            f"{str(stored)!r} is not the file that {DESCRIPTION} beside it was written with: it "
            "is damaged or of another model. Save or copy the folder again"
        )
    tensors, metadata = read_tensors(stored)
    packed = {n.removeprefix(MASK): tensors.pop(n) for n in list(tensors) if n.startswith(MASK)}
    masks = {
        name: _mask(stored, name, mask, tensors.get(metadata.get(name, name)))
        for name, mask in packed.items()
    }
    return Folder(
        path=path,
        tensors=tensors,
        aliases=metadata,
        masks=Masks(masks) if masks else None,
        architecture=description["architecture"],
        notes=description["notes"],
    )


def is_saved(folder: str | PathLike[str]) -> bool:
    """Whether a folder holds a finished model (or one file that says so)."""
    return Path(folder, DESCRIPTION).exists()


def _description(path: Path) -> dict[str, Any]:
    try:
        text = read_limited(path, _LONGEST).decode("utf-8")
        found = json.loads(text, parse_constant=_no_number)
    except FileNotFoundError:
        within = sorted(each.parent for each in path.parent.glob(f"*/{DESCRIPTION}"))
        instead = f"; {' and '.join(repr(str(each)) for each in within[:3])} do" if within else ""
        raise TrellisError(
            f"{str(path.parent)!r} holds no model: there is no {DESCRIPTION} in it{instead}"
        ) from None
    except OSError as error:
        raise TrellisError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise TrellisError(
            f"{str(path)!r} does not describe a Trellis model (its format is not {FORMAT!r}): "
            "give a folder written by trellis.save"
        )
    if found.get("version") != VERSION:
        raise TrellisError(
            f"{str(path)!r} is of version {found.get('version')!r}; this release of Trellis reads "
            f"version {VERSION}: use the release that wrote it"
        )
    if not isinstance(found.get("tensors"), str):
        raise _damaged(path, f"it has no hash of {TENSORS}")
    if not isinstance(found.get("notes"), dict):
        raise _damaged(path, "its notes are not an object")
    if "architecture" not in found:
        raise _damaged(path, "it does not say what architecture it is of")
    architecture = found["architecture"]
    if architecture is not None and not (
        isinstance(architecture, dict)
        and isinstance(architecture.get("name"), str)
        and isinstance(architecture.get("arguments"), dict)
    ):
        raise _damaged(path, f"its architecture is {architecture!r:.100}")
    return found


def _mask(path: Path, name: str, packed: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        raise _damaged(path, f"it has a mask for {name!r} and no such parameter")
    count = weight.numel()
    if packed.dtype != torch.uint8 or packed.shape != (-(-count // 8),):
        raise _damaged(path, f"the mask for {name!r} is not {-(-count // 8)} bytes")
    if count % 8 and int(packed[-1]) >> (count % 8):
        raise _damaged(path, f"the mask for {name!r} has bits set after its last connection")
    mask = unpack(packed.numpy(), tuple(weight.shape))
    if weight[~mask].any():  # NaN is true
        raise _damaged(path, f"{name!r} is not 0 where its mask keeps nothing")
    return mask


def _json(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise TrellisError(f"notes cannot be written as JSON: {error}") from None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number in JSON")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _damaged(path: Path, what: str) -> TrellisError:
    return TrellisError(f"{str(path)!r} is not sound: {what}. Save or download it again")
