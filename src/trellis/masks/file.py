"""The masks file: bit-packed safetensors with a header.

Each mask is a ``uint8`` tensor of ceil(n / 8) bytes: eight connections a byte, the first in the
lowest bit, the last byte padded with zeros. The metadata of the file has one key, `HEADER`. Its
value is JSON::

    {"version": 1, "budget": 3, "shapes": {"fc.weight": [2, 4]}, "provenance": {...},
     "digest": SHA-256 of the masks and of the rest of the header}

Any safetensors reader opens it. The same masks always make the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import torch
from torch import Tensor, nn

from ..errors import TrellisError
from ..files import digest, replacing
from ..schema import MasksHeader, fitted, parsed
from .plain import plain_tensors

HEADER = "trellis.masks"
VERSION = 1
_CHUNK = 1 << 24  # bytes hashed by one thread at a time


def pack(mask: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Pack eight connections in a byte, the first in the lowest bit: ``uint8 (ceil(n / 8),)``.

    >>> pack(torch.tensor([True, False, True, True, False, False, False, False, True]))
    array([13,  1], dtype=uint8)
    """
    return np.packbits(mask.detach().cpu().reshape(-1).numpy(), bitorder="little")


def unpack(packed: np.ndarray[Any, np.dtype[np.uint8]], shape: tuple[int, ...]) -> Tensor:
    """Invert `pack`.

    >>> unpack(np.array([13], dtype=np.uint8), (2, 2))
    tensor([[ True, False],
            [ True,  True]])
    """
    bits = np.unpackbits(packed, count=math.prod(shape), bitorder="little")
    return torch.from_numpy(bits.view(np.bool_)).reshape(shape)


def write_masks(
    path: str | PathLike[str],
    masks: Mapping[str, Tensor],
    *,
    budget: int,
    provenance: Mapping[str, Any],
) -> None:
    """Write a masks file completely or not at all."""
    header = {
        "version": VERSION,
        "budget": budget,
        "shapes": {name: list(mask.shape) for name, mask in masks.items()},
        "provenance": dict(provenance),
    }
    packed = {name: pack(mask) for name, mask in masks.items()}
    header["digest"] = _digest(packed, header)
    content = safetensors.numpy.save(
        packed,
        metadata={HEADER: json.dumps(header, allow_nan=False)},
    )
    with replacing(Path(path)) as [draft]:
        draft.write_bytes(content)


def read_masks(path: str | PathLike[str]) -> tuple[dict[str, Tensor], int, dict[str, Any]]:
    """Read the masks, the budget and the provenance; raise if the file is not valid."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = _header(path, file.metadata() or {})
            shapes: dict[str, list[int]] = header["shapes"]
            if set(file.keys()) != set(shapes):
                raise _damaged(path, "its header and its tensors do not name the same parameters")
            packed = {name: _packed(path, file, name, shape) for name, shape in shapes.items()}
    except FileNotFoundError:
        raise TrellisError(f"masks file {str(path)!r} does not exist") from None
    except OSError as error:
        raise TrellisError(f"{str(path)!r}: cannot be read: {error}") from error
    except safetensors.SafetensorError as error:
        raise _damaged(path, f"not a whole safetensors file ({error})") from error
    told = header.pop("digest", None)  # older releases wrote none
    if told is not None and told != _digest(packed, header):
        raise _damaged(path, "its content is not what was written (digest)")
    masks = {name: _mask(path, packed[name], name, shape) for name, shape in shapes.items()}
    return masks, header["budget"], header["provenance"]


def _digest(packed: Mapping[str, np.ndarray[Any, Any]], header: Mapping[str, Any]) -> str:
    # The header as it is read from a file: JSON has no tuples.
    about = json.loads(json.dumps(header))
    return digest({name: torch.from_numpy(mask) for name, mask in packed.items()}, about)


def weights_hash(model: nn.Module) -> str:
    """Return the SHA-256 of the names, types, shapes and bytes of the model's effective weights.

    It is the same on every device and with any number of threads: chunks of fixed size are hashed
    in parallel, and then their hashes in order.

    >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> _ = b.load_state_dict(a.state_dict())
    >>> weights_hash(a) == weights_hash(b), len(weights_hash(a))
    (True, 64)
    """
    digest = hashlib.sha256()
    with ThreadPoolExecutor() as pool:
        for name, tensor in plain_tensors(model).items():
            digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
            for part in pool.map(_sha256, _chunks(tensor)):
                digest.update(part)
    return digest.hexdigest()


def _sha256(chunk: memoryview) -> bytes:
    return hashlib.sha256(chunk).digest()


def _chunks(tensor: Tensor) -> Iterator[memoryview]:
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return (flat[start : start + _CHUNK] for start in range(0, len(flat), _CHUNK))


def _header(path: str | PathLike[str], metadata: Mapping[str, str]) -> MasksHeader:
    if HEADER not in metadata:
        raise TrellisError(
            f"{str(path)!r} is a safetensors file but not a masks file (it has no {HEADER!r} "
            "header); give a file written by Masks.save"
        )
    try:
        given = parsed(metadata[HEADER])
        version = given.get("version", VERSION) if isinstance(given, dict) else VERSION
        if version == VERSION:
            return fitted(given, MasksHeader)
    except TrellisError as error:
        raise _damaged(path, str(error)) from None
    raise TrellisError(
        f"{str(path)!r} is a masks file of version {version!r:.60}; this release of Trellis reads "
        f"version {VERSION}; use the release that wrote it"
    )


def _packed(
    path: str | PathLike[str], file: Any, name: str, shape: list[int]
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    # Checked before memory is allocated: the sizes in a damaged header may be huge.
    stored = file.get_slice(name)
    count = math.prod(shape)
    if stored.get_dtype() != "U8" or stored.get_shape() != [-(-count // 8)]:
        raise _damaged(
            path,
            f"{name!r} of shape {shape} should be {-(-count // 8)} bytes of U8 and is "
            f"{stored.get_dtype()} of shape {stored.get_shape()}",
        )
    packed: np.ndarray[Any, np.dtype[np.uint8]] = file.get_tensor(name)
    return packed


def _mask(
    path: str | PathLike[str],
    packed: np.ndarray[Any, np.dtype[np.uint8]],
    name: str,
    shape: list[int],
) -> Tensor:
    count = math.prod(shape)
    if count % 8 and int(packed[-1]) >> (count % 8):
        raise _damaged(path, f"{name!r} has bits set after its last connection")
    try:
        return unpack(packed, tuple(shape))
    except RuntimeError as error:  # an empty mask with sizes that overflow in torch
        raise _damaged(path, f"{name!r} has the shape {shape} ({error})") from None


def _damaged(path: str | PathLike[str], what: str) -> TrellisError:
    return TrellisError(
        f"{str(path)!r} is not a sound masks file: {what}. Save or download it again"
    )
