"""State dicts and averages of masked models.

A masked model has the state dict of the unpruned one: the same keys in the same order, and 0 where
nothing is kept. What a framework saves therefore loads into a new model, with or without Trellis.
The masks themselves are in the metadata of the state dict. `torch.save` keeps the metadata,
safetensors does not.

An average of a model's weights (`torch.optim.swa_utils.AveragedModel`) is a copy of the model that
is trained by nobody. Its masks follow those of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel

from .slots import ORDER, Mask, parametrized

METADATA = "trellis.masks"  # the masks of one module, in the metadata of a state dict
State = TypeVar("State", bound=Mapping[str, Tensor])


def keep_plain_states(module: nn.Module) -> None:
    """Give a masked module the state dict of the unpruned one, and let averages keep its masks.

    torch has made a class for this module alone. The methods go when the class goes, with the last
    parametrization. Hooks would stay in copies, and refer to modules.
    """
    kind: Any = type(module)
    base = kind.__bases__[0]
    if "_load_from_state_dict" not in vars(kind):
        kind.state_dict = _plain_state_dict(base.state_dict)
        kind._load_from_state_dict = _loading_plain(base._load_from_state_dict)
    _watch_averages()


def _plain_state_dict(written: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``state_dict`` for a class of masked modules, by that of the unpruned class."""

    def state_dict(module: nn.Module, *args: Any, **options: Any) -> Any:
        state = written(module, *args, **options)
        prefix = args[1] if len(args) > 1 else options.get("prefix", "")
        own: dict[str, Tensor] = {}  # what this module has written: the last keys
        while state and (last := next(reversed(state))).startswith(prefix):
            own[last] = state.pop(last)
        own = dict(reversed(own.items()))
        about = getattr(state, "_metadata", {})
        masks = {}
        for leaf, chain in _masked(module).items():
            stored, mask = chain.original, cast(Mask, chain[0]).now()
            # In place, because averages are often made by writing into a state dict. What an
            # optimizer did to pruned weights has no effect anyway.
            with torch.no_grad():
                stored.masked_fill_(~mask, 0)
            place = f"{prefix}parametrizations.{leaf}"
            own[prefix + leaf] = own.pop(f"{place}.original")
            for index in range(len(chain)):
                own.pop(f"{place}.{index}.mask")
                about.pop(f"{place}.{index}", None)
            about.pop(place, None)
            masks[leaf] = mask.detach()
        if masks:
            if len(masks) == len(cast(nn.ModuleDict, module.parametrizations)):
                about.pop(f"{prefix}parametrizations", None)
            about.setdefault(prefix[:-1], {})[METADATA] = masks
        for name in (*(prefix + leaf for leaf in module.__dict__.get(ORDER, ())), *list(own)):
            if name in own:
                state[name] = own.pop(name)
        return state

    return state_dict


def _loading_plain(load: Callable[..., None]) -> Callable[..., None]:
    """Return ``_load_from_state_dict`` for a class of masked modules.

    It reads the keys of the unpruned model, and those that torch gives to parametrized tensors.
    Without masks in the metadata, the masks stay.
    """

    def _load_from_state_dict(
        module: nn.Module, state: dict[str, Any], prefix: str, about: dict[str, Any],
        strict: bool, missing: list[str], *lists: list[str],
    ) -> None:  # fmt: skip
        masks = about.get(METADATA, {})
        for leaf, chain in _masked(module).items():
            place = f"{prefix}parametrizations.{leaf}"
            if prefix + leaf in state:
                state[f"{place}.original"] = state.pop(prefix + leaf)
            elif f"{place}.original" not in state:
                missing.append(prefix + leaf)
                state[f"{place}.original"] = chain.original
            for index, mask in enumerate(chain):
                known = masks.get(leaf, cast(Mask, mask).now())
                state.setdefault(f"{place}.{index}.mask", known)
        load(module, state, prefix, about, strict, missing, *lists)

    return _load_from_state_dict


def _masked(module: nn.Module) -> dict[str, parametrize.ParametrizationList]:
    """Return the chains of the module's tensors that have masks and nothing else."""
    if not parametrized(module):
        return {}
    chains = cast(Mapping[str, parametrize.ParametrizationList], module.parametrizations)
    return {
        leaf: chain
        for leaf, chain in chains.items()
        if chain.is_tensor and all(isinstance(transform, Mask) for transform in chain)
    }


@cache
def _watch_averages() -> None:
    # `AveragedModel` copies the model and its masks. It would then average the masks (or the model
    # would be pruned further, and the copy would not).
    def watch(module: nn.Module, _: str, copied: nn.Module | None) -> None:
        if isinstance(module, AveragedModel) and copied is not None:
            for mask in copied.modules():
                if isinstance(mask, Mask):
                    mask.follow(mask.origin)

    register_module_module_registration_hook(watch)
