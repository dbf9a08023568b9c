"""Save a model as a folder, and load it; weights files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, overload

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..devices import on_cpu
from ..errors import TrellisError
from ..files import DIGEST, intact, write_tensors
from ..masks import Mask, Masks, masks_of, plain
from ..masks.masked import check_finite, detach
from ..masks.masks import HEADER
from ..masks.slots import named_slots, refuse_inference, tied
from .folder import BESIDE, Folder, read_folder, write_folder
from .nested import Nested

# Weights files: a state dict in safetensors, with each tensor once.
#
# safetensors does not accept tensors that share memory. So a tied parameter is stored under its
# first name, and the metadata maps every other name to that one, as
# ``safetensors.torch.save_model`` does. ``safetensors.torch.load_model(model, path)`` reads the
# file into any model that ties the same parameters. Without tied parameters the file is the plain
# state dict: ``model.load_state_dict(safetensors.torch.load_file(path))``.


def load_weights(model: nn.Module, path: Path) -> None:
    """Load a weights file into the model, in place; all keys and shapes must fit."""
    given, metadata = read_tensors(path)
    if HEADER in metadata:
        raise TrellisError(f"{str(path)!r} holds masks, not weights: pass it as --masks")
    # The weights of a saved model are already 0 where its masks keep nothing.
    given = {name: tensor for name, tensor in given.items() if not name.startswith(BESIDE)}
    with plain(model) as seen:
        given = fitted(path, given, metadata, seen)
    # Outside of `plain`, so that parametrizations of the factory's model are still there.
    if missing := [name for name in given if name not in model.state_dict()]:
        raise TrellisError(
            f"{missing[0]!r} is pruned or parametrized in the model that the factory returns, so "
            "weights cannot be loaded into it: let the factory return the plain model"
        )
    model.load_state_dict(given, strict=False)


def fitted(
    path: Path, given: Mapping[str, Tensor], metadata: Mapping[str, str], model: nn.Module
) -> dict[str, Tensor]:
    """Return the file's tensor for each tensor of a plain model; raise if they do not fit.

    Keys, shapes and kinds of types must agree. ``metadata`` is the file's, with the other names of
    tied parameters.
    """
    expected = {n: t for n, t in model.state_dict().items() if isinstance(t, Tensor)}
    full = _with_aliases(given, metadata, expected)
    _check(path, full, expected)
    return full


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file.

    The tensors are copied to aligned memory: products of unaligned tensors are rounded differently
    from those of the saved model.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            names: list[str] = file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise TrellisError(f"there is no file {str(path)!r}") from None
    except OSError as error:
        raise TrellisError(f"{str(path)!r} cannot be read: {error}") from error
    except safetensors.SafetensorError as error:
        raise TrellisError(
            f"{str(path)!r} is not a safetensors file ({error}). Pickles (.pt, .pth, .bin, .ckpt) "
            "are never loaded, since they can run any code; convert them with "
            "safetensors.torch.save_model(model, path)"
        ) from error
    if intact(tensors, metadata) is False:
        raise TrellisError(
            f"{str(path)!r} is damaged (its digest does not match its content); copy or write it "
            "again"
        )
    metadata.pop(DIGEST, None)
    return tensors, metadata


def write_weights(
    path: Path, state: Mapping[str, Tensor], beside: Mapping[str, Tensor] | None = None
) -> None:
    """Write a state dict, each tensor once, and other tensors ``beside`` it.

    >>> import tempfile, torch
    >>> shared = torch.ones(2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "w.safetensors")
    ...     write_weights(path, {"a": shared, "b": shared, "c": torch.zeros(2)})
    ...     tensors, metadata = read_tensors(path)
    >>> sorted(tensors), metadata["b"]
    (['a', 'c'], 'a')
    """
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise TrellisError(
                f"{name!r} in the model's state dict: expected a tensor, got "
                f"{type(tensor).__name__}, which safetensors cannot hold"
            )
    stored: dict[str, Tensor] = {}
    metadata = {"format": "pt"}
    for group in _shared(state):
        # Copied, since different views of one tensor would share memory.
        stored[group[0]] = state[group[0]].detach().cpu().clone().contiguous()
        metadata |= {name: group[0] for name in group[1:]}
    write_tensors(path, stored | dict(beside or {}), metadata)


def _shared(state: Mapping[str, Tensor]) -> list[list[str]]:
    """Group the names of one tensor."""
    groups: dict[Hashable, list[str]] = {}
    for name, t in state.items():
        own = t.numel() and t.device.type != "meta"  # other tensors have no memory to share
        key = (t.device, t.data_ptr(), t.dtype, t.shape, t.stride()) if own else name
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def _with_aliases(
    given: Mapping[str, Tensor], metadata: Mapping[str, str], expected: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Add the names that the file leaves out because they are tied, by the file or the model."""
    full = dict(given)
    for group in _shared(expected):
        stored = next((name for name in group if name in given), "")
        for name in group:
            if name not in full and (source := metadata.get(name, stored)) in given:
                full[name] = given[source]
    return full


