"""Writing files whole or not at all, and tensors with a digest that tells damage."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from trellis.errors import TrellisError

DIGEST = "trellis.digest"  # a file's own, in its metadata


def check_writable(path: Path) -> None:
    """Raise if a file cannot go there, before anybody has waited for its content."""
    if path.is_dir():
        raise TrellisError(f"cannot write {str(path)!r}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise TrellisError(f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}")
    if not os.access(path.parent, os.W_OK):
        raise TrellisError(f"cannot write {str(path)!r}: {str(path.parent)!r} is read-only")


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Paths beside ``paths`` to write to; all are moved into place at the end, or none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as [draft]:
    ...         _ = draft.write_text("whole")
    ...     os.listdir(folder), Path(folder, "a.txt").read_text()
    (['a.txt'], 'whole')
    """
    drafts = [path.with_name(f".{path.name}.{secrets.token_hex(4)}") for path in paths]
    try:
        modes = [_created(draft) for draft in drafts]
        yield drafts
        for draft, mode in zip(drafts, modes, strict=True):
            draft.chmod(mode)  # whoever writes it may have made it private
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        for draft, path in zip(drafts, paths, strict=True):
            os.replace(draft, path)
    except (OSError, SafetensorError) as error:  # safetensors tells a full disk by its own
        where = " and ".join(repr(str(path)) for path in paths)
        why = getattr(error, "strerror", None) or error
        raise TrellisError(f"cannot write {where}: {why}") from error
    finally:
        for draft in drafts:
            with suppress(OSError):  # why it cannot be written is what is to be told
                draft.unlink(missing_ok=True)


def write_tensors(
    draft: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Tensors as safetensors, into the draft itself: the library's own way to write a file is by
    one of a random name beside it, which would stay there for ever were this process killed.

    The metadata gets the `digest` of all, which `intact` compares. The same tensors make the same
    bytes: the library writes metadata in any order.
    """
    told = dict(metadata or {})
    told[DIGEST] = digest(tensors, told)
    content = safetensors.torch.save(dict(tensors), told)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    with draft.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(memoryview(content)[8 + size :])


def digest(tensors: Mapping[str, Tensor], about: Any = None) -> str:
    """SHA-256 over tensors (names, types, shapes, bytes) and what JSON holds ``about`` them.

    >>> one, other = torch.zeros(2), torch.tensor([0.0, -0.0])
    >>> digest({"a": one}) == digest({"a": other}), len(digest({"a": one}))
    (False, 64)
    """
    found = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().data)
    return found.hexdigest()


def intact(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bool | None:
    """Whether these are the tensors and metadata that `write_tensors` wrote; None if the file has
    no digest to tell by."""
    if DIGEST not in metadata:
        return None
    rest = {name: value for name, value in metadata.items() if name != DIGEST}
    return metadata[DIGEST] == digest(tensors, rest)


def remove_drafts(folder: Path, *names: str) -> None:
    """Remove what processes that were killed within `replacing` left beside files of a folder.

    ``names`` are those files' names, or patterns of them. Only for whoever alone writes there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("a.txt", ".a.txt.0badcafe", ".a.txt.swp"):
    ...         Path(folder, name).touch()
    ...     remove_drafts(Path(folder), "*.txt")
    ...     sorted(os.listdir(folder))
    ['.a.txt.swp', 'a.txt']
    """
    for name in names:
        for draft in folder.glob(f".{name}.{'[0-9a-f]' * 8}"):
            draft.unlink(missing_ok=True)


def _created(path: Path) -> int:
    """Make an empty file, and say what permissions it got."""
    path.touch(exist_ok=False)
    return path.stat().st_mode
