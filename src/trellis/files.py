"""Write files completely or not at all, add digests that reveal damage, and lock folders."""

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
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from .errors import TrellisError

if TYPE_CHECKING:
    from torch import Tensor

DIGEST = "trellis.digest"  # key of a file's digest in its metadata


def check_writable(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raise if a file cannot be written, before its content is computed.

    ``inputs`` are files that are read meanwhile; the output must be none of them.
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
    """Give temporary files to write; at the end all of them are moved to ``paths``, or none.

    A temporary file is in the folder of its target. A symbolic link stays, and its target is
    replaced. A device or a pipe stays, and is written to. Files are moved in the given order, and
    an interrupt does not stop that. Only a killed process leaves temporary files behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "a.txt")) as [draft]:
    ...         _ = draft.write_text("whole")
    ...     os.listdir(folder), Path(folder, "a.txt").read_text()
    (['a.txt'], 'whole')
    """
    drafts: list[tuple[Path, Path | None]] = []  # with the target; None for a stream
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
            draft.chmod(mode)  # writing may have made it private
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        for (draft, place), path in zip(drafts, paths, strict=True):
            if place is None:
                _send(draft, path)
        ready = True
        for draft, place in drafts:
            if place is not None:
                os.replace(draft, place)
    except (OSError, SafetensorError) as error:  # safetensors has its own error for a full disk
        where = " and ".join(repr(str(path)) for path in paths)
        why = getattr(error, "strerror", None) or error
        raise TrellisError(f"cannot write {where}: {why}") from error
    finally:
        first = next((draft for draft, place in drafts if place is not None), None)
        begun = ready and first is not None and not first.exists()
        for draft, place in drafts:
            with suppress(OSError):  # the first error is the one to report
                if begun and place is not None:
                    os.replace(draft, place)  # if it is still there
                else:
                    draft.unlink(missing_ok=True)


def write_tensors(
    draft: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors as safetensors.

    The metadata gets their `digest`, which `intact` compares. The same tensors make the same
    bytes; the library itself writes metadata in any order. The library also writes through a file
    with a random name, which would stay if this process were killed.
    """
    import safetensors.torch  # brings torch, which commands that write no tensors can do without

    told = dict(metadata or {})
    told[DIGEST] = digest(tensors, told)
    content = safetensors.torch.save(dict(tensors), told)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that tensors begin at a multiple of eight bytes
    with draft.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.write(memoryview(content)[8 + size :])


def digest(tensors: Mapping[str, Tensor], about: Any = None) -> str:
    """Return the SHA-256 of tensors (names, types, shapes, bytes) and of the JSON value ``about``.

    >>> import torch
    >>> one, other = torch.zeros(2), torch.tensor([0.0, -0.0])
    >>> digest({"a": one}) == digest({"a": other}), len(digest({"a": one}))
    (False, 64)
    """
    import torch

    found = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().data)
    return found.hexdigest()


def intact(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bool | None:
    """Return whether tensors and metadata are as `write_tensors` wrote them.

    None if the file has no digest.
    """
    if DIGEST not in metadata:
        return None
    rest = {name: value for name, value in metadata.items() if name != DIGEST}
    return metadata[DIGEST] == digest(tensors, rest)


def remove_drafts(folder: Path, *names: str) -> None:
    """Remove the temporary files that killed processes left in a folder (see `replacing`).

    ``names`` are names or patterns of the target files. No other process may be writing there.

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
    """List the temporary files that killed processes left for a file (see `replacing`)."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}"))


_STREAMS = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/.*")  # whatever they are links to


def _is_stream(path: Path) -> bool:
    """Return whether a path is a device or a pipe, which is written to and not replaced.

    Block devices and sockets are errors.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # it does not exist, or has an invalid name: reported later
        return False
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        what = "a block device" if stat.S_ISBLK(mode) else "a socket"
        raise TrellisError(f"cannot write {str(path)!r}: it is {what}; name a file")
    if stat.S_ISREG(mode) and _STREAMS.fullmatch(os.path.abspath(path)):
        return True
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _place(path: Path) -> Path:
    """Return where a file is or will be: the target, if it is a symbolic link."""
    try:
        place = path.resolve() if path.is_symlink() else path
        if not place.is_symlink():
            return place
        why: object = "its symbolic links form a loop"
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop, too
        why = getattr(error, "strerror", None) or error
    raise TrellisError(f"cannot write {str(path)!r}: {why}")


def _send(draft: Path, stream: Path) -> None:
    """Write to an existing device or pipe, without the flags that would create a file."""
    to = os.open(stream, os.O_WRONLY | getattr(os, "O_NOCTTY", 0))
    with draft.open("rb") as file, open(to, "wb") as out:
        shutil.copyfileobj(file, out)


def _created(path: Path) -> int:
    """Create an empty file, and return its permissions."""
    path.touch(exist_ok=False)
    return path.stat().st_mode


# Locks: only one process writes to a folder.


LOCK = ".lock"
_TRIES = 100  # some file systems do not identify files, so `_is_there` may never be true
# A folder may be from elsewhere: never truncate what a link in it points to.
_OPENED = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_BUSY = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}
_LOCKS: set[int] = set()  # open lock files of this process


def _drop_locks() -> None:
    """Close locks in a forked process: workers of a killed process would hold them on."""
    while _LOCKS:
        os.close(_LOCKS.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_locks)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the folder ``path``; raise if another process has locked it.

    The system releases the lock when the process ends, even if it is killed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with locked(Path(folder)):
    ...         os.listdir(folder)
    ...     os.listdir(folder)
    ['.lock']
    []
    """
    file = _held(path)
    _LOCKS.add(file)
    try:
        with suppress(OSError):  # a full disk; the process id is only for messages
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        yield
    finally:
        _LOCKS.discard(file)
        _release(file, path / LOCK)


def remove_stale_lock(path: Path) -> None:
    """Remove the lock file that a killed process left.

    A folder that is in use or read-only is not changed.
    """
    if (path / LOCK).exists():
        with suppress(TrellisError), locked(path):
            pass


def _held(path: Path) -> int:
    """Lock a folder, and return the open lock file."""
    for tries in range(_TRIES):
        try:
            file = os.open(path / LOCK, _OPENED, 0o644)
        except OSError as error:
            raise TrellisError(f"cannot write to {str(path)!r}: {error.strerror}") from error
        try:
            _take(file)
        except OSError as error:
            # Some file systems have no locks; the folder is then used without one.
            if error.errno in _BUSY:
                holder = os.read(file, 20).decode(errors="replace").strip()
                os.close(file)
                raise TrellisError(
                    f"{str(path)!r} is in use by another process ({holder or 'unknown'}); wait for "
                    "it, or give another folder"
                ) from None
        # The last holder may have removed the file before we locked it; others would not see it.
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
        # Lock a byte far behind the text, so that others can still read the text.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)

    def _release(file: int, path: Path) -> None:
        os.close(file)
        with suppress(OSError):  # another process has opened it and holds the lock now
            path.unlink()

else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _release(file: int, path: Path) -> None:
        with suppress(OSError):  # before the lock is released, so that it is still our file
            path.unlink()
        os.close(file)
