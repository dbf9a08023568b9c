"""``trellis prune``: prune a model, and write its weights and masks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from torch import Tensor

import trellis

from ..errors import TrellisError
from ..files import check_writable, replacing
from ..saving.folder import own_files
from ..saving.weights import read_tensors, write_weights
from ..schema import Count, read_json
from .data_arguments import Inputs, Json, Target, Weights
from .fitting import Overwrite, check_folder, held_folder
from .model_arguments import Opened, input_files, is_folder, opened
from .output import print_change, print_json, say, stdout_to_stderr

arg = tyro.conf.arg
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
        help="Output for the pruned weights: a state dict in safetensors, zero where pruned, tied "
        "parameters stored once. For a model from a folder: a folder, with masks.",
    ),
]
MasksOut = Annotated[Path | None, arg(metavar="FILE", help="Output file for the masks.")]
Method = Annotated[
    Literal["viterbi", "magnitude", "chains", "synflow", "phew", "random"],
    arg(
        help="How connections are chosen. viterbi: by the best path through each; magnitude, "
        "random: one by one; chains: whole chains from input to output; synflow: by the sum over "
        "all paths; phew: by random walks."
    ),
]
Saliency = Annotated[
    str,
    arg(
        metavar="magnitude|FILE",
        help="Saliency of connections: magnitude, or a safetensors file with a tensor of the same "
        "shape for each parameter.",
    ),
]
Scope = Annotated[
    str,
    arg(
        metavar="global|layer|erk|lamp|FILE",
        help="How magnitude and random spread the budget; or a JSON file of parameter names and "
        "counts.",
    ),
]
Consistent = Annotated[
    Literal["auto", "yes", "no"],
    arg(
        help="Whether every kept connection must be live. auto: yes for viterbi, chains, phew; "
        "no for the others."
    ),
]
Surrogate = Annotated[
    Literal["local", "global"], arg(help="chains: judge the next step, or all that lies ahead.")
]
InverseAlpha = Annotated[
    float,
    arg(help="chains with --surrogate global: 1/alpha from 1 (all paths) to inf (the best one)."),
]
RowNormalize = Annotated[bool, arg(help="chains: make each |W| row-stochastic first.")]
Stochastic = Annotated[bool, arg(help="Sampling in proportion to saliency, without replacement.")]
Seed = Annotated[int, arg(help="Random seed. The same seed gives the same masks on every machine.")]
CoverOutputs = Annotated[
    bool,
    arg(
        help="Let a consistent network miss outputs that the unpruned one reaches.",
        help_behavior_hint="(otherwise it reaches them all)",
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
    method: Method = "viterbi",
    saliency: Saliency = "magnitude",
    scope: Scope = "global",
    consistent: Consistent = "auto",
    surrogate: Surrogate = "local",
    inverse_alpha: InverseAlpha = 1.0,
    row_normalize: RowNormalize = False,
    stochastic: Stochastic = False,
    seed: Seed = 0,
    cover_outputs: CoverOutputs = True,
    ignore: Ignore = (),
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> int:
    """Prune a model so that every kept connection lies on a path.

    Prints an audit before and after. Without --out and --masks, nothing is written.

      trellis prune shop.models:detector --weights trained.safetensors --input 1x3x224x224 --sparsity 0.99 --out pruned.safetensors
      trellis prune hands --sparsity 0.99 --out small

    The second prunes a model that `trellis train` wrote; `trellis tune` then fine-tunes it.
    """  # noqa: E501  (an example must be one line to be copied)
    named = [Path(each) for each in (saliency, scope) if each.endswith((".json", ".safetensors"))]
    read = input_files(target, weights, *named)
    _check_files(out, masks, read, folder=is_folder(target), overwrite=overwrite)
    options: dict[str, Any] = {
        "method": method, "saliency": _saliency(saliency), "scope": _scope(scope),
        "consistent": {"auto": None, "yes": True, "no": False}[consistent],
        "surrogate": surrogate, "inverse_alpha": inverse_alpha, "row_normalize": row_normalize,
        "stochastic": stochastic, "seed": seed, "cover_outputs": cover_outputs, "ignore": ignore,
    }  # fmt: skip
    given = opened(target, inputs, weights)
    with stdout_to_stderr():
        net = trellis.trace(given.model, given.examples)
        before = trellis.audit(net)
        found = trellis.prune(net, sparsity=sparsity, keep=keep, **options)
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
    return given if given == "magnitude" else read_tensors(Path(given))[0]


def _scope(given: str) -> str | Mapping[str, int]:
    if not given.endswith(".json"):
        return given
    try:
        remedy = 'give names and counts, such as {"fc.weight": 100}'
        return read_json(Path(given), dict[str, Count], remedy)
    except FileNotFoundError as error:
        raise TrellisError(f"--scope {given!r} cannot be read: {error.strerror}") from error


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
    """Both files, or neither."""
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
