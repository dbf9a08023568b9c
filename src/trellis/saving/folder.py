"""The two files of a saved model.

``model.safetensors``
    Every parameter and buffer under its key in the unpruned model, tied ones once, +0.0 where
    nothing is kept. The mask of parameter NAME is under ``masks:NAME``, eight connections a byte
    as in a masks file.

``model.json``
    ``{"format": "trellis.model", "version": 1, "architecture": {"name": "GCN", "arguments":
    {...}}, "tensors": SHA-256 of model.safetensors, "notes": {...}}``. The architecture is null
    if the model is not one of Trellis. Nested networks (`trellis.Nested`) have their sizes under
    "nested", and tensors whose names begin with ``nested:`` in model.safetensors.

The JSON names the other file by its hash, so files of two models are never combined. Both files
are first written completely under temporary names. Then the JSON is moved into place, and then the
tensors. Until the JSON is moved the folder holds the old model, afterwards the new one. A process
that is killed in between leaves the tensors under their temporary name, ``.model.safetensors.``
and eight hexadecimal digits, where they are found by their hash.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TrellisError
from ..files import check_writable, drafts_of, remove_drafts, replacing
from ..schema import Architecture, ModelHead, fitted, parsed, read_json

if TYPE_CHECKING:
    from torch import Tensor

    from ..masks import Masks
    from .nested import Nested

TENSORS, DESCRIPTION = "model.safetensors", "model.json"
# Prefixes of names in the file of a saved model: packed masks, and the sizes of nested networks.
MASK, NESTED = "masks:", "nested:"
BESIDE = (MASK, NESTED)
FORMAT, VERSION = "trellis.model", 1


@dataclass(frozen=True)
class Folder:
    """Hold the content of a folder: checked, but not yet compared with a model."""

    path: Path
    tensors: dict[str, Tensor]
    aliases: dict[str, str]  # the other names of tied parameters, from the file's metadata
    masks: Masks | None
    architecture: Architecture | None
    notes: dict[str, Any]
    nested: Nested | None = None


def write_folder(
    folder: str | PathLike[str],
    state: Mapping[str, Tensor],
    masks: Masks | None,
    architecture: dict[str, Any] | None,
    notes: Mapping[str, Any],
    nested: Nested | None = None,
) -> None:
    """Write both files or neither. The folder is created; its parent must exist."""
    import torch

    from ..masks.masks import pack
    from .model import write_weights

    path = Path(folder)
    head = {"format": FORMAT, "version": VERSION, "architecture": architecture}
    if nested is not None:
        head["nested"] = nested.head()
    _json(head | {"notes": dict(notes)})  # raises before anything is written
    if clash := [name for name in state if name.startswith(BESIDE)]:
        raise TrellisError(
            f"parameter {clash[0]!r}: expected a name that does not begin with "
            f"{' or '.join(map(repr, BESIDE))}"
        )
    made = not path.exists()
    if made:
        check_writable(path)
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        why = "it is a file; name a folder" if path.exists() else error.strerror
        raise TrellisError(f"cannot make the folder {str(path)!r}: {why}") from error
    try:
        finish_save(path)
        with replacing(path / DESCRIPTION, path / TENSORS) as [description, tensors]:
            packed = {MASK + n: torch.from_numpy(pack(m)) for n, m in (masks or {}).items()}
            packed |= {} if nested is None else nested.tensors()
            write_weights(tensors, state, beside=packed)
            whole = head | {"tensors": _sha256(tensors), "notes": dict(notes)}
            description.write_text(_json(whole), encoding="utf-8")
    except BaseException:
        if made and not any(path.iterdir()):
            path.rmdir()
        raise


def read_folder(folder: str | PathLike[str]) -> Folder:
    """Read both files; raise if they are not valid."""
    from ..masks import Masks
    from .model import read_tensors
    from .nested import Nested

    path = Path(folder)
    if not path.is_dir():
        raise TrellisError(f"there is no folder {str(path)!r}: give one written by trellis.save")
    description = _description(path / DESCRIPTION)
    stored = _stored(path, description["tensors"])
    if stored is None:
        stored = path / TENSORS
        if not stored.is_file():
            raise TrellisError(f"{str(path)!r} holds no model: there is no {TENSORS} in it")
        raise TrellisError(
            f"{str(stored)!r} is not the file that {DESCRIPTION} beside it was written with: it "
            "is damaged or belongs to another model. Save or copy the folder again"
        )
    tensors, metadata = read_tensors(stored)
    packed = {n.removeprefix(MASK): tensors.pop(n) for n in list(tensors) if n.startswith(MASK)}
    sizes = {name: tensors.pop(name) for name in list(tensors) if name.startswith(NESTED)}
    masks = {
        name: _mask(stored, name, mask, tensors.get(metadata.get(name, name)))
        for name, mask in packed.items()
    }
    nested = None
    if (told := description.get("nested")) is not None:
        try:
            nested = Nested.read(told, sizes, tensors, masks)
        except TrellisError as error:
            raise _damaged(stored, str(error)) from None
    return Folder(
        path=path,
        tensors=tensors,
        aliases=metadata,
        masks=Masks(masks) if masks else None,
        architecture=description["architecture"],
        notes=description["notes"],
        nested=nested,
    )


def is_saved(folder: str | PathLike[str]) -> bool:
    """Return whether a folder holds a saved model; only its ``model.json`` is looked for."""
    return Path(folder, DESCRIPTION).exists()


def own_files(folder: str | PathLike[str]) -> list[Path]:
    """Return the paths of a model's files in a folder, whether they exist or not."""
    return [Path(folder, TENSORS), Path(folder, DESCRIPTION)]


