"""A second device on any machine: tensors that lie in memory and say that they lie elsewhere.

Between `Elsewhere()` and its end, whatever is made on or moved to ``DEVICE`` becomes a tensor of
that kind. It computes what the CPU would, and refuses what a GPU would: to be mixed with tensors
of the CPU, but for single numbers, and places to look at.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")  # its tensors have no values of their own, so nobody else has any
CROSSES = {"aten::copy_", "aten::_to_copy"}


class Distant(Tensor):
    """What looks like ``DEVICE`` from outside; ``near`` holds the values."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(
            cls, near.shape, near.stride(), near.storage_offset(), dtype=near.dtype, device=DEVICE
        )

    def __init__(self, near: Tensor) -> None:
        super().__init__()
        self.near = near

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Distant({self.near})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return compute(func, args, kwargs or {})


class Elsewhere(TorchDispatchMode):
    """While it is entered there is another device.

    >>> with Elsewhere():
    ...     there = torch.ones(2, device=DEVICE)
    ...     (there + there).cpu()
    tensor([2., 2.])
    >>> with Elsewhere():
    ...     there + torch.ones(2)
    Traceback (most recent call last):
    RuntimeError: aten::add: expected all tensors to be on the same device
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operation gives, on the device where it belongs."""
    name = func._schema.name
    far = any(isinstance(x, Distant) for x in tree_leaves((args, kwargs)))
    if far and name not in CROSSES:
        # Places on the CPU may be looked up elsewhere, and not the other way round.
        parts = (args[:1], args[2:]) if name.startswith("aten::index") else (args, kwargs)
        mixed = [x for x in tree_leaves(parts) if isinstance(x, Tensor) and x.ndim > 0]
        if any(not isinstance(x, Distant) for x in mixed):
            raise RuntimeError(f"{name}: expected all tensors to be on the same device")
    there, named = far, dict(kwargs)
    if named.get("device") is not None:
        there = torch.device(named["device"]) == DEVICE
        named["device"] = torch.device("cpu")
    elif name == "aten::copy_":  # the target stays where it is
        there = isinstance(args[0], Distant)
    near = func(*tree_map(_near, args), **tree_map(_near, named))
    found = tree_map(lambda x: Distant(x) if isinstance(x, Tensor) and there else x, near)
    return return_and_correct_aliasing(func, args, kwargs, found) if there and far else found


def _near(value: Any) -> Any:
    return value.near if isinstance(value, Distant) else value
