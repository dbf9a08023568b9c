"""``trellis shrink MODEL --data LOADERS``: train any model and prune it."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import nn

import trellis

from ..errors import TrellisError
from ..methods.prune import DEFAULT
from ..saving.folder import TENSORS
from ..saving.model import load_weights
from ..training.shrink.result import Rate
from ..training.shrink.task import Batch, read_batch
from .data_arguments import Json, arg
from .model_arguments import call_named, check_format, load_model, load_named
from .output import console, print_json, show, stdout_to_stderr, table
from .prune import Ignore

PAGE = "report.html"
Model = Annotated[
    str,
    arg(
        metavar="MODULE:MODEL",
        help="The model: package.module:name of a torch.nn.Module, or of a function or class that "
        "returns one.",
    ),
]
Data = Annotated[
    str,
    arg(
        metavar="MODULE:LOADERS",
        help="Function that returns an iterable of training batches, or a tuple of that and one "
        "for validation.",
    ),
]
Sparsity = Annotated[
    tuple[float, ...],
    arg(
        metavar="FRACTION",
        help="Fraction of connections to remove, such as 0.99. Several fractions make nested "
        "networks in one folder.",
        help_behavior_hint="(required, or --keep, or --at-least)",
    ),
]
Keep = Annotated[
    tuple[int, ...],
    arg(
        metavar="N",
        help="Number of connections to keep, or several, instead of --sparsity.",
        help_behavior_hint="",
    ),
]
AtLeast = Annotated[
    float | None,
    arg(metavar="SCORE", help="Search for the smallest network with this score on validation."),
]
Out = Annotated[
    Path | None,
    arg(
        metavar="FOLDER",
        help="Folder for the model, the checkpoints and report.html. The same command continues a "
        "run that was killed. Default: a folder under runs/.",
    ),
]
Function = Annotated[str | None, arg(metavar="MODULE:FUNCTION")]


def shrink_model(
    model: Annotated[Model, tyro.conf.Positional],
    /,
    *,
    data: Data,
    sparsity: Sparsity = (),
    keep: Keep = (),
    at_least: AtLeast = None,
    out: Out = None,
    weights: Annotated[
        Path | None,
        arg(
            metavar="FILE",
            help="Safetensors file with the weights of the model (default: those that it sets).",
        ),
    ] = None,
    trained: Annotated[
        Literal["auto", "yes", "no"],
        arg(help="Whether the model is trained already. auto: if its loss says so."),
    ] = "auto",
    loss: Annotated[
        Function,
        arg(
            help="Function (outputs, targets) or (model, batch). Default: the model's own, cross "
            "entropy for classes, mean squared error for numbers."
        ),
    ] = None,
    score: Annotated[
        Function, arg(help="Function (model, loader). Default: accuracy, or the negative loss.")
    ] = None,
    optimizer: Annotated[
        Function, arg(help="Function from parameters to an optimizer. Default: AdamW.")
    ] = None,
    epochs: Annotated[
        float | None, arg(metavar="N", help="Epochs in all. Default: about 4,000 steps.")
    ] = None,
    steps: Annotated[
        int | None, arg(metavar="N", help="Optimizer steps in all, instead of --epochs.")
    ] = None,
    seed: Annotated[int, arg(help="Seed of the model, batches and dropout.")] = 0,
    device: Annotated[str, arg(metavar="auto|cpu|cuda", help="Where to train.")] = "auto",
    precision: Annotated[
        Literal["fp32", "tf32", "bf16", "fp16"], arg(help="Precision of training.")
    ] = "fp32",
    clip: Annotated[
        float | None, arg(metavar="NORM", help="Largest norm of the gradient. Default: no limit.")
    ] = None,
    channels_last: Annotated[bool, arg(help="Store images with channels last.")] = False,
    compile: Annotated[bool, arg(help="Compile the model.")] = False,
    method: Annotated[
        str, arg(metavar="NAME|MODULE:CLASS", help="How connections are chosen.")
    ] = DEFAULT,
    saliency: Annotated[
        str | None,
        arg(metavar="NAME", help="Saliency of connections. Default: taylor, where possible."),
    ] = None,
    quantize: Annotated[
        Literal["none", "int8"],
        arg(help="Arithmetic of a device to fine-tune for. int8: that of trellis export c."),
    ] = "none",
    ignore: Ignore = (),
    as_json: Json = False,
) -> int:
    """Train any model on your data, prune it while it trains, fine-tune it, and save it.

    Every kept connection is on a path from an input to an output.

      trellis shrink shop.models:net --data shop.data:loaders --sparsity 0.99 --out run

    Several fractions make nested networks. Any rate in their range comes out without training:

      trellis shrink shop.models:net --data shop.data:loaders --sparsity 0.9 0.99 --out all
      trellis export onnx shop.models:net --weights all --sparsity 0.95 --input 1x8 --out net.onnx

    If a run is killed, the same command continues it and ends with the same model. Load the model
    with trellis.load("run/model", into=net()), or open run/report.html.
    """
    torch.manual_seed(seed % 2**63)
    made = load_model(model)
    if weights is not None:
        check_format(weights)
        load_weights(made, weights)
    train, validation = _loaders(data)
    functions: dict[str, Any] = {
        name: None if target is None else load_named(f"--{name}", target)
        for name, target in (("loss", loss), ("score", score), ("optimizer", optimizer))
    }
    folder = _folder(model, sparsity, keep, at_least) if out is None else out
    with stdout_to_stderr():
        found = trellis.shrink(
            made, train, sparsity=sparsity or None, keep=keep or None, at_least=at_least,
            validation=validation,
            **functions, epochs=epochs, steps=steps,
            trained={"auto": None, "yes": True, "no": False}[trained], device=device,
            precision=precision, clip=clip, channels_last=channels_last, compile=compile, seed=seed,
            out=folder, method=method, saliency=saliency, ignore=ignore,
            quantize=None if quantize == "none" else quantize,
        )  # fmt: skip
        found.report(folder / PAGE)
    if as_json:
        print_json(_summary(folder, found))
    else:
        _print(folder, found)
        calibration = None if quantize == "none" else data
        _print_next(
            folder, model, _input_words(made, train), calibration, several=bool(found.rates)
        )
    return 0


def _loaders(target: str) -> tuple[Any, Any]:
    """Return the training batches and those for validation, or None."""
    found = load_named("--data", target)
    if callable(found):
        found = call_named(target, found)
    if isinstance(found, tuple):
        if len(found) != 2:
            raise TrellisError(
                f"--data {target!r} returned a tuple of {len(found)}; expected the training "
                "batches, or a tuple of the training and the validation batches"
            )
        return found
    return found, None


def _folder(
    model: str, sparsity: Sequence[float], keep: Sequence[int], at_least: float | None
) -> Path:
    search = [] if at_least is None else [at_least]
    given = {"sparsity": sparsity, "keep": keep, "at-least": search}
    told = ["-".join([name, *(f"{value:g}" for value in values)])
            for name, values in given.items() if values]  # fmt: skip
    return Path("runs", "-".join([model.replace(":", "-"), *told]))


def _summary(folder: Path, found: trellis.Shrunk) -> dict[str, Any]:
    return {
        "out": str(folder),
        "report": str(folder / PAGE),
        "kept": found.masks.kept,
        "budget": found.masks.budget,
        "total": found.masks.total,
        "live": found.audit.live,
        "outputs": found.audit.outputs,
        "outputs_reached": found.audit.outputs_reached,
        "score": found.score,
        "dense_score": found.dense_score,
        "met": found.met,
        "loss": found.history[-1]["loss"],
        "seconds": round(found.seconds, 1),
        "search": [
            {"budget": each.budget, "kept": each.kept, "score": each.score if each.kept else None}
            for each in found.search
        ],
        "rates": [asdict(rate) for rate in found.rates],
    }


def _print(folder: Path, found: trellis.Shrunk) -> None:
    rows = table(["layer", "shape", "connections", "kept", "live"])
    for layer in found.audit.layers:
        shape = "x".join(map(str, layer.shape))
        rows.add_row(layer.name, shape, *(f"{n:,}" for n in (layer.total, layer.kept, layer.live)))
    out = console()
    show(rows, out)
    lines = ["", repr(found)]
    lines += [_line(rate) for rate in found.rates if rate.asked]
    if found.met is False:
        lines.append("no network that was tried holds the score; this is the best of them")
    out.print("\n".join([*lines, f"wrote {folder / 'model'}, {folder / PAGE}"]), soft_wrap=True)


def _print_next(
    folder: Path, model: str, inputs: Sequence[str], calibration: str | None, *, several: bool
) -> None:
    """Print commands that read the small model; its folder does not say its architecture."""
    named = [model, "--weights", str(folder / "model" / TENSORS)]
    named += [word for each in inputs for word in ("--input", each)]
    c = [] if calibration is None else ["--arithmetic", "int8", "--calibration", calibration]
    commands = [
        ["audit", *named],
        ["export", "c", *named, *c, "--out", str(folder / "c")],
        ["export", "onnx", *named, "--out", str(folder / "model.onnx")],
    ]
    largest = " (the largest network; export a smaller one with --sparsity)" if several else ""
    lines = [f"next{largest}:", *(f"  {shlex.join(['trellis', *words])}" for words in commands)]
    console().print("\n".join(lines), soft_wrap=True)


def _input_words(model: nn.Module, loader: Any) -> list[str]:
    """Return the values of --input for a model: the shapes of one sample of its first batch.

    The model is trained and written by now, so that what cannot be read becomes ``SHAPE``.
    """
    try:
        with stdout_to_stderr():
            batch = read_batch(next(iter(loader)), torch.device("cpu"))
        bound = inspect.signature(model.forward).bind(*batch.inputs.args, **batch.inputs.kwargs)
    except Exception:
        return ["SHAPE"]
    words = {name: _input_word(name, value, batch) for name, value in bound.arguments.items()}
    if bound.kwargs or None in words.values():
        return ["SHAPE"]  # the command line has positional tensors only
    return [word for word in words.values() if word is not None]


def _input_word(name: str, value: Any, batch: Batch) -> str | None:
    if not isinstance(value, torch.Tensor) or value.ndim == 0:
        return None
    tensors = [each for each in (value, batch.targets) if isinstance(each, torch.Tensor)]
    batched = all(each.ndim > 0 and each.shape[0] == batch.size for each in tensors)
    shape = "x".join(map(str, (1, *value.shape[1:]) if batched else value.shape))
    kind = str(value.dtype).removeprefix("torch.")
    visible = "=1" if "mask" in name and not value.dtype.is_floating_point else ""
    return f"{'' if kind == 'float32' else f'{kind}:'}{shape}{visible}"


def _line(rate: Rate) -> str:
    score = "" if rate.score is None else f", score {rate.score:.4g}"
    share = 100 * (1 - rate.kept / rate.total)
    return f"nested: {rate.kept:,} connections kept ({share:.5g} % pruned){score}"
