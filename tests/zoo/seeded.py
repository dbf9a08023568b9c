"""Examples with random weights that are the same on every call."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import torch
from torch import Tensor, nn

P = ParamSpec("P")
Example = tuple[nn.Module, tuple[Tensor, ...]]


def seeded(build: Callable[P, Example]) -> Callable[P, Example]:
    """Run `build` from a fixed seed, hand its model back in eval mode.

    The global generator is left as it was found.
    """

    @wraps(build)
    def example(*args: P.args, **kwargs: P.kwargs) -> Example:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model, inputs = build(*args, **kwargs)
        return model.eval(), inputs

    return example


def settle(model: nn.Module) -> nn.Module:
    """Give norm layers the scales, shifts and statistics of a trained model, not ones and zeros."""
    for module in model.modules():
        for name in ("weight", "bias", "running_mean", "running_var"):
            value = getattr(module, name, None)
            if "Norm" not in type(module).__name__ or not isinstance(value, Tensor):
                continue
            with torch.no_grad():
                value.add_(0.3 * torch.rand_like(value))
    return model