def finish_save(folder: Path) -> None:
    """Move the tensors of an interrupted save into place; only for the process that writes here."""
    if not drafts_of(folder / TENSORS):
        return
    try:
        stored = _stored(folder, _description(folder / DESCRIPTION)["tensors"])
    except TrellisError:  # the folder holds no model
        return
    if stored is not None and stored.name != TENSORS:
        with suppress(OSError):
            os.replace(stored, folder / TENSORS)


def tidy_folder(folder: Path) -> None:
    """Finish an interrupted save, and remove temporary files.

    No other process may be writing to the folder.
    """
    finish_save(folder)
    remove_drafts(folder, TENSORS, DESCRIPTION)


def _stored(folder: Path, digest: str) -> Path | None:
    """Find the file of a model's tensors by its hash."""
    for path in (folder / TENSORS, *drafts_of(folder / TENSORS)):
        try:
            if path.is_file() and _sha256(path) == digest:
                return path
        except FileNotFoundError:  # another process has moved it into place
            continue
        except OSError as error:
            raise TrellisError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    return None


def _description(path: Path) -> ModelHead:
    remedy = "save or download the model again"
    try:
        given = read_json(path, dict[str, Any], remedy)
    except FileNotFoundError:
        within = sorted(each.parent for each in path.parent.glob(f"*/{DESCRIPTION}"))
        instead = f"; try {' or '.join(repr(str(each)) for each in within[:3])}" if within else ""
        raise TrellisError(
            f"{str(path.parent)!r} holds no model: there is no {DESCRIPTION} in it{instead}"
        ) from None
    if given.get("format") != FORMAT:
        raise TrellisError(
            f"{str(path)!r} does not describe a Trellis model (its format is not {FORMAT!r}): "
            "give a folder written by trellis.save"
        )
    if given.get("version") != VERSION:
        raise TrellisError(
            f"{str(path)!r} is of version {given.get('version')!r:.60}; this release of Trellis "
            f"reads version {VERSION}: use the release that wrote it"
        )
    try:
        return fitted(given, ModelHead)
    except TrellisError as error:
        raise TrellisError(f"{str(path)!r}: {error}; {remedy}") from None


def _mask(path: Path, name: str, packed: Tensor, weight: Tensor | None) -> Tensor:
    import torch

    from ..masks.masks import unpack

    if weight is None:
        raise _damaged(path, f"it has a mask for {name!r} and no such parameter")
    count = weight.numel()
    if packed.dtype != torch.uint8 or packed.shape != (-(-count // 8),):
        raise _damaged(path, f"the mask for {name!r} is not {-(-count // 8)} bytes")
    if count % 8 and int(packed[-1]) >> (count % 8):
        raise _damaged(path, f"the mask for {name!r} has bits set after its last connection")
    mask = unpack(packed.numpy(), tuple(weight.shape))
    if weight[~mask].any():  # NaN counts as true
        raise _damaged(path, f"{name!r} is not 0 where its mask keeps nothing")
    return mask


def _json(value: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        parsed(text)  # raises now if it could not be read again
        return text
    except (TrellisError, TypeError, ValueError, RecursionError) as error:
        raise TrellisError(f"notes cannot be written as JSON: {error}") from None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _damaged(path: Path, what: str) -> TrellisError:
    return TrellisError(f"{str(path)!r} is not sound: {what}. Save or download it again")
