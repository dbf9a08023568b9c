"""What a GPU would be told to do, and asked for, counted on any device.

A step that computes is a launch; so is one that copies or fills. What only looks at memory in
another shape is none. A question is what the program waits for: a number, or how many there are.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LOOKS = {
    "view", "_unsafe_view", "as_strided", "expand", "permute", "slice", "select", "unsqueeze",
    "squeeze", "t", "transpose", "detach", "alias", "empty", "empty_like", "empty_strided",
    "new_empty", "lift_fresh", "split", "split_with_sizes", "unbind", "_reshape_alias",
}  # fmt: skip
ASKS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "is_nonzero"}


class Launches(TorchDispatchMode):
    """Counts, while it is entered, by name of the operation.

    >>> with Launches() as found:
    ...     _ = torch.ones(4).view(2, 2).sum().item()
    >>> dict(found.steps), dict(found.questions)
    ({'ones': 1, 'sum': 1, '_local_scalar_dense': 1}, {'_local_scalar_dense': 1})
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: Counter[str] = Counter()
        self.questions: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name not in LOOKS:
            self.steps[name] += 1
        if name in ASKS or (name.startswith("index") and _by_mask(args)):
            self.questions[name] += 1
        return func(*args, **(kwargs or {}))


def _by_mask(args: tuple[Any, ...]) -> bool:
    """Whether an index is a mask: then its size is not known before it is looked at."""
    places = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else ()
    return any(isinstance(place, torch.Tensor) and place.dtype == torch.bool for place in places)
