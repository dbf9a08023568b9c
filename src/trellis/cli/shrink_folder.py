"""The folder of ``trellis shrink``: models, a curve, a page, and checkpoints until it is done."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trellis.errors import TrellisError
from trellis.files import check_writable, remove_drafts, replacing
from trellis.lock import locked, remove_stale_lock
from trellis.saved.folder import DESCRIPTION, TENSORS, is_saved, tidy_folder
from trellis.skeleton.shrink import Outcome
from trellis.train import remove_checkpoint
from trellis.train.checkpoint import Another

MODEL, DENSE, CURVE, PAGE = "model", "dense", "curve.json", "report.html"
_CHECKPOINTS = ".*.safetensors"


def folder_for(data: str, asked: str, seed: int, fold: str | None) -> Path:
    """A name for the run: the same for the same command, so that it goes on."""
    parts = [data, asked, *([f"fold-{fold}"] if fold else []), f"seed-{seed}"]
    words = (re.sub(r"[^A-Za-z0-9.]+", "-", part).strip("-.")[-60:] for part in parts)
    return Path("runs") / f"shrink-{'-'.join(words)}"


def check_run(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be written to, or should not be, before anybody has waited."""
    _check_reachable(folder)
    if finished(folder) and not overwrite and not killed_at_its_end(folder):
        remove_stale_lock(folder)
        raise TrellisError(
            f"{str(folder)!r} holds a finished run: name another folder with --out, or pass "
            "--overwrite"
        )
    if is_saved(folder):
        raise TrellisError(
            f"{str(folder)!r} holds a model: a run has a folder of its own, with models in it"
        )
    for each in (folder, folder / MODEL, folder / DENSE):
        if each.exists() and not each.is_dir():
            raise TrellisError(f"cannot write {str(each)!r}: it is a file; name a folder")
    first = next((each for each in (folder, *folder.parents) if each.exists()), folder)
    if not first.is_dir():
        raise TrellisError(f"cannot make the folder {str(folder)!r}: {str(first)!r} is a file")
    for name in (CURVE, PAGE):  # model/ is there where a run was killed while it wrote
        check_writable(first / name)
    for part in (folder / MODEL, folder / DENSE):
        if part.exists():
            for name in (TENSORS, DESCRIPTION):
                check_writable(part / name)


def _check_reachable(folder: Path) -> None:
    """Refuse a name that no file system takes, or a place that may not be looked at."""
    try:
        (folder / MODEL / f".{TENSORS}.0badcafe").exists()  # no path in there is longer
    except OSError as error:
        raise TrellisError(
            f"cannot make the folder {str(folder)!r}: {error.strerror}; name another with --out"
        ) from None


def finished(folder: Path) -> bool:
    """Whether a run came to its end there: its checkpoints are gone, or its page is newer than its
    model. Another that is to replace it may be under way."""
    model, page = folder / MODEL, folder / PAGE
    if not is_saved(model):
        return False
    if not begun(folder):
        return True
    written = (model / DESCRIPTION).stat().st_mtime_ns
    return page.exists() and page.stat().st_mtime_ns >= written


def begun(folder: Path) -> bool:
    """Whether there are checkpoints of a run."""
    return any(folder.glob(_CHECKPOINTS))


def killed_at_its_end(folder: Path) -> bool:
    """Whether a run was killed when all was written: its checkpoints are older than its model.
    Newer ones are of a run under way that is to replace it, and it goes on."""
    if not (finished(folder) and begun(folder)):
        return False
    written = (folder / MODEL / DESCRIPTION).stat().st_mtime_ns
    return all(each.stat().st_mtime_ns <= written for each in folder.glob(_CHECKPOINTS))


def forget(folder: Path) -> None:
    """Remove the checkpoints of a run."""
    for checkpoint in folder.glob(_CHECKPOINTS):
        remove_checkpoint(checkpoint)


def made_in(folder: Path, make: Callable[[], Outcome], *, overwrite: bool) -> tuple[Outcome, bool]:
    """Go on with what was begun in a folder, if it was begun in the same way. Returns whether
    anything was, too."""
    resumed = begun(folder)
    try:
        return make(), resumed
    except Another as error:
        if not overwrite:
            raise TrellisError(
                f"{str(folder)!r} holds a run that was begun with other settings: "
                f"{error.differs}. Go on with those, name another folder with --out, or pass "
                "--overwrite to begin anew"
            ) from None
    forget(folder)
    return make(), False


def write_run(folder: Path, made: Outcome) -> None:
    """Write the models, and what a search tried. An old model goes as soon as a new dense one is
    there, and no sooner: a disk may be full."""
    for name in (DENSE, MODEL):  # of a run that was killed while it wrote
        tidy_folder(folder / name)
    remove_drafts(folder, CURVE, PAGE)
    made.dense.save(folder / DENSE)
    (folder / MODEL / DESCRIPTION).unlink(missing_ok=True)  # no old model beside a new dense one
    if made.curve:
        points = [point.to_dict() for point in made.curve]
        with replacing(folder / CURVE) as [draft]:
            draft.write_text(json.dumps(points, indent=2) + "\n")
    else:
        (folder / CURVE).unlink(missing_ok=True)  # of what is overwritten
    made.small.save(folder / MODEL)


@contextmanager
def held_run(folder: Path) -> Iterator[None]:
    """Make the folder, and hold it. Where nothing came of it, what was made is removed again."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrellisError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from error
    try:
        with locked(folder):
            yield
    finally:
        with suppress(OSError):  # not empty
            for each in made:
                each.rmdir()
