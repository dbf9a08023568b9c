"""Saliency from data: gathered while a model trains, or measured on a few batches.

| kind                   | saliency of a weight w with gradient g     | after                      |
|------------------------|--------------------------------------------|----------------------------|
| ``taylor``             | w times the mean of g, absolute values     | Molchanov et al. (2019)    |
| ``gradient-magnitude`` | w times the root of that mean              |                            |
| ``movement``           | the sum of -w g                            | Sanh et al. (2020)         |
| ``wanda``              | w times the root mean square of its input  | Sun et al. (2024)          |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import TrellisError
from ..graph.inputs import as_inputs
from ..masks import Mask
from ..masks.slots import Slot, named_slots, tied

KINDS = ("taylor", "gradient-magnitude", "movement")
DECAY = 0.98  # of running means, per backward pass


class Gathered:
    """Running values of gradients, for the saliency of a `Pruner`.

    Args:
        kind: One of ``KINDS``.
        names: The parameters to gather for.
        decay: Decay of the running mean; 1 sums instead.
    """

    def __init__(self, kind: str, names: Iterable[str], decay: float = DECAY) -> None:
        self.kind, self.names, self.decay = kind, tuple(names), decay
        self.values: dict[str, Tensor] = {}
        self.handles: list[Any] = []

    def watch(self, model: nn.Module) -> None:
        """Read gradients of a model from now on, after each backward pass."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        slots = dict(named_slots(model))
        for name in self.names:
            stored = _stored(name, slots[name], self.kind)
            if stored.requires_grad:
                hook = self._hook(name)
                self.handles.append(stored.register_post_accumulate_grad_hook(hook))

    def _hook(self, name: str) -> Callable[[Tensor], None]:
        @torch.no_grad()
        def gather(parameter: Tensor) -> None:
            gradient = parameter.grad
            if gradient is None or not bool(gradient.isfinite().all()):  # a skipped step
                return
            value = gradient.detach().float()
            value = -value * parameter.float() if self.kind == "movement" else value.abs()
            if name not in self.values or self.values[name].shape != value.shape:
                self.values[name] = torch.zeros_like(value)
            mine = self.values[name] = self.values[name].to(value.device)
            if self.kind == "movement" or self.decay == 1:
                mine.add_(value)
            else:
                mine.mul_(self.decay).add_(value, alpha=1 - self.decay)

        return gather

    def saliency(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the saliency of each parameter, for its present weights."""
        found = {}
        for name in self.names:
            if name not in self.values:
                raise TrellisError(
                    f"saliency={self.kind!r} needs gradients, and {name!r} had none yet; train it "
                    f"before the masks are updated, or give ignore={name!r}"
                )
            value = self.values[name].to(weights[name].device)
            if self.kind == "movement":
                found[name] = value
            else:
                part = value if self.kind == "taylor" else value.sqrt()
                found[name] = weights[name].detach().abs().float() * part
        return found


def _stored(name: str, slot: Slot, kind: str) -> Tensor:
    if any(not isinstance(transform, Mask) for transform in slot.transforms):
        raise TrellisError(
            f"saliency={kind!r} reads gradients of stored weights, and {name!r} is computed from "
            f"others; use saliency='magnitude', or give ignore={name!r}"
        )
    return slot.sources[0]


def can_gather(model: nn.Module, names: Iterable[str]) -> bool:
    """Return whether all parameters ``names`` are stored and have a gradient now.

    >>> model = nn.Linear(2, 1)
    >>> can_gather(model, ["weight"])
    False
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> can_gather(model, ["weight"])
    True
    """
    slots = dict(named_slots(model))
    for name in names:
        if any(not isinstance(transform, Mask) for transform in slots[name].transforms):
            return False
        if slots[name].sources[0].grad is None:
            return False
    return True


def saliency(
    model: nn.Module,
    batches: Iterable[Any],
    kind: str = "taylor",
    *,
    loss: Callable[[Any, Any], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Measure the saliency of each weight on batches of data, for ``prune(saliency=...)``.

    The model and its gradients are not changed. It runs in eval mode.

    Args:
        model: The model.
        batches: Batches of data. For "wanda": the inputs, or ``(inputs, targets)``. For the others:
            ``(inputs, targets)``. Inputs are a tensor, a tuple or a dict.
        kind: "taylor": |w| times the mean of |g|, where g is the gradient of a batch.
            "gradient-magnitude": |w| times the root of that mean. "movement": the sum of -w g,
            which may be negative. "wanda": |w| times the root mean square of its input, for linear
            layers and convolutions; |w| for other parameters.
        loss: A function ``(outputs, targets)`` (default: cross entropy for integer targets, mean
            squared error for others).

    Returns:
        A float tensor for each parameter of the model.

    Raises:
        TrellisError: The kind is unknown, or the batches are empty.

    Example:
        >>> import trellis
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> batches = [(torch.randn(16, 4), torch.randint(0, 3, (16,)))]
        >>> worth = saliency(model, batches)
        >>> trellis.prune(model, batches[0][0], sparsity=0.5, saliency=worth).kept
        28
    """
    if kind not in (*KINDS, "wanda"):
        raise TrellisError(
            f"expected a kind of saliency ({', '.join((*KINDS, 'wanda'))}), got {kind!r}"
        )
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        return _wanda(model, batches) if kind == "wanda" else _measured(model, batches, kind, loss)
    finally:
        for module, mode in modes.items():
            module.training = mode


def _measured(
    model: nn.Module,
    batches: Iterable[Any],
    kind: str,
    loss: Callable[[Any, Any], Tensor] | None,
) -> dict[str, Tensor]:
    parameters = {g[0][0]: g[0][1].sources[0] for g in tied(named_slots(model), masked=False)}
    wanted = {n: p for n, p in parameters.items() if p.requires_grad and p.is_floating_point()}
    sums = {name: torch.zeros_like(p, dtype=torch.float32) for name, p in wanted.items()}
    many = 0
    for batch in batches:
        many += 1
        inputs, targets = _pair(batch)
        outputs = _run(model, inputs)
        value = (loss or _default_loss)(outputs, targets)
        found = torch.autograd.grad(value, list(wanted.values()), allow_unused=True)
        for (name, p), gradient in zip(wanted.items(), found, strict=True):
            if gradient is not None:
                g = gradient.detach().float()
                sums[name] += -g * p.detach().float() if kind == "movement" else g.abs()
    _some(many)
    if kind == "movement":
        return sums
    return {
        name: p.detach().abs().float()
        * (sums[name] / many if kind == "taylor" else (sums[name] / many).sqrt())
        for name, p in wanted.items()
    }


def _wanda(model: nn.Module, batches: Iterable[Any]) -> dict[str, Tensor]:
    squares: dict[nn.Module, tuple[Tensor, int]] = {}

    def see(module: nn.Module, given: tuple[Any, ...]) -> None:
        x = given[0].detach().double()
        dim = -1 if isinstance(module, nn.Linear) else x.ndim - module.weight.ndim + 1
        rows = x.movedim(dim, -1).reshape(-1, x.shape[dim])
        before, count = squares.get(module, (torch.zeros((), device=x.device), 0))
        squares[module] = before + rows.square().sum(0), count + len(rows)

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    hooks = [m.register_forward_pre_hook(see) for m in model.modules() if isinstance(m, kinds)]
    many = 0
    try:
        with torch.no_grad():
            for batch in batches:
                many += 1
                _run(model, _pair(batch)[0] if isinstance(batch, tuple | list) else batch)
    finally:
        for hook in hooks:
            hook.remove()
    _some(many)
    found = {}
    for group in tied(named_slots(model), masked=False):
        name, slot = group[0]
        worth = slot.bare().detach().abs().float()
        for _, each in group:
            if each.leaf == "weight" and each.module in squares:
                total, count = squares[each.module]
                rms = (total / count).sqrt().float()
                groups = getattr(each.module, "groups", 1)
                rms = rms.view(groups, 1, -1).expand(-1, len(worth) // groups, -1).flatten(0, 1)
                worth = worth * rms.reshape(rms.shape + (1,) * (worth.ndim - 2))
                break
        found[name] = worth
    return found


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise TrellisError(f"expected a batch (inputs, targets), got {type(batch).__name__}")


def _run(model: nn.Module, inputs: Any) -> Any:
    given = as_inputs(model, inputs)
    return model(*given.args, **given.kwargs)


def _some(many: int) -> None:
    if not many:
        raise TrellisError("expected at least one batch to measure the saliency on, got none")


def _default_loss(outputs: Any, targets: Any) -> Tensor:
    if getattr(outputs, "logits", None) is not None:
        outputs = outputs.logits
    if targets.is_floating_point():
        return F.mse_loss(outputs, targets)
    return F.cross_entropy(outputs, targets)
