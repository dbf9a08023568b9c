"""Writing files whole or not at all, and tensors with a digest that tells damage."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from .errors import TrellisError

DIGEST = "trellis.digest"  # a file's own, in its metadata


def check_writable(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise if a file cannot go there, before anybody has waited for its content.

    ``inputs`` are files that are read on the way: none of them may be the output.
    """
    stream, place = _is_stream(path), _place(path)
    if place.is_dir():
        raise TrellisError(f"cannot write {str(path)!r}: it is a folder; name a file in it")
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise TrellisError(f"cannot write {str(path)!r}: it is an input, too; name another file")
    if not stream and not place.parent.is_dir():
        raise TrellisError(f"cannot write {str(path)!r}: there is no folder {str(place.parent)!r}")
    if not os.access(path if stream else place.parent, os.W_OK):
        what = "it" if stream else repr(str(place.parent))
        raise TrellisError(f"cannot write {str(path)!r}: {what} is read-only")


@contextmanager
def replacing(*paths: Path) -> Iterator[list[Path]]:
    """Drafts of ``paths`` to write to; all are moved into place at the end, or none.

    A draft lies beside its place. A symbolic link stays, and what it points to is replaced. A
    device or a pipe stays, and is written to. Files are moved in the order given, and an interrupt
    does not stop that: only a process that is killed leaves the drafts of the last ones.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as [draft]:
    ...         _ = draft.write_text("whole")
    ...     os.listdir(folder), Path(folder, "a.txt").read_text()
    (['a.txt'], 'whole')
    """
    drafts: list[tuple[Path, Path | None]] = []  # and where each is to go, unless to a stream
    ready = False
    try:
        modes = []
        for path in paths:
            place = None if _is_stream(path) else _place(path)
            if place is None:
                draft = Path(tempfile.gettempdir(), f"trellis-{secrets.token_hex(8)}")
            else:
                draft = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
            drafts.append((draft, place))
            modes.append(_created(draft))
        yield [draft for draft, _ in drafts]
        for (draft, _), mode in zip(drafts, modes, strict=True):
            draft.chmod(mode)  # whoever writes it may have made it private
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        for (draft, place), path in zip(drafts, paths, strict=True):
            if place is None:
                _send(draft, path)
        ready = True
        for draft, place in drafts:
            if place is not None:
                os.replace(draft, place)
    except (OSError, SafetensorError) as error:  # safetensors tells a full disk by its own
        where = " and ".join(repr(str(path)) for path in paths)
        why = getattr(error, "strerror", None) or error
        raise TrellisError(f"cannot write {where}: {why}") from error
    finally:
        first = next((draft for draft, place in drafts if place is not None), None)
        begun = ready and first is not None and not first.exists()
        for draft, place in drafts:
            with suppress(OSError):  # why it cannot be written is what is to be told
                if begun and place is not None:
                    os.replace(draft, place)  # if it is still there
                else:
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


def drafts_of(path: Path) -> list[Path]:
    """What processes that were killed within `replacing` left beside a file."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}"))


_STREAMS = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/.*")  # whatever they are links to


def _is_stream(path: Path) -> bool:
    """Whether it is written to, not replaced: a device or a pipe. Other things are refused."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # it is not there yet, or cannot be: that is told elsewhere
        return False
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        what = "a block device" if stat.S_ISBLK(mode) else "a socket"
        raise TrellisError(f"cannot write {str(path)!r}: it is {what}; name a file")
    if stat.S_ISREG(mode) and _STREAMS.fullmatch(os.path.abspath(path)):
        return True
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _place(path: Path) -> Path:
    """Where a file lies, or will: where a symbolic link points to."""
    try:
        place = path.resolve() if path.is_symlink() else path
        if not place.is_symlink():
            return place
        why: object = "its symbolic links go round"
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: they do, too
        why = getattr(error, "strerror", None) or error
    raise TrellisError(f"cannot write {str(path)!r}: {why}")


def _send(draft: Path, stream: Path) -> None:
    """Write to what is there: without the flags that would make a file of it."""
    to = os.open(stream, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
    with draft.open("rb") as file, open(to, "wb") as out:
        shutil.copyfileobj(file, out)


def _created(path: Path) -> int:
    """Make an empty file, and say what permissions it got."""
    path.touch(exist_ok=False)
    return path.stat().st_mode


# One process a folder.


LOCK = ".lock"
_TRIES = 100  # where files have no lasting identity, none ever looks like the one there
# A folder may be a stranger's: what a link in it points to is not ours to empty.
_OPENED = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_BUSY = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the folder ``path``; an error if another process does.

    The system lets go of it when a process ends, however it ends, so that no stale lock is left.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with locked(Path(folder)):
    ...         os.listdir(folder)
    ...     os.listdir(folder)
    ['.lock']
    []
    """
    file = _held(path)
    try:
        with suppress(OSError):  # a full disk: who holds it is a courtesy
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        yield
    finally:
        _release(file, path / LOCK)


def remove_stale_lock(path: Path) -> None:
    """Remove the file that a process which was killed has left. A folder that is in use, or that
    may not be written to, is left alone."""
    if (path / LOCK).exists():
        with suppress(TrellisError), locked(path):
            pass


def _held(path: Path) -> int:
    """The open lock file of a folder that is ours now."""
    for tries in range(_TRIES):
        try:
            file = os.open(path / LOCK, _OPENED, 0o644)
        except OSError as error:
            raise TrellisError(f"cannot write to {str(path)!r}: {error.strerror}") from error
        try:
            _take(file)
        except OSError as error:
            # File systems that know no locks are some people's only ones: they go without.
            if error.errno in _BUSY:
                holder = os.read(file, 20).decode(errors="replace").strip()
                os.close(file)
                raise TrellisError(
                    f"{str(path)!r} is in use by another process ({holder or 'unknown'}); wait for "
                    "it, or give another folder"
                ) from None
        # Its last holder may have removed it before we held it: nobody else would see ours.
        if _is_there(file, path / LOCK) or tries == _TRIES - 1:
            return file
        os.close(file)
    raise AssertionError("the last try returns")


def _is_there(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _take(file: int) -> None:
        # A byte far behind the text, which others must still be able to read.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)

    def _release(file: int, path: Path) -> None:
        os.close(file)
        with suppress(OSError):  # an open file cannot be removed there: a next holder has it
            path.unlink()

else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _release(file: int, path: Path) -> None:
        with suppress(OSError):  # while it is held, so that no next holder's file is removed
            path.unlink()
        os.close(file)
