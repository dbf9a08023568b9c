"""Writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from trellis.errors import TrellisError


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
    one of a random name beside it, which would stay there for ever were this process killed."""
    draft.write_bytes(safetensors.torch.save(dict(tensors), metadata))


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