def _check(path: Path, given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    faults = []
    if missing := [name for name in expected if name not in given]:
        faults.append(f"it has no {_first(missing)}")
    if unknown := [name for name in given if name not in expected]:
        faults.append(f"the model has no {_first(unknown)}")
    wrong = [
        f"{name} (file {_shape(given[name])}, model {_shape(expected[name])})"
        for name in expected
        if name in given and given[name].shape != expected[name].shape
    ]
    if wrong:
        faults.append(f"shapes differ: {_first(wrong)}")
    other = [
        f"{name} (file {given[name].dtype}, model {expected[name].dtype})"
        for name in expected
        if name in given and _kind(given[name]) != _kind(expected[name])
    ]
    if other:
        faults.append(f"types differ: {_first(other)}")
    if any(name.endswith("_orig") or ".parametrizations." in f".{name}" for name in unknown):
        faults.append(
            "it was saved with masks on the model; save masks.plain_state_dict(model) instead, or "
            "call torch.nn.utils.prune.remove first"
        )
    if faults:
        raise TrellisError(f"{str(path)!r} does not fit the model: {'; '.join(faults)}")


def _first(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _kind(tensor: Tensor) -> tuple[bool, bool]:
    # torch converts floats of another size; a float in place of an integer is a mistake.
    return tensor.is_floating_point(), tensor.is_complex()


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


# Models as folders.


# The architectures that can be loaded without a model to load into.


class Saved(Protocol):
    """The methods of a registered class, which is also a ``torch.nn.Module``."""

    def example(self) -> tuple[Tensor, ...]:
        """Return example inputs of the model."""

    def described(self) -> dict[str, Any]:
        """Return everything that `rebuilt` needs besides the tensors, as JSON values."""

    @classmethod
    def rebuilt(cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> nn.Module:
        """Build the model on the ``meta`` device; its weights are loaded afterwards.

        The description may be any JSON value. If it does not fit ``tensors``, it must not take
        more time than a model of their size.
        """


Kind = TypeVar("Kind", bound=type)
_KINDS: dict[str, type] = {}
# Imported when a folder needs them, so that ``import trellis`` is fast.
_HOMES = {"GCN": "trellis.skeleton.model.gcn", "Compacted": "trellis.deploy.compact.module"}


def registered(name: str) -> Callable[[Kind], Kind]:
    """Register a class (as a decorator): folders with this name are loaded into it."""

    def register(kind: Kind) -> Kind:
        _KINDS[name] = kind
        return kind

    return register


def name_of(model: nn.Module) -> str | None:
    """Return the registered name of the model's class; None if it has none.

    >>> name_of(nn.Linear(2, 1)) is None
    True
    """
    own = parametrize.type_before_parametrizations(model)
    return next((name for name, kind in _KINDS.items() if kind is own), None)


def kind_named(name: str) -> type[Saved]:
    """Return the class registered under ``name``."""
    if name not in _KINDS and name in _HOMES:
        importlib.import_module(_HOMES[name])
    if name not in _KINDS:
        known = ", ".join(sorted(_KINDS.keys() | _HOMES))
        raise TrellisError(
            f"unknown architecture {name!r}; known: {known}; give a model to load into: "
            "trellis.load(folder, into=model)"
        )
    return cast(type[Saved], _KINDS[name])


Model = TypeVar("Model", bound=nn.Module)


def save(
    model: nn.Module,
    folder: str | PathLike[str],
    *,
    notes: Mapping[str, Any] | None = None,
    nested: Nested | None = None,
) -> None:
    """Write a model, masked or not, to a folder: ``model.safetensors`` and ``model.json``.

    ``model.safetensors`` holds the weights under the names of the unpruned model, 0 where nothing
    is kept, so that any safetensors reader can use them. It also holds the masks, one bit for each
    connection. ``model.json`` holds the architecture (of models of Trellis), a hash of the weights
    and the notes. Both files are written, or neither. Another parametrization, such as weight
    norm, is evaluated.

    Args:
        model: The model to save. It is not changed.
        folder: The folder to write to. It is created; its parent must exist.
        notes: Anything else to save, as values that JSON can hold.
        nested: Nested networks, which the model has the largest of (`trellis.shrink` with several
            rates). `trellis.load` takes any size out of the folder.

    Raises:
        TrellisError: A weight is NaN or infinite, or the folder cannot be written.

    Example:
        >>> import tempfile, trellis
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> masks = trellis.prune(model, torch.zeros(1, 4), sparsity=0.5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trellis.save(model, folder)
        ...     fresh = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        ...     trellis.masks_of(trellis.load(folder, into=fresh)) == masks
        True
    """
    masks = _masks(model)
    if nested is not None and masks != nested.masks[0]:
        raise TrellisError(
            "expected the largest of the nested networks in the model; give it with "
            "nested.apply(model, keep=nested.budgets[0])"
        )
    if masks is None:
        with plain(model) as seen:
            state = dict(seen.state_dict())
    else:
        state = masks.plain_state_dict(model)
    parameters = {each for each, _ in named_slots(model)}
    check_finite(state, "repair it, or train the model again", buffers=state.keys() - parameters)
    name, architecture = name_of(model), None
    if name is not None:
        architecture = {"name": name, "arguments": model.described()}  # type: ignore[operator]
    write_folder(folder, state, masks, architecture, notes or {}, nested)


@overload
def load(
    folder: str | PathLike[str],
    into: None = None,
    *,
    sparsity: float | None = None,
    keep: int | None = None,
    example_inputs: Any = None,
) -> nn.Module: ...
@overload
def load(
    folder: str | PathLike[str],
    into: Model,
    *,
    sparsity: float | None = None,
    keep: int | None = None,
    example_inputs: Any = None,
) -> Model: ...
@on_cpu()
def load(
    folder: str | PathLike[str],
    into: nn.Module | None = None,
    *,
    sparsity: float | None = None,
    keep: int | None = None,
    example_inputs: Any = None,
) -> nn.Module:
    """Read a model that `trellis.save` wrote, with its masks.

    No code from the folder is run: files hold tensors and JSON only.

    Args:
        folder: A folder written by `trellis.save`.
        into: A model with the same parameters and buffers, to load into in place. Its masks are
            replaced by the saved ones. Without it, a new model of the saved architecture is made
            on the CPU; this works for compacted models and for ``trellis.skeleton.GCN``.
        sparsity: The fraction of connections removed, for a folder of nested networks. Any rate
            in their range works; nothing is trained. By default the largest network is loaded.
        keep: The number of connections kept, in place of ``sparsity``.
        example_inputs: Inputs to trace the model with, if those of the training cannot be made
            from their types and shapes.

    Returns:
        The loaded model; ``into`` if it was given.

    Raises:
        TrellisError: The folder is not a saved model, is damaged or does not fit ``into``, or the
            architecture is unknown and ``into`` is missing. Then nothing is changed.

    Example:
        >>> import tempfile, trellis
        >>> small = trellis.compact(nn.Linear(4, 2), torch.zeros(1, 4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trellis.save(small, folder)
        ...     again = trellis.load(folder)
        >>> x = torch.randn(3, 4)
        >>> torch.equal(again(x), small(x))
        True
    """
    saved = read_folder(folder)
    nested = nested_in(saved, sparsity, keep)
    model = rebuilt(saved) if into is None else _loaded(saved, into)
    if nested is not None:
        nested.apply(model, example_inputs, sparsity=sparsity, keep=keep)
    return model


def nested_in(saved: Folder, sparsity: Any, keep: Any) -> Nested | None:
    """Return the nested networks of a folder; None if no rate is asked for.

    Raises:
        TrellisError: The folder holds one network, or the rate is out of range.
    """
    if sparsity is None and keep is None:
        return None
    if saved.nested is None:
        raise TrellisError(
            f"{str(saved.path)!r} holds one network, so no sparsity can be chosen; leave it out, "
            "or shrink to several rates, such as sparsity=(0.9, 0.99, 0.999)"
        )
    saved.nested.budget(sparsity, keep)
    return saved.nested


def _masks(model: nn.Module) -> Masks | None:
    named = list(named_slots(model))
    if all(slot.mask is None for _, slot in named):
        return None
    found = masks_of(model)
    for group in tied(named, masked=False):
        if len(apart := [name for name, _ in group if name in found]) > 1:
            raise TrellisError(
                f"{' and '.join(map(repr, apart))} are one tied parameter under different masks; "
                "untie them first, or give them one mask"
            )
    return found


def rebuilt(saved: Folder) -> nn.Module:
    """Build a model of the architecture that a folder describes, with its weights and masks."""
    if saved.architecture is None:
        raise TrellisError(
            f"{str(saved.path)!r} does not say its architecture; give a model to load into: "
            "trellis.load(folder, into=model)"
        )
    kind = kind_named(saved.architecture["name"])
    arguments = saved.architecture["arguments"]
    try:
        with torch.device("meta"):  # so that sizes in a damaged file allocate no memory
            model = kind.rebuilt(arguments, saved.tensors)
    except (TrellisError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as e:
        reason = (str(e) or type(e).__name__).splitlines()[0]
        raise TrellisError(
            f"{str(saved.path)!r}: the described architecture is invalid: {reason:.300}"
        ) from None
    state = fitted(saved.path, saved.tensors, saved.aliases, model)
    _check_finite(saved, state, model)
    model.load_state_dict(state, assign=True)
    return model if saved.masks is None else saved.masks.apply(model)


def _check_finite(saved: Folder, state: Mapping[str, Tensor], model: nn.Module) -> None:
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    do = "its training diverged; train the model again"
    tensors = {name: t for name, t in state.items() if isinstance(t, Tensor)}
    check_finite(tensors, do, place=f"{str(saved.path)!r}: ", buffers=tensors.keys() - parameters)


def _loaded(saved: Folder, model: Model) -> Model:
    refuse_inference(model)
    named = dict(named_slots(model))
    for name, slot in named.items():
        if not all(isinstance(transform, Mask) for transform in slot.transforms):
            raise TrellisError(
                f"{name!r} has a parametrization in the model to load into; expected a plain "
                "parameter; load into a model without the parametrization"
            )
    with plain(model) as seen:
        state = fitted(saved.path, saved.tensors, saved.aliases, seen)
        _check_finite(saved, state, seen)
    for name in saved.masks or ():
        if name not in named:
            raise TrellisError(
                f"{str(saved.path)!r} has a mask for {name!r}, but the model has no such parameter"
            )
    for slot in named.values():
        detach(slot)
    model.load_state_dict(state)
    return model if saved.masks is None else saved.masks.apply(model)
