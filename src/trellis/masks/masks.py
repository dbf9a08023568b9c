"""Masks: one boolean tensor for each pruned parameter, True where a connection is kept.

`Masks` is what users hold, apply to a model, and save as a file.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors
import safetensors.numpy
import torch
from torch import Tensor, nn

from ..devices import on_cpu
from ..errors import TrellisError
from ..files import digest, replacing
from ..schema import MasksHeader, fitted, parsed
from .masked import attach, bake, detach, plain, plain_tensors, refuse_shadowed
from .slots import (
    Slot,
    is_sharded,
    named_slots,
    refuse_inference,
    tied,
)

# The masks file: bit-packed safetensors with a header.
#
# Each mask is a ``uint8`` tensor of ceil(n / 8) bytes: eight connections a byte, the first in the
# lowest bit, the last byte padded with zeros. The metadata of the file has one key, `HEADER`. Its
# value is JSON::
#
#     {"version": 1, "budget": 3, "shapes": {"fc.weight": [2, 4]}, "provenance": {...},
#      "digest": SHA-256 of the masks and of the rest of the header}
#
# Any safetensors reader opens it. The same masks always make the same bytes.


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


Model = TypeVar("Model", bound=nn.Module)
Named = list[tuple[str, Slot]]
_NAMED = 3  # starved parameters that are printed by name


def is_starved(kept: int, size: int, all_kept: int, total: int) -> bool:
    """Return whether a parameter keeps less than a hundredth of its fair share.

    A parameter whose fair share is below one connection is not starved.

    >>> is_starved(0, 10, 50, 1000), is_starved(0, 20, 50, 1000), is_starved(1, 900, 500, 1000)
    (False, True, True)
    """
    fair = all_kept * size  # times the total
    return fair >= total and fair > 100 * kept * total


class Masks(Mapping[str, Tensor]):
    """Hold the kept connections of a model, ``{parameter name: bool tensor}``; True is kept.

    `trellis.prune` returns masks, `trellis.masks_of` reads them from a model, and `Masks.load`
    reads them from a file. Masks are a read-only mapping: ``masks["fc.weight"]``, ``len(masks)``,
    ``for name, mask in masks.items()``. Two masks are equal if they keep the same connections.

    Names are those of the unpruned model (``fc.weight``). A tied parameter is listed once, under
    its first name, and is masked under all of its names.

    Args:
        masks: A bool tensor for each parameter name, in the parameter's shape.
        budget: Number of connections that were to be kept (default: the number that is kept).
        provenance: How the masks were made, as values that JSON can hold.

    Attributes:
        kept: Number of kept connections.
        budget: Number of connections that were to be kept. ``kept`` is smaller if no consistent
            network with exactly the budget was found.
        total: Number of connections of the masked parameters.
        sparsity: Fraction of the connections that is removed, ``1 - kept / total``.
        starved: Names of the parameters that keep less than a hundredth of their fair share. The
            fair share of a parameter is ``kept / total`` of its connections. Parameters with a
            fair share below one connection are left out.
        provenance: How the masks were made: the options of `trellis.prune` and the types and
            shapes of its inputs.

    Raises:
        TrellisError: A mask is not a bool tensor, or ``budget`` or ``provenance`` is invalid.

    Example:
        >>> import trellis
        >>> layer = nn.Linear(3, 1, bias=False)
        >>> _ = nn.init.constant_(layer.weight, 2.0)
        >>> masks = trellis.Masks({"weight": torch.tensor([[True, False, True]])})
        >>> masks
        Masks: 2 of 3 connections kept (33.33 % pruned) in 1 tensor
        >>> masks.starved
        ()
        >>> masks.apply(layer).weight.tolist()
        [[2.0, 0.0, 2.0]]
        >>> list(masks.plain_state_dict(layer))
        ['weight']
    """

    def __init__(
        self,
        masks: Mapping[str, Tensor],
        *,
        budget: int | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        for name, mask in masks.items():
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                given = f"dtype {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
                raise TrellisError(
                    f"mask {name!r}: expected a bool tensor, got {given}; give one that is True "
                    "where a connection is kept, such as weight != 0"
                )
        if budget is not None and (not isinstance(budget, int) or budget < 0):
            raise TrellisError(f"budget={budget!r}: expected a number of connections, 0 or more")
        self._masks = {name: mask.detach().contiguous() for name, mask in masks.items()}
        self._budget = budget
        self.provenance: dict[str, Any] = _jsonable(provenance or {})
        self._model: weakref.ref[nn.Module] | None = None

    def __getitem__(self, name: str) -> Tensor:
        return self._masks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._masks)

    def __len__(self) -> int:
        return len(self._masks)

    def __eq__(self, other: object) -> bool:
        """Return whether both keep the same connections of the same parameters."""
        if not isinstance(other, Mapping):
            return NotImplemented
        return self.keys() == other.keys() and all(
            torch.equal(mask.cpu(), other[name].cpu()) for name, mask in self.items()
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _counts(self) -> dict[str, int]:
        if not self._masks:
            return {}
        place = next(iter(self.values())).device  # one copy from a GPU for all masks
        counts = torch.stack([mask.count_nonzero().to(place) for mask in self.values()])
        return dict(zip(self, counts.tolist(), strict=True))

    @cached_property
    def kept(self) -> int:
        """Number of kept connections."""
        return sum(self._counts.values())

    @property
    def budget(self) -> int:
        """Number of connections that were to be kept."""
        return self.kept if self._budget is None else self._budget

    @property
    def total(self) -> int:
        """Number of connections of the masked parameters."""
        return sum(mask.numel() for mask in self.values())

    @property
    def sparsity(self) -> float:
        """Fraction of the connections that is removed, ``1 - kept / total``."""
        return 1 - self.kept / self.total if self.total else 0.0

    @property
    def starved(self) -> tuple[str, ...]:
        """Names of the parameters that keep less than a hundredth of their fair share."""
        options = self.provenance.get("options", {})
        # Then a parameter of which nothing is kept has no live connection in the dense network.
        covered = options.get("consistent") and options.get("cover_layers")
        return tuple(
            name
            for name, mask in self.items()
            if (self._counts[name] or not covered)
            and is_starved(self._counts[name], mask.numel(), self.kept, self.total)
        )

    def starved_words(self) -> str:
        """Name the first starved parameters with what they keep; empty if there are none."""
        starved = self.starved
        parts = [f"{n} ({self._counts[n]:,} of {self[n].numel():,})" for n in starved[:_NAMED]]
        if len(starved) > _NAMED:
            parts.append(f"{len(starved) - _NAMED} more")
        return ", ".join(parts)

    @on_cpu()
    def apply(self, model: Model) -> Model:
        """Mask a model in place.

        Removed connections then read as 0 and get no gradient, and the model can be trained. The
        parameter objects stay the same, so an existing optimizer goes on working. Masks that a
        parameter already has, of Trellis or of `torch.nn.utils.prune`, are replaced; the weights
        are those that are stored. Parameters without a mask here are not changed.

        Args:
            model: A model with these parameter names and shapes.

        Returns:
            The same model.

        Raises:
            TrellisError: A name or shape does not fit. The model is then not changed.
        """
        self._model = weakref.ref(model)
        matched = self._matched(model)
        for group, _ in matched:
            for name, slot in group:
                refuse_shadowed(name, slot)
                if any(map(is_sharded, slot.sources)):
                    raise TrellisError(
                        f"{name!r} is sharded over processes; apply masks to a whole model, or "
                        "train the sharded one with trellis.Pruner"
                    )
        for group, masks in matched:
            if len(masks) == 1:
                attach([slot for _, slot in group], next(iter(masks.values())))
                continue
            # The names of a tied parameter may have different masks after torch's own pruning.
            first = next(iter(masks.values()))
            for name, slot in group:
                attach([slot], masks.get(name, first))
        return model

    @on_cpu()
    def bake(self, model: Model) -> Model:
        """Write the masks into the weights and remove the masks, in place.

        Each masked parameter becomes an ordinary parameter that is 0 where nothing is kept.
        Further training may change these zeros. Another parametrization of a masked parameter,
        such as weight norm, is evaluated and removed too, because its next value would not be
        zero. Masks of other parameters stay.

        Args:
            model: A model with these parameter names and shapes, masked or not.

        Returns:
            The same model.

        Raises:
            TrellisError: A name or shape does not fit, or the names of a tied parameter have
                different masks.
        """
        matched = self._matched(model)
        users: dict[int, set[int]] = {}
        for index, group in enumerate(tied(named_slots(model), masked=False)):
            for source in group[0][1].sources:
                users.setdefault(id(source), set()).add(index)
        for group, masks in matched:
            slots = [slot for _, slot in group]
            if len(masks) > 1:
                raise TrellisError(
                    f"{', '.join(map(repr, masks))} are one tied parameter under different masks, "
                    "which one weight cannot hold; untie them first, or give one mask"
                )
            alone = all(len(users[id(source)]) == 1 for source in slots[0].sources)
            bake(slots, next(iter(masks.values())), alone=alone)
        return model

    @on_cpu()
    def undo(self, model: Model) -> Model:
        """Take the masks off without writing them into the weights, in place.

        Removed connections get back the weights that are stored: those that they had when they
        were removed, and what an optimizer has done to them since. They are 0 if `trellis.Pruner`
        removed them, or if ``model.state_dict()`` was called meanwhile. Masks of other parameters
        and other parametrizations stay.

        Args:
            model: A model with these parameter names and shapes, masked or not.

        Returns:
            The same model.

        Raises:
            TrellisError: A name or shape does not fit.

        Example:
            >>> import trellis
            >>> layer = nn.Linear(4, 2)
            >>> before = layer.weight.detach().clone()
            >>> masks = trellis.prune(layer, torch.zeros(1, 4), sparsity=0.5)
            >>> torch.equal(masks.undo(layer).weight, before), type(layer).__name__
            (True, 'Linear')
        """
        for group, _ in self._matched(model):
            for _, slot in group:
                detach(slot)
        return model

    def plain_state_dict(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the state dict of the unpruned model, with masked weights set to 0.

        It loads with ``strict=True`` into a new model of the same class. Another parametrization
        of a masked weight, such as weight norm, is evaluated, so the new model must not have it.
        The given model is not changed and need not be masked. Tensors without a mask share memory
        with it, as in ``model.state_dict()``.

        Args:
            model: A model with these parameter names and shapes.

        Returns:
            Tensors by the keys of the unpruned model.

        Raises:
            TrellisError: A name or shape does not fit.
        """
        masked: dict[str, Tensor] = {}
        with plain(model) as seen, torch.no_grad():
            state = dict(seen.state_dict())
        for group, masks in self._matched(model):
            bare = group[0][1].bare()
            values = {
                name: torch.where(mask.to(bare.device), bare, 0) for name, mask in masks.items()
            }
            first = next(iter(values.values()))
            masked |= {name: values.get(name, first) for name, _ in group}
        return {name: masked.get(name, tensor) for name, tensor in state.items()}

    def save(self, path: str | PathLike[str], model: nn.Module | None = None) -> None:
        """Write a masks file: bit-packed safetensors with a JSON header.

        The file is written completely or not at all. It also holds a hash of the model's current
        weights, under ``provenance["weights"]``.

        Args:
            path: The file to write.
            model: The model whose weights are hashed (default: the model that the masks were last
                applied to, if it still exists).

        Raises:
            TrellisError: The file cannot be written.
        """
        provenance = dict(self.provenance)
        if model is None and self._model is not None:
            model = self._model()
        if model is not None:
            provenance["weights"] = weights_hash(model)
        write_masks(path, self, budget=self.budget, provenance=provenance)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Masks:
        """Read a masks file and check all of its content.

        Args:
            path: A file written by `Masks.save`.

        Returns:
            The masks, equal to those that were saved.

        Raises:
            TrellisError: The file does not exist, is damaged, or is not a masks file.
        """
        masks, budget, provenance = read_masks(path)
        return cls(masks, budget=budget, provenance=provenance)

    def __repr__(self) -> str:
        tensors = "1 tensor" if len(self) == 1 else f"{len(self)} tensors"
        asked = "" if self.kept == self.budget else f", budget {self.budget:,}"
        return (
            f"Masks: {self.kept:,} of {self.total:,} connections kept "
            f"({100 * self.sparsity:.4g} % pruned{asked}) in {tensors}"
            + (f"; starved: {self.starved_words()}" if self.starved else "")
        )

    def _matched(self, model: nn.Module) -> list[tuple[Named, dict[str, Tensor]]]:
        """Return, for each parameter to mask, its slots by name and its distinct masks by name."""
        refuse_inference(model)
        groups = tied(named_slots(model), masked=False)
        names = {name: slot for group in groups for name, slot in group}
        for name, mask in self.items():
            if name not in names:
                raise TrellisError(f"the model has no parameter {name!r}{_hint(name, names)}")
            slot = names[name]
            shape = slot.bare().shape if slot.transforms else slot.sources[0].shape
            if mask.shape != shape:
                raise TrellisError(
                    f"mask {name!r}: expected the parameter's shape {tuple(shape)}, got "
                    f"{tuple(mask.shape)}; the masks were made for another model"
                )
        matched = []
        for group in groups:
            masks = {name: self[name] for name, _ in group if name in self}
            if masks:
                first = next(iter(masks.values()))
                if all(mask is first or torch.equal(mask, first) for mask in masks.values()):
                    masks = dict([next(iter(masks.items()))])
                matched.append((group, masks))
        return matched


