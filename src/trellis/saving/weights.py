"""Weights files: a state dict in safetensors, with each tensor once.

safetensors does not accept tensors that share memory. So a tied parameter is stored under its first
name, and the metadata maps every other name to that one, as ``safetensors.torch.save_model`` does.
``safetensors.torch.load_model(model, path)`` reads the file into any model that ties the same
parameters. Without tied parameters the file is the plain state dict:
``model.load_state_dict(safetensors.torch.load_file(path))``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor, nn

from ..errors import TrellisError
from ..files import DIGEST, intact, write_tensors
from ..masks import plain
from ..masks.masks import HEADER

# Prefixes of names in the file of a saved model: packed masks, and the sizes of nested networks.
MASK, NESTED = "masks:", "nested:"
BESIDE = (MASK, NESTED)


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
