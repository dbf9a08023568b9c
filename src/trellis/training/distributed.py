"""Processes that train one model together, and must agree on what is kept."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import TrellisError


def unwrapped(model: nn.Module) -> tuple[nn.Module, dist.ProcessGroup | None]:
    """The model inside `torch.compile`, `DataParallel` and `DistributedDataParallel`, and the
    group of processes that the last one names.

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
    """Refuse what is no group of processes; and none at all, if there are several processes and
    each cannot choose ``alone`` what the others choose."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    if group is not None and not (dist.is_available() and isinstance(group, dist.ProcessGroup)):
        raise TrellisError(
            f"group={group!r:.60} is no group of processes: give one such as "
            "torch.distributed.group.WORLD"
        )
    if group is None and several and not alone:
        raise TrellisError(
            f"one of {dist.get_world_size()} processes: connections come back by their gradients, "
            "and every process has its own. Give the model as DistributedDataParallel wraps it, or "
            "group=, the processes that train it together (torch.distributed.group.WORLD; "
            "torch.distributed.new_subgroups(1)[0] where each trains its own)"
        )


def summed(
    gradients: Mapping[str, Tensor], like: Mapping[str, Tensor], group: dist.ProcessGroup | None
) -> Mapping[str, Tensor]:
    """Gradients added up over all processes, in the shapes of ``like``: zeros where a process
    has none. Their order is that of the means."""
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
    """The first process's masks, on all of them.

    All of them compute the same masks from the same weights, unless they run on devices that
    round differently; then this is what makes them agree.
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
