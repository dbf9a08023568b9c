"""States as safetensors files: nested dictionaries of tensors and plain values, without pickle."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from torch import Tensor

from ...errors import TrellisError
from ...files import intact, replacing, write_tensors

HEADER, VERSION = "trellis.shrink", 1


def encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value as JSON can hold it; tensors are added to ``tensors``.

    >>> tensors = {}
    >>> told = encode({0: (1.5, None), "w": torch.ones(2)}, tensors)
    >>> decode(told, tensors)
    {0: (1.5, None), 'w': tensor([1., 1.])}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Tensor):
        name = f"{len(tensors):05d}"
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return {"float": float(value).hex() if math.isfinite(value) else repr(float(value))}
    if isinstance(value, np.generic):
        return encode(value.item(), tensors)
    if isinstance(value, Mapping):
        items = [[encode(k, tensors), encode(v, tensors)] for k, v in value.items()]
        return {"dict": items}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [encode(each, tensors) for each in value]}
    if isinstance(value, set):
        return {"set": [encode(each, tensors) for each in sorted(value)]}
    raise TrellisError(
        f"expected tensors and plain values in a state to store, got {type(value).__name__}; "
        "use an optimizer and a scheduler whose state_dict() holds no functions or objects"
    )


def decode(told: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value that `encode` was given."""
    if not isinstance(told, dict):
        return told
    [(kind, value)] = told.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "float":
        return float.fromhex(value)
    if kind == "dict":
        return {decode(k, tensors): decode(v, tensors) for k, v in value}
    found = [decode(each, tensors) for each in value]
    return tuple(found) if kind == "tuple" else set(found) if kind == "set" else found


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state, atomically."""
    tensors: dict[str, Tensor] = {}
    told = {"version": VERSION, "state": encode(state, tensors)}
    with replacing(path) as [draft]:
        write_tensors(draft, tensors, {HEADER: json.dumps(told)})


def read_state(path: Path) -> dict[str, Any]:
    """Return what `write_state` wrote.

    Raises:
        TrellisError: The file is damaged, or of another version.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names: list[str] = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except OSError as error:
        raise TrellisError(f"{str(path)!r} cannot be read: {error}") from error
    except safetensors.SafetensorError as error:
        raise _damaged(path, f"not a whole safetensors file ({error})") from error
    if HEADER not in metadata or not intact(tensors, metadata):
        raise _damaged(path, "its content is not what was written (digest)")
    told = json.loads(metadata[HEADER])  # intact, so it is what `write_state` wrote
    if told["version"] != VERSION:
        raise _damaged(path, f"expected version {VERSION}, got {told['version']!r:.60}")
    found: dict[str, Any] = decode(told["state"], tensors)
    return found


def _damaged(path: Path, what: str) -> TrellisError:
    return TrellisError(
        f"{str(path)!r} is not a sound checkpoint: {what}. Remove it to train from the start"
    )


# Random numbers: those of torch, numpy and Python, from which loaders and dropout draw.


def seed_everything(seed: int) -> None:
    """Seed the global generators of torch, numpy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of the global generators."""
    kind, keys, place, has, gauss = np.random.get_state(legacy=True)
    version, numbers, kept = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "numpy": (str(kind), torch.from_numpy(np.asarray(keys, np.int64)), place, has, gauss),
        "python": (version, torch.tensor(numbers), kept),
    }


def restore_random(state: Mapping[str, Any], device: torch.device) -> None:
    """Restore the states of the global generators."""
    torch.set_rng_state(state["torch"].cpu())
    if state["device"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["device"].cpu(), device)
    kind, keys, place, has, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), place, has, gauss))
    version, numbers, kept = state["python"]
    random.setstate((version, tuple(numbers.tolist()), kept))
