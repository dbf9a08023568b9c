"""Recordings named on the command line, and which of them to train on and to test on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import tyro

from trellis.errors import TrellisError
from trellis.skeleton import Fold, Skeletons
from trellis.skeleton.readers.text import shown

arg = tyro.conf.arg

DataSource = Annotated[
    str,
    arg(
        metavar="SOURCE",
        help="fpha:PATH, sbu:PATH, nw-ucla:PATH, shrec17:PATH, mtm1:PATH: a published set, as it "
        "unpacks. npz:FILE, csv:FOLDER: recordings of your own. hands45: built in, synthetic.",
    ),
]
Source = Annotated[DataSource, tyro.conf.Positional]
_WAYS = "How recordings are divided: fpha 1:1 or subjects, shrec17 14 or 28; others know one way."
Protocol = Annotated[str | None, arg(metavar="NAME", help=f"{_WAYS} Without it, the first.")]
OwnProtocol = Annotated[
    str | None,
    arg(
        metavar="NAME",
        help=f"{_WAYS} Without it, the way of the model's training, for data of the same kind.",
    ),
]
_FOLD = "by name or counted from 1, where there are several (`trellis data info` lists them)."
FoldName = Annotated[
    str | None,
    arg(
        metavar="NAME|NUMBER",
        help=f"Which fold to train on and to test, {_FOLD} Without it, the first.",
    ),
]
OwnFold = Annotated[
    str | None,
    arg(
        metavar="NAME|NUMBER",
        help=f"Which fold, {_FOLD} Without it, the one the model was trained on; for data of "
        "another kind, the first.",
    ),
]
SkipBad = Annotated[
    bool, arg(help="Leave out recordings that cannot be read, and count them, instead of stopping.")
]


def check_apart(out: Path, source: str) -> None:
    """Refuse to write where recordings are read from: a folder of recordings is read whole."""
    kind, _, path = source.partition(":")
    try:
        there, here = Path(path).expanduser().resolve(), out.resolve()
        if not path or not there.is_dir():
            return
    except RuntimeError as error:  # ~nobody, or links that go round
        raise TrellisError(f"{source!r} or --out {str(out)!r}: {error}") from None
    except OSError as error:  # a name that is too long
        raise TrellisError(f"{source!r} cannot be read: {error.strerror}") from None
    if here == there or (kind == "csv" and there in here.parents):
        raise TrellisError(
            f"--out {str(out)!r} lies in the recordings of {source!r}: name a folder elsewhere"
        )


def chosen_fold(data: Skeletons, wanted: str | None) -> Fold:
    """By name, or by number from 1; the first if none is wanted."""
    if wanted is None:
        return data.folds[0]
    for fold in data.folds:
        if fold.name == wanted:
            return fold
    if re.fullmatch("[0-9]{1,9}", wanted) and 1 <= int(wanted) <= len(data.folds):
        return data.folds[int(wanted) - 1]
    names = ", ".join(fold.name for fold in data.folds)
    raise TrellisError(
        f"--fold {wanted!r}: {data.source!r} has {names}; give a name or 1 to {len(data.folds)}"
    )


def described(data: Skeletons) -> str:
    """The source's name; what a program made up is called so."""
    return f"{shown(data.source)} (synthetic)" if data.synthetic else shown(data.source)


def left_out(data: Skeletons) -> list[str]:
    """A line on what is not among the recordings, and the first few reasons."""
    if not data.left_out:
        return []
    count = len(data.left_out)
    first = [f"  {shown(item.name)}: {shown(item.why)}" for item in data.left_out[:5]]
    more = [f"  and {count - 5:,} more"] if count > 5 else []
    return [f"left out: {count:,}", *first, *more]
