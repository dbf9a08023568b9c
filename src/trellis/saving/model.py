"""Save a model as a folder, and load it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Protocol, TypeVar, cast, overload

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..devices import on_cpu
from ..errors import TrellisError
from ..masks import Mask, Masks, masks_of, plain
from ..masks.masked import check_finite, detach
from ..masks.slots import named_slots, refuse_inference, tied
from .folder import Folder, read_folder, write_folder
from .nested import Nested
from .weights import fitted

# The architectures that can be loaded without a model to load into.


class Saved(Protocol):
    """The methods of a registered class, which is also a ``torch.nn.Module``."""

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
