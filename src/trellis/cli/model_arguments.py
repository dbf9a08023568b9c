"""Load the model that a command line names: a factory with weights, or a saved folder."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..deploy.compact import Compacted
from ..errors import TrellisError
from ..saving import load, save
from ..saving.folder import is_saved, own_files, read_folder
from ..saving.model import load_weights, nested_in, rebuilt
from ..skeleton.model.gcn import GCN
from ..skeleton.model.recognizer import NOTES
from .output import stdout_to_stderr

# Example inputs from words such as ``1x3x224x224`` and ``int64:1x128``.


TYPES = {
    str(kind).removeprefix("torch."): kind
    for kind in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
_DIMENSIONS, _DIGITS = 64, 18  # as many as torch can count
SPEC = re.compile(r"(?:(?P<type>\w+):)?(?P<shape>\d+(?:x\d+)*)(?:=(?P<value>.+))?", re.ASCII)


def example_inputs(specs: Sequence[str]) -> tuple[Tensor, ...]:
    """One tensor for each word, in order.

    Floats are drawn from a normal distribution with a fixed seed. Integers are 0, the one index
    that every table has; booleans are true, since most masks say so of what may be seen. A value
    after ``=`` is used instead.

    >>> [(tuple(x.shape), x.dtype) for x in example_inputs(["1x3", "int64:2"])]
    [((1, 3), torch.float32), ((2,), torch.int64)]
    >>> example_inputs(["int64:1x4=1"])
    (tensor([[1, 1, 1, 1]]),)
    """
    if not specs:
        raise TrellisError(
            "expected an example input for each argument of forward(), such as --input 1x3x32x32"
        )
    generator = torch.Generator().manual_seed(0)
    return tuple(_example(spec, generator) for spec in specs)


def _example(spec: str, generator: torch.Generator) -> Tensor:
    found = SPEC.fullmatch(spec)
    if found is None:
        raise TrellisError(
            f"--input {spec[:200]!r}: expected [TYPE:]SHAPE[=VALUE], such as 1x3x224x224, "
            "int64:1x128 or int64:1x128=1"
        )
    name = found["type"] or "float32"
    if name not in TYPES:
        raise TrellisError(f"--input {spec!r}: unknown type {name!r}; expected {', '.join(TYPES)}")
    sizes = found["shape"].split("x")
    if len(sizes) > _DIMENSIONS or max(map(len, sizes)) > _DIGITS:
        raise TrellisError(
            f"--input {spec[:60]!r}…: expected at most {_DIMENSIONS} dimensions of {_DIGITS} "
            f"digits each, got {len(sizes):,} of up to {max(map(len, sizes)):,}; give a smaller one"
        )
    kind, shape = TYPES[name], tuple(map(int, sizes))
    if 0 in shape:
        raise TrellisError(f"--input {spec!r} is empty: every size must be at least 1")
    try:
        if found["value"] is not None:
            return torch.full(shape, _value(spec, found["value"], kind), dtype=kind)
        if kind.is_floating_point:
            return torch.randn(shape, generator=generator).to(kind)
        return torch.full(shape, kind == torch.bool, dtype=kind)
    except (RuntimeError, MemoryError) as error:  # more than memory holds, or torch can count
        reason = str(error).splitlines()[0]
        raise TrellisError(f"--input {spec!r} cannot be made: {reason}") from error


def _value(spec: str, text: str, kind: torch.dtype) -> float:
    try:
        value = float(text) if kind.is_floating_point else int(text)
        limits = (
            None
            if kind == torch.bool
            else (torch.finfo(kind) if kind.is_floating_point else torch.iinfo(kind))
        )
        low, high = (0, 1) if limits is None else (limits.min, limits.max)
        if low <= value <= high:
            return value
    except ValueError:
        pass
    raise TrellisError(f"--input {spec[:200]!r}: the type cannot hold the value {text[:60]!r}")


# From ``package.module:factory`` to a model.


def load_model(target: str) -> nn.Module:
    """Import and, unless it is a module already, call what ``target`` names.

    Whatever the user's code prints goes to stderr, so that stdout is ours alone.

    >>> load_model("torch.nn:Identity")
    Identity()
    """
    module, colon, path = target.partition(":")
    if not (colon and path and module) or not all(map(str.isidentifier, module.split("."))):
        if Path(target).suffix.lower() in (*_PICKLES, ".safetensors"):
            raise TrellisError(
                f"expected a model, got the weights file {target!r}; name the function that makes "
                "the model, such as shop.models:detector, and give the file as --weights"
            )
        raise TrellisError(
            f"{target!r} names no model: write package.module:factory, such as "
            "shop.models:detector, or the folder of a saved one"
        )
    with current_folder_first(), stdout_to_stderr():
        found = _attribute(_import(module), path, target)
        model = found if isinstance(found, nn.Module) else _call(found, target)
    if not isinstance(model, nn.Module):
        raise TrellisError(f"{target!r} returned {model!r:.60}; it must return a torch.nn.Module")
    return model


def load_named(flag: str, target: str) -> Any:
    """Import the function or object that an option names as ``package.module:name``.

    >>> load_named("--loss", "torch.nn.functional:mse_loss").__name__
    'mse_loss'
    """
    module, colon, path = target.partition(":")
    if not (colon and path and module) or not all(map(str.isidentifier, module.split("."))):
        raise TrellisError(
            f"{flag} {target!r}: expected package.module:name, such as shop.data:loaders"
        )
    with current_folder_first(), stdout_to_stderr():
        return _attribute(_import(module), path, target)


def call_named(target: str, function: Any) -> Any:
    """Call, without arguments, the function that an option names."""
    with current_folder_first(), stdout_to_stderr():
        return _call(function, target)


@contextmanager
def current_folder_first() -> Iterator[None]:
    """As ``python -m`` does; installed scripts do not look in the current folder."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The module itself or a package on the way to it; anything else is missing inside it.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise TrellisError(
                f"module {error.name!r} not found, neither in the current folder nor installed"
            ) from error
        raise TrellisError(f"importing {name!r} failed: {_say(error)}") from error
    except (Exception, SystemExit) as error:
        raise TrellisError(f"importing {name!r} failed: {_say(error)}") from error


