"""Distributed training: all processes must have the same masks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import TrellisError


def unwrapped(model: nn.Module) -> tuple[nn.Module, dist.ProcessGroup | None]:
    """Return the model without its wrappers, and the process group of the wrapper.

    Wrappers are those of `torch.compile`, `DataParallel` and `DistributedDataParallel`.

    >>> layer = nn.Linear(2, 2)
    >>> unwrapped(torch.compile(layer, backend="eager"))[0] is layer
    True
    """
    group: dist.ProcessGroup | None = None
    while True:
        inner: object = getattr(model, "_orig_mod", None)  # where torch.compile keeps it
        if isinstance(model, DistributedDataParallel):
            group = model.process_group
            inner = model.module
        elif isinstance(model, nn.DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model, group
        model = inner


def check_group(group: object, *, alone: bool) -> None:
    """Raise if ``group`` is not a process group, or if it is None but needed.

    It is needed if there are several processes and the selection is not the same in each
    (``alone`` is False).
    """
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    if group is not None and not (dist.is_available() and isinstance(group, dist.ProcessGroup)):
        raise TrellisError(
            f"expected a process group, got group={group!r:.60}; give one such as "
            "torch.distributed.group.WORLD"
        )
    if group is None and several and not alone:
        raise TrellisError(
            f"regrow needs gradients of all processes, and there are {dist.get_world_size()}; give "
            "the model in its DistributedDataParallel, or group=: torch.distributed.group.WORLD if "
            "all processes train it, torch.distributed.new_subgroups(1)[0] if each trains its own"
        )


def summed(
    gradients: Mapping[str, Tensor], like: Mapping[str, Tensor], group: dist.ProcessGroup | None
) -> Mapping[str, Tensor]:
    """Return the gradients summed over all processes, in the shapes of ``like``.

    A process without a gradient adds zeros. The sums rank connections like the means.
    """
    if group is None:
        return gradients
    whole = {
        name: gradients[name].float().clone()
        if name in gradients
        else torch.zeros(tensor.shape, device=tensor.device)
        for name, tensor in like.items()
    }
    for tensor in whole.values():
        dist.all_reduce(tensor, group=group)
    return whole


def agreed(masks: Mapping[str, Tensor], group: dist.ProcessGroup | None) -> Mapping[str, Tensor]:
    """Return the masks of the first process, in all processes.

    Masks computed from the same weights may differ between devices that round differently.
    """
    if group is None:
        return masks
    first = dist.get_global_rank(group, 0)
    flat = torch.cat([mask.reshape(-1).to(torch.uint8) for mask in masks.values()])
    dist.broadcast(flat, src=first, group=group)
    parts = flat.bool().split([mask.numel() for mask in masks.values()])
    return {
        name: part.reshape(mask.shape)
        for (name, mask), part in zip(masks.items(), parts, strict=True)
    }
