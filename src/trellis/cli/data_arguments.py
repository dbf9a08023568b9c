"""Arguments that commands share: a model, its inputs, recordings and how to divide them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import TrellisError
from ..skeleton import Fold, Recognizer, Skeletons
from ..skeleton.data.readers.text import shown

# Arguments that commands share, with the help they show.


Target = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="MODULE:FACTORY|FOLDER",
        help="Model, as package.module:factory: a torch.nn.Module, or a function or class that "
        "returns one when called without arguments, in the current folder or an installed "
        "package. Or the folder of a saved model, such as `trellis train` writes, with its "
        "weights, masks and inputs.",
    ),
]

Inputs = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        name="input",
        metavar="[TYPE:]SHAPE[=VALUE]",
        help="Example input, such as 1x3x224x224 or int64:1x128; one for each argument of "
        "forward(), in order. Default values: seeded random floats, integers 0, booleans true. "
        "int64:1x128=1 sets a value, as for an attention mask.",
    ),
]

Weights = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="FILE",
        help="Safetensors file with the model's state dict (default: the weights that the factory "
        "sets).",
    ),
]

Json = Annotated[
    bool,
    tyro.conf.arg(name="json", help="JSON on stdout, and nothing else."),
]


# Recordings named on the command line, and which of them to train on and to test on.


arg = tyro.conf.arg

_SOURCE = (
    "Recordings. fpha:PATH, sbu:PATH, nw-ucla:PATH, shrec17:PATH, mtm1:PATH: a published set, as "
    "unpacked. npz:FILE, csv:FOLDER: your own recordings. hands45: built-in synthetic data. "
    "NAME:PATH: a reader of an installed package."
)
DataSource = Annotated[str, arg(metavar="SOURCE", help=_SOURCE)]
Source = Annotated[DataSource, tyro.conf.Positional]
OptionalSource = Annotated[
    str | None,
    tyro.conf.Positional,
    arg(metavar="SOURCE", help=_SOURCE, help_behavior_hint="(required, here or as --data)"),
]
DataAlias = Annotated[
    str | None,
    arg(metavar="SOURCE", help="The same as SOURCE.", help_behavior_hint=""),
]
_WAYS = "Protocol that divides recordings: fpha 1:1 or subjects, shrec17 14 or 28."
Protocol = Annotated[str | None, arg(metavar="NAME", help=f"{_WAYS} Default: the first.")]
OwnProtocol = Annotated[
    str | None,
    arg(
        metavar="NAME",
        help=f"{_WAYS} Default: that of the model's training, for data of the same kind.",
    ),
]
_FOLD = "by name or counted from 1, where there are several (`trellis data info` lists them)."
FoldName = Annotated[
    str | None,
    arg(
        metavar="NAME|NUMBER",
        help=f"Fold to train and test on, {_FOLD} Default: the first.",
    ),
]
OwnFold = Annotated[
    str | None,
    arg(
        metavar="NAME|NUMBER",
        help=f"Fold, {_FOLD} Default: the one the model was trained on; for data of another "
        "kind, the first.",
    ),
]
SkipBad = Annotated[
    bool, arg(help="Skip and count recordings that cannot be read (default: stop).")
]


def check_apart(out: Path, source: str) -> None:
    """Raise if the output would lie among the recordings: their folder is read whole."""
    kind, _, path = source.partition(":")
    try:
        there, here = Path(path).expanduser().resolve(), out.resolve()
        if not path or not there.is_dir():
            return
    except RuntimeError as error:  # an unknown user (~nobody), or a loop of links
        raise TrellisError(f"{source!r} or --out {str(out)!r}: {error}") from None
    except OSError as error:  # a name that is too long
        raise TrellisError(f"{source!r} cannot be read: {error.strerror}") from None
    if here == there or (kind == "csv" and there in here.parents):
        raise TrellisError(
            f"--out {str(out)!r} lies in the recordings of {source!r}: name a folder elsewhere"
        )


def chosen_fold(data: Skeletons, wanted: str | None) -> Fold:
    """Return a fold by name or by number from 1; by default the first."""
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
    """Return the source's name, marked if the data is synthetic."""
    return f"{shown(data.source)} (synthetic)" if data.synthetic else shown(data.source)


def left_out(data: Skeletons) -> list[str]:
    """Return lines about recordings that were skipped, with the first few reasons."""
    if not data.left_out:
        return []
    count = len(data.left_out)
    first = [f"  {shown(item.name)}: {shown(item.why)}" for item in data.left_out[:5]]
    more = [f"  and {count - 5:,} more"] if count > 5 else []
    return [f"left out: {count:,}", *first, *more]


ModelFolder = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="FOLDER", help="Model folder that `trellis train`, `prune` or `tune` wrote."
    ),
]


def protocol_for(recogniser: Recognizer, source: str, wanted: str | None) -> str | None:
    """Return the given protocol, or that of the model's last training on such data."""
    found = _last(recogniser, source).get("protocol") if wanted is None else wanted
    return None if found is None else str(found)


def fold_for(recogniser: Recognizer, data: Skeletons, wanted: str | None) -> Fold:
    """Return the given fold, or the one the model was last trained on.

    Another fold would test the model on its training data. So it is an error if the data lacks the
    model's fold. Data of another kind (``csv:`` after ``fpha:``) counts as new recordings, and the
    first fold is used. Two ``csv:`` folders may hold the same recordings: they are of one kind.
    """
    step = _last(recogniser, data.source)
    names = [fold.name for fold in data.folds]
    if wanted is None and step:
        wanted = str(step["fold"])
        if wanted not in names:
            by = f" by protocol {step['protocol']!r}" if step.get("protocol") else ""
            raise TrellisError(
                f"the model was trained on fold {wanted!r} of {step['source']!r}{by}, and "
                f"{data.source!r} has {', '.join(names)}, whose test recordings it may have seen: "
                "divide the data as it was then (--protocol), or name a fold all the same (--fold)"
            )
    return chosen_fold(data, wanted)


def _last(recogniser: Recognizer, source: str) -> dict[str, Any]:
    """Return the last training step on data of this kind, or an empty dict."""
    steps = [step for step in recogniser.history if "fold" in step and "source" in step]
    same = [step for step in steps if _kind(str(step["source"])) == _kind(source)]
    return same[-1] if same else {}


def _kind(source: str) -> str:
    """
    >>> _kind("fpha:~/hands"), _kind("hands45")
    ('fpha', 'hands45')
    """
    return source.partition(":")[0]