def _hint(name: str, names: Mapping[str, Slot]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {close[0]!r}?" if close else f"; it has {', '.join(names) or 'none'}"


def _jsonable(provenance: Mapping[str, Any]) -> dict[str, Any]:
    try:
        # Converted to JSON and back, so that loaded masks equal those that were saved.
        result: dict[str, Any] = json.loads(json.dumps(dict(provenance), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TrellisError(
            f"provenance: expected values that JSON can hold, got {provenance!r:.80} ({error})"
        ) from None
    return result


# The masks on a model.


def masks_of(model: nn.Module) -> Masks:
    """Read the masks on a model: those of Trellis and those of `torch.nn.utils.prune`.

    Args:
        model: A pruned model. It is not changed.

    Returns:
        A copy of its masks. Parameters without a mask are left out. A tied parameter is listed
        once, unless its names have different masks.

    Raises:
        TrellisError: The model has no masks.

    Example:
        >>> import trellis
        >>> from torch.nn.utils import prune
        >>> model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1))
        >>> _ = prune.l1_unstructured(model[0], "weight", amount=6)
        >>> trellis.masks_of(model)
        Masks: 2 of 8 connections kept (75 % pruned) in 1 tensor
    """
    found = {}
    for group in tied(named_slots(model), masked=True):
        name, slot = group[0]
        if slot.mask is not None:
            found[name] = slot.mask.to(torch.bool, copy=True)
    if not found:
        raise TrellisError(
            "the model has no masks, neither of Trellis nor of torch.nn.utils.prune; prune it "
            "first, or apply masks from a file: trellis.Masks.load(path).apply(model)"
        )
    return Masks(found)


def carried_masks(model: nn.Module) -> Masks | None:
    """Return the masks on a model; None if it has none."""
    masked = any(slot.mask is not None for _, slot in named_slots(model))
    return masks_of(model) if masked else None