def _attribute(module: Any, path: str, target: str) -> Any:
    found = module
    for name in path.split("."):
        if not hasattr(found, name):
            owner = f"module {module.__name__!r}" if found is module else f"{found!r:.60}"
            offered = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            hint = f"; it has {', '.join(sorted(offered)[:8])}" if offered else ""
            raise TrellisError(f"{target!r}: {owner} has no attribute {name!r}{hint}")
        found = getattr(found, name)
    return found


def _call(factory: Any, target: str) -> Any:
    if not callable(factory):
        raise TrellisError(
            f"{target!r} is {_kind(factory)}; it must be a torch.nn.Module, or a function or "
            "class that returns one"
        )
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise TrellisError(
            f"{target!r} cannot be called with no arguments ({error}): name a function that can"
        ) from error
    except ValueError:  # some built-in callables have no signature; calling will tell
        pass
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise TrellisError(f"{target!r} raised {_say(error)}") from error


def _kind(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _say(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:300]}" if text else type(error).__name__


@dataclass(frozen=True, eq=False)
class Opened:
    """A model, example inputs for it and, where it comes from a folder, that folder's notes."""

    model: nn.Module
    examples: tuple[Tensor, ...]
    notes: dict[str, Any] | None = None

    def save(self, folder: Path, step: Mapping[str, Any]) -> None:
        """Write the model to a folder, with one more step of its history among the notes."""
        notes = dict(self.notes or {})
        part = dict(notes.get(NOTES) or {})
        part["history"] = [*part.get("history", []), dict(step)]
        save(self.model, folder, notes=notes | ({NOTES: part} if NOTES in notes else part))


