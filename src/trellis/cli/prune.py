"""``trellis prune``: prune a model, and write its weights and masks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro
from torch import Tensor

import trellis

from ..errors import TrellisError
from ..files import check_writable, replacing
from ..masks.masked import check_model
from ..methods import available
from ..methods.method import (
    METHODS,
    default_of,
    method_class,
    option_help,
    option_types,
    options_of_class,
)
from ..methods.prune import DEFAULT
from ..saving.folder import own_files
from ..saving.model import read_tensors, write_weights
from ..schema import Count, read_json
from .data_arguments import Inputs, Json, Target, Weights, arg
from .model_arguments import Opened, current_folder_first, input_files, opened
from .output import print_change, print_json, say, stdout_to_stderr
from .train import Overwrite, check_folder, held_folder

Sparsity = Annotated[
    float | None, arg(metavar="FRACTION", help="Fraction of connections to remove, such as 0.99.")
]
Keep = Annotated[
    int | None, arg(metavar="N", help="Number of connections to keep, instead of --sparsity.")
]
Out = Annotated[
    Path | None,
    arg(
        metavar="FILE|FOLDER",
        help="File for the pruned weights: a plain state dict in safetensors, with zeros where "
        "nothing is kept. Tied parameters are stored once. For a model from a folder: a folder, "
        "with masks. Default: nothing is written.",
    ),
]
MasksOut = Annotated[
    Path | None, arg(metavar="FILE", help="File for the masks (default: not written).")
]
Method = Annotated[str, arg(metavar="NAME|MODULE:CLASS", help="How connections are chosen.")]
Saliency = Annotated[
    str,
    arg(
        metavar="magnitude|relative|FILE",
        help="Saliency of connections: magnitude; relative, the magnitude relative to row and "
        "column; or a safetensors file with a tensor of the same shape for each parameter.",
    ),
]
Consistent = Annotated[
    Literal["auto", "yes", "no"],
    arg(help="Whether every kept connection must be live. auto: the method's default."),
]
Stochastic = Annotated[bool, arg(help="Sample in proportion to saliency, without replacement.")]
Seed = Annotated[int, arg(help="Seed of random draws; it gives the same masks on every machine.")]
CoverOutputs = Annotated[
    bool,
    arg(
        help="Allow a consistent network to miss outputs that the unpruned one reaches.",
        help_behavior_hint="(default: it reaches them all)",
    ),
]
CoverLayers = Annotated[
    bool,
    arg(
        help="Allow a consistent network to lose layers that are live in the unpruned one.",
        help_behavior_hint="(default: all stay alive)",
    ),
]
Ignore = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    arg(
        metavar="PATTERN",
        help="Pattern of parameter names that are neither pruned nor counted, such as 'head.*'. "
        "Can be repeated.",
    ),
]


# Flags for the options of all registered methods, made from their classes.


def command_for(args: Sequence[str]) -> Callable[..., int]:
    """Return the command `prune` with a flag for each option of each method.

    Args:
        args: The words after ``trellis prune``. If ``--method`` names a class to import, it is
            imported first, so that its options become flags.
    """
    name = _method_in(args)
    with current_folder_first(), stdout_to_stderr():
        chosen = method_class(name) if ":" in name else METHODS.get(name)
    signature = inspect.signature(prune)
    hints = get_type_hints(prune, include_extras=True)
    parameters = {n: p for n, p in signature.parameters.items() if n != "options"}
    defaults: dict[str, Any] = {}
    order = [cls for cls in available().values() if cls is not chosen]
    for cls in order if chosen is None else [chosen, *order]:
        for option in options_of_class(cls):
            kind = _flag_type(option_types(cls).get(option.name))
            if kind is None or option.name in parameters:
                continue
            default = default_of(option)
            from_file = kind is str and option_types(cls)[option.name] is not str
            metavar = "NAME|FILE.json" if from_file else None
            if from_file and not isinstance(default, str):
                kind, default = str | None, None
            defaults[option.name] = default
            about = arg(help=_flag_help(option.name, cls), metavar=metavar)
            hints[option.name] = Annotated[kind, about]
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters[option.name] = inspect.Parameter(option.name, keyword, default=default)

    def run(*words: Any, **given: Any) -> int:
        # A flag of another method is passed on if it was given, so that prune refuses it.
        left_out = [n for n, usual in defaults.items() if given[n] == usual]
        return prune(*words, **{n: value for n, value in given.items() if n not in left_out})

    run.__name__, run.__doc__ = "prune", prune.__doc__
    methods = " ".join(f"{n}: {_summary(cls)}" for n, cls in available().items())
    hints["method"] = Annotated[
        str, arg(metavar="NAME|MODULE:CLASS", help=f"How connections are chosen. {methods}")
    ]
    run.__annotations__ = hints
    run.__signature__ = signature.replace(parameters=list(parameters.values()))  # type: ignore[attr-defined]
    return run


def _method_in(args: Sequence[str]) -> str:
    """
    >>> _method_in(["model", "--method", "chains"]), _method_in(["--method=phew"]), _method_in([])
    ('chains', 'phew', 'closed')
    """
    found = DEFAULT
    for word, after in zip(args, [*args[1:], ""], strict=False):
        if word == "--method" or word.startswith("--method="):
            found = word.partition("=")[2] or after
    return found


def _flag_type(kind: Any) -> Any:
    """The type of a flag for an option; None if a command line cannot give it.

    >>> from trellis.methods.method import Scope
    >>> _flag_type(bool), _flag_type(Scope), _flag_type(list[int])
    (<class 'bool'>, <class 'str'>, None)
    >>> _flag_type(Mapping[str, int]), _flag_type(float | None)
    (<class 'str'>, float | None)
    """
    if get_origin(kind) is Literal or kind in (bool, int, float, str, type(None)):
        return kind
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if any(map(_is_mapping, parts)):
        return str  # a name, or a JSON file
    several = len(parts) > 1 and all(_flag_type(part) is not None for part in parts)
    return kind if several else None


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _flag_help(option: str, cls: type[trellis.methods.Method]) -> str:
    """The description of an option of ``cls``, after the names of the methods that have it."""
    owners = [
        name
        for name, each in available().items()
        if option in {field.name for field in options_of_class(each)}
    ]
    return f"{', '.join(owners)}: {option_help(cls).get(option, '')}".rstrip(": ")


def _summary(cls: type) -> str:
    """The first sentence of a class's docstring.

    >>> _summary(available()["phew"])
    'Keep the connections that random walks in both directions use.'
    """
    return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]


def prune(
    target: Target,
    /,
    *,
    inputs: Inputs = (),
    sparsity: Sparsity = None,
    keep: Keep = None,
    weights: Weights = None,
    out: Out = None,
    masks: MasksOut = None,
    method: Method = DEFAULT,
    saliency: Saliency = "magnitude",
    consistent: Consistent = "auto",
    stochastic: Stochastic = False,
    seed: Seed = 0,
    cover_outputs: CoverOutputs = True,
    cover_layers: CoverLayers = True,
    ignore: Ignore = (),
    overwrite: Overwrite = False,
    as_json: Json = False,
    **options: Any,
) -> int:
    """Prune a model so that every kept connection lies on a path.

    Prints an audit before and after. Without --out and --masks, nothing is written.

      trellis prune shop.models:detector --weights trained.safetensors --input 1x3x224x224 --sparsity 0.99 --out pruned.safetensors
      trellis prune hands --sparsity 0.99 --out small

    The second prunes a model that `trellis train` wrote; `trellis tune` then fine-tunes it.
    """  # noqa: E501  (an example must be one line to be copied)
    files = [each for each in (saliency, *options.values()) if isinstance(each, str)]
    named = [Path(each) for each in files if each.endswith((".json", ".safetensors"))]
    read = input_files(target, weights, *named)
    _check_files(out, masks, read, folder=Path(target).is_dir(), overwrite=overwrite)
    shared: dict[str, Any] = {
        "method": method, "saliency": _saliency(saliency),
        "consistent": {"auto": None, "yes": True, "no": False}[consistent],
        "stochastic": stochastic, "seed": seed, "cover_outputs": cover_outputs,
        "cover_layers": cover_layers, "ignore": ignore,
    }  # fmt: skip
    own = {name: _counts(name, value) for name, value in options.items()}
    given = opened(target, inputs, weights)
    with stdout_to_stderr():
        net = trellis.trace(given.model, given.examples)
        before = trellis.audit(net)
        check_model(given.model, "repair it before pruning")
        found = trellis.prune(net, sparsity=sparsity, keep=keep, **shared, **own)
        after = trellis.audit(net)
    _write(given, found, out, masks, overwrite=overwrite)
    if weights is None and given.notes is None:
        say(
            f"note: without --weights, the weights are those that {target} sets (initial weights, "
            "unless it loads trained ones)",
            to=sys.stderr,
        )
    if as_json:
        print_json(
            {
                "target": target,
                "weights": None if weights is None else str(weights),
                "options": found.provenance["options"],
                "budget": found.budget, "kept": found.kept, "total": found.total,
                "sparsity": found.sparsity,
                "before": before.to_dict(), "after": after.to_dict(),
                "out": None if out is None else str(out),
                "masks": None if masks is None else str(masks),
            }
        )  # fmt: skip
    else:
        print_change(before, after)
        say(repr(found))
        for path in filter(None, (out, masks)):
            say(f"wrote {path}")
    return 0


def _saliency(given: str) -> str | dict[str, Tensor]:
    return given if given in ("magnitude", "relative") else read_tensors(Path(given))[0]


def _counts(option: str, given: Any) -> Any:
    """An option's value; from a JSON file, if it names one."""
    if not isinstance(given, str) or not given.endswith(".json"):
        return given
    try:
        remedy = 'give names and counts, such as {"fc.weight": 100}'
        return read_json(Path(given), dict[str, Count], remedy)
    except FileNotFoundError as error:
        flag = option.replace("_", "-")
        raise TrellisError(f"--{flag} {given!r} cannot be read: {error.strerror}") from error


