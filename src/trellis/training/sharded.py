"""Masks of a model whose parameters are sharded over processes by ``fully_shard`` (FSDP2).

Paths need the whole network, and no process should hold all of it. Therefore the first process
alone selects. Weights come to it one parameter at a time: all processes gather a parameter, as they
do in every forward pass, and the others drop it at once. The masks go back as packed bits. Each
process keeps the mask of its own shards, one byte per weight.

Parametrizations do not fit: ``fully_shard`` replaces a module's parameters while it runs. Instead,
gradients of pruned weights are set to 0 where they arrive, and pruned weights after each optimizer
step. An optimizer then does the same as with masked weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import TrellisError
from ..graph.trellis import Current
from ..masks.slots import Slot, is_sharded, named_slots, tied
from ..methods.budget import count
from ..methods.method import Kept


def shards_of(
    model: nn.Module, connections: Mapping[str, tuple[int, ...]], masked: Collection[str]
) -> Shards | None:
    """Return the shards of a model's parameters; None if none is sharded.

    Raises:
        TrellisError: Some of the parameters are sharded and others not, or in an unusual way.
    """
    found = {name: is_sharded(slot.sources[0]) for name, slot in _slots(model, connections).items()}
    if not any(found.values()):
        return None
    whole = [name for name, sharded in found.items() if not sharded]
    if whole:
        raise TrellisError(
            f"expected all parameters to be sharded or none, got {whole[0]!r} whole; call "
            "fully_shard on the model itself too, after its parts"
        )
    return Shards(model, connections, masked)


class Shards:
    """The shards that this process has, with their masks.

    Args:
        model: The model, after ``fully_shard``.
        connections: The shapes of the parameters with connections.
        masked: Which of them have masks; the others are ignored.
    """

    def __init__(
        self,
        model: nn.Module,
        connections: Mapping[str, tuple[int, ...]],
        masked: Collection[str],
    ) -> None:
        self.model, self.shapes, self.masked = model, dict(connections), tuple(masked)
        self._at: dict[str, Any] = {}
        first = next(iter(self._parameters().values()))
        for name, parameter in self._at.items():
            _check_layout(name, parameter, first)
            if tuple(parameter.shape) != self.shapes[name]:
                raise TrellisError(
                    f"{name!r}: expected the shape {self.shapes[name]} of the trace, got "
                    f"{tuple(parameter.shape)}; trace the model again, before fully_shard"
                )
        self.group = _group(first.device_mesh)
        self.first = dist.get_rank(self.group) == 0
        self.device = first.to_local().device
        self.masks: dict[str, Tensor] = {}  # of the shards of this process
        self.inside: dict[str, Tensor] = {}  # likewise; see `Standing`
        self.kept = 0  # of the whole model
        self.probes: dict[str, Tensor] = {}  # gradients of pruned weights, summed
        self.probing = False
        self._hooked: dict[str, tuple[int, Any]] = {}

    def select(self, choose: Callable[[], tuple[Kept, Kept | None, int]]) -> int:
        """Let the first process choose masks, and put them on all shards.

        Args:
            choose: Returns masks, those of a network with the last budget inside them (or None),
                and a number that all processes need.

        Returns:
            The number.

        Raises:
            TrellisError: The choice failed; the error is raised in all processes.
        """
        kept: Kept | None = None
        inside: Kept | None = None
        error: Exception | None = None
        said: list[Any] = [None]
        if self.first:
            try:
                kept, inside, number = choose()
                said = [(count(kept), inside is not None, int(number))]
            except Exception as raised:
                error, said = raised, [str(raised) or type(raised).__name__]
        dist.broadcast_object_list(said, src=dist.get_global_rank(self.group, 0), group=self.group)
        if error is not None:
            raise error
        if isinstance(said[0], str):
            raise TrellisError(said[0])
        total, also, number = said[0]
        masks = self.scattered(kept)
        self.inside = self.scattered(inside) if also else {}
        self.wear(masks, total)
        return int(number)

    def current(self) -> Current | None:
        """Gather weights and masks, one parameter at a time; None except in the first process."""
        weights: dict[str, Tensor] = {}
        masks: dict[str, Tensor] = {}
        for name, parameter in self._parameters().items():
            whole = parameter.detach().full_tensor()
            if self.first:
                weights[name] = whole.contiguous()
            del whole
            if name in self.masks:
                mask = self.whole(name, self.masks[name])
                if self.first:
                    masks[name] = mask
                del mask
        return Current(weights, masks) if self.first else None

    def gathered(self, local: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Gather masks or gradients of shards; None except in the first process."""
        found = {}
        for name, mine in local.items():
            whole = self.whole(name, mine)
            if self.first:
                found[name] = whole
            del whole
        return found if self.first else None

    def scattered(self, masks: Kept | None) -> dict[str, Tensor]:
        """Send masks of the first process to all; return those of the shards of this process."""
        source = dist.get_global_rank(self.group, 0)
        found = {}
        for name in self.masked:
            size = math.prod(self.shapes[name])
            bits = torch.empty((size + 7) // 8, dtype=torch.uint8, device=self.device)
            if self.first:
                assert masks is not None
                bits = _packed(masks[name].to(self.device))
            dist.broadcast(bits, src=source, group=self.group)
            found[name] = self.part(name, _unpacked(bits, size).view(self.shapes[name]))
        return found

    def part(self, name: str, mask: Tensor) -> Tensor:
        """Return this process's shard of a mask; of a distributed one, its own part."""
        if is_sharded(mask):
            shard: Any = mask
            own: Tensor = shard.to_local().to(self.device, torch.bool)
            return own.clone()
        from torch.distributed.tensor import distribute_tensor

        like = self._at[name]
        mine: Any = distribute_tensor(
            mask.to(self.device, torch.uint8), like.device_mesh, like.placements, src_data_rank=None
        )
        kept: Tensor = mine.to_local().bool()
        return kept.clone()

    def whole(self, name: str, local: Tensor) -> Tensor:
        """Gather a mask or a gradient in all processes."""
        sent = local.to(torch.uint8) if local.dtype == torch.bool else local
        found: Tensor = self._whole(name, sent).full_tensor()
        return found.to(local.dtype).contiguous()

    def distributed(self, local: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return masks as tensors that are sharded like the parameters, for checkpoints."""
        return {name: self._whole(name, mask.clone()) for name, mask in local.items()}

    def wear(self, masks: Mapping[str, Tensor], kept: int) -> None:
        """Put masks on the shards: removed weights are set to 0."""
        parameters = self._parameters()
        for name, mask in masks.items():
            if name in self.masks:
                _clear(parameters[name], self.masks[name])
            _clear(parameters[name], mask)
        self.masks, self.kept = dict(masks), kept
        self.clear()

    def clear(self) -> None:
        """Set pruned weights to 0, and see to it that their gradients become 0."""
        for name, parameter in self._parameters().items():
            if name not in self.masks:
                continue
            _clear(parameter, self.masks[name])
            hooked, handle = self._hooked.get(name, (0, None))
            if hooked != id(parameter):  # new, or replaced
                if handle is not None:
                    handle.remove()
                handle = parameter.register_post_accumulate_grad_hook(_Clearing(self, name))
                self._hooked[name] = id(parameter), handle

    def probe(self, wanted: bool) -> None:
        """Record the gradients of pruned weights from now on, or stop."""
        self.probing, self.probes = wanted, {}

    def count(self, local: Mapping[str, Tensor]) -> int:
        """Return how many connections masks keep, given by their shards or as distributed ones."""
        parameters = self._at
        found = torch.zeros((), dtype=torch.int64, device=self.device)
        for name, mask in local.items():
            mine = (self.part(name, mask) if is_sharded(mask) else mask).sum()
            for dim, placement in enumerate(parameters[name].placements):
                if placement.is_shard():
                    dist.all_reduce(mine, group=parameters[name].device_mesh.get_group(dim))
            found += mine
        return int(found)

    def _parameters(self) -> dict[str, Any]:
        # After a forward pass without a backward pass, some modules hold whole parameters.
        for module in self.model.modules():
            reshard = getattr(module, "reshard", None)
            if reshard is not None and hasattr(module, "unshard"):
                reshard()
        slots = _slots(self.model, self.shapes)
        self._at = {name: slots[name].sources[0] for name in self.shapes}
        return self._at

    def _whole(self, name: str, local: Tensor) -> Any:
        from torch.distributed.tensor import DTensor

        like = self._at[name]
        return DTensor.from_local(
            local, like.device_mesh, like.placements, run_check=False, shape=like.shape,
            stride=like.stride(),
        )  # fmt: skip


class _Clearing:
    """Set the gradients of pruned weights to 0, as a hook of the parameter."""

    def __init__(self, shards: Shards, name: str) -> None:
        self.shards, self.name = shards, name

    def __call__(self, parameter: Any) -> None:
        if parameter.grad is None:
            return
        shards, name = self.shards, self.name
        if shards.probing:  # those of earlier backward passes were set to 0
            fresh = parameter.grad.to_local().detach() * ~shards.masks[name]
            shards.probes[name] = shards.probes[name] + fresh if name in shards.probes else fresh
        _clear(parameter.grad, shards.masks[name])


@torch.no_grad()
def _clear(sharded: Any, mask: Tensor) -> None:
    sharded.to_local().masked_fill_(~mask, 0)


def _slots(model: nn.Module, names: Collection[str]) -> dict[str, Slot]:
    """Return the slots of parameters; a tied one by its first name."""
    found = {}
    for group in tied(named_slots(model), masked=True):
        for name, slot in group:
            if name in names:
                found[name] = slot
                break
    gone = [name for name in names if name not in found]
    if gone:
        raise TrellisError(f"{gone[0]!r} is no longer in the model; trace the model again")
    for name, slot in found.items():
        if slot.displaced and is_sharded(slot.sources[0]):
            raise TrellisError(
                f"{name!r} is sharded and has a mask or another parametrization; remove it (bake "
                "masks) before fully_shard"
            )
    return found


def _check_layout(name: str, parameter: Any, first: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard

    usual = all(type(placement) in (Shard, Replicate) for placement in parameter.placements)
    if not usual or parameter.device_mesh != first.device_mesh:
        raise TrellisError(
            f"expected parameters that fully_shard has put on one mesh, got {name!r} with "
            f"{parameter.placements} on {parameter.device_mesh}; leave out tensor parallelism"
        )


def _group(mesh: Any) -> Any:
    """Return the group of all processes of a mesh."""
    if mesh.ndim == 1:
        return mesh.get_group()
    if mesh.size() != dist.get_world_size():
        raise TrellisError(
            f"expected a mesh of all {dist.get_world_size()} processes, got one of {mesh.size()}; "
            "shard over a mesh of one dimension"
        )
    return dist.group.WORLD


def _packed(mask: Tensor) -> Tensor:
    """Return a mask as bits, eight to a byte.

    >>> _unpacked(_packed(torch.tensor([True, False, True])), 3)
    tensor([ True, False,  True])
    """
    flat = mask.reshape(-1).to(torch.uint8)
    flat = nn.functional.pad(flat, (0, -flat.numel() % 8)).view(-1, 8)
    bits = torch.zeros(len(flat), dtype=torch.uint8, device=flat.device)
    for i in range(8):
        bits |= flat[:, i] << i
    return bits


def _unpacked(bits: Tensor, size: int) -> Tensor:
    flat = torch.empty(len(bits), 8, dtype=torch.bool, device=bits.device)
    for i in range(8):
        flat[:, i] = (bits >> i) & 1
    return flat.view(-1)[:size]