def input_files(target: str, *files: Path | None) -> list[Path]:
    """What a command reads: the files of a saved model or of a module, and ``files``.

    >>> [str(each) for each in input_files("shop.models:detector", None, Path("w.safetensors"))]
    ['shop/models.py', 'shop/models/__init__.py', 'w.safetensors']
    """
    own = own_files(model_folder(target))
    if not Path(target).is_dir():
        module = target.partition(":")[0].replace(".", "/")
        own = [Path(f"{module}.py"), Path(module, "__init__.py")]
    return [*own, *(each for each in files if each is not None)]


_PICKLES = (".pt", ".pth", ".bin", ".ckpt")


class PickledWeights(TrellisError):
    """A weights file is a pickle. ``hint`` is the code that converts it."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"--weights {str(path)!r}: expected a safetensors file, got {path.suffix}; pickles can "
            "run any code, so Trellis does not load them. If you trust the file, convert it in "
            "Python:"
        )
        target = str(path.with_suffix(".safetensors"))
        self.hint = (
            "import torch; from safetensors.torch import save_file",
            f"save_file({{k: v.clone() for k, v in torch.load({str(path)!r}, weights_only=True)"
            f".items()}}, {target!r})",
        )


def check_format(path: Path) -> None:
    """Raise if a weights file is a pickle by its name and content."""
    if path.suffix.lower() not in _PICKLES:
        return
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError:
        return  # reading it will say what is wrong
    # safetensors: eight bytes of length, then JSON. A renamed safetensors file is accepted.
    if start[8:] != b"{":
        raise PickledWeights(path)


def opened(
    target: str, inputs: Sequence[str], weights: Path | None, sparsity: float | None = None
) -> Opened:
    """Load a model that a command line names. What its code prints goes to stderr.

    ``sparsity`` takes one network out of nested ones.
    """
    if not Path(target).is_dir():
        if ":" not in target:
            load_model(target)  # raises, and says what a target looks like
        examples = example_inputs(inputs)
        model = load_model(target)
        with stdout_to_stderr():
            if sparsity is not None:
                load(_folder_of(weights), into=model, sparsity=sparsity, example_inputs=examples)
            elif weights is not None:
                check_format(weights)
                load_weights(model, weights)
        return Opened(model, examples)
    target = str(model_folder(target))
    if weights is not None:
        raise TrellisError(f"--weights: the folder {target!r} has weights of its own; leave it out")
    saved = read_folder(target)
    nested = nested_in(saved, sparsity, None)
    if saved.architecture is None:
        raise TrellisError(
            f"{target!r} does not say its architecture; name the model instead: "
            f"package.module:factory --weights {Path(target) / 'model.safetensors'} --input SHAPE"
        )
    model = rebuilt(saved)
    if nested is not None:
        nested.apply(model, _opened_example(model), sparsity=sparsity)
    return Opened(model, example_inputs(inputs) if inputs else _opened_example(model), saved.notes)


def _folder_of(weights: Path | None) -> Path:
    """Return the folder of nested networks that --weights names, or a file of."""
    if weights is None:
        raise TrellisError(
            "--sparsity takes one of several nested networks; give the folder that `trellis "
            "shrink` wrote, or its model.safetensors as --weights"
        )
    return Path(model_folder(str(weights if weights.is_dir() else weights.parent)))


def model_folder(target: str) -> Path:
    """Return the folder of a model: that of a run has it in ``model``.

    >>> str(model_folder("hands"))
    'hands'
    """
    folder = Path(target)
    inner = folder / "model"
    return inner if is_saved(inner) and not is_saved(folder) else folder


def _opened_example(model: nn.Module) -> tuple[Tensor, ...]:
    assert isinstance(model, Compacted | GCN)
    return model.example()