def _check_files(
    out: Path | None, masks: Path | None, read: list[Path], *, folder: bool, overwrite: bool
) -> None:
    if folder and out is not None:
        check_folder(out, overwrite=overwrite)
        read = [*read, *own_files(out)]
    given = [path for path in (out, masks) if path is not None]
    for path in given[folder and out is not None :]:
        check_writable(path, read)
    if out is not None and out.is_file() and not overwrite and Path("/dev") not in out.parents:
        raise TrellisError(f"--out {str(out)!r} exists: name another file, or pass --overwrite")
    if len({path.resolve() for path in given}) < len(given):
        raise TrellisError(f"--out and --masks are both {str(given[0])!r}: name two files")


def _write(
    given: Opened, found: trellis.Masks, out: Path | None, masks: Path | None, *, overwrite: bool
) -> None:
    """Write both files, or neither."""
    folder = given.notes is not None
    with replacing(*filter(None, (None if folder else out, masks))) as drafts:
        if out is not None and not folder:
            write_weights(drafts[0], found.plain_state_dict(given.model))
        if masks is not None:
            found.save(drafts[-1], given.model)
        if out is not None and folder:
            counts = {"budget": found.budget, "kept": found.kept, "total": found.total}
            with held_folder(out, overwrite=overwrite):
                given.save(out, {"step": "prune"} | counts | found.provenance["options"])
