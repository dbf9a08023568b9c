"""Training written down as a person would: one network, torch's own optimizer, scalars."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trellis.training import Recipe
from trellis.training.batches import Noise, batch_indices
from trellis.training.trainer import cosine


def rounded(rate: float) -> float:
    """Rates are kept in single precision."""
    return float(torch.tensor(rate, dtype=torch.float32))


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    epochs: int,
    *,
    seed: int,
    masks: Mapping[str, Tensor] | None = None,
    tune: bool = False,
) -> None:
    parameters = dict(model.named_parameters())
    first = recipe.tune_rate if tune else recipe.rate
    optimizer = torch.optim.AdamW(
        parameters.values(), first, betas=(recipe.momentum, 0.999), weight_decay=recipe.decay
    )
    with torch.no_grad():
        for name, mask in (masks or {}).items():
            parameters[name].masked_fill_(~mask, 0)
    noise = Noise([seed], recipe.noise, x.device)
    all_epochs = recipe.tune_epochs if tune else recipe.epochs
    smoothing = recipe.smoothing
    if tune and recipe.tune_smoothing is not None:
        smoothing = recipe.tune_smoothing
    rate, step, losses = rounded(first), 0, []
    for epoch in range(epochs):
        batches = batch_indices(len(x), recipe.batch, epoch)
        for chosen in batches:
            if recipe.schedule == "cosine":
                rate = rounded(cosine(first, step, all_epochs * len(batches)))
            optimizer.param_groups[0]["lr"] = rate
            inputs = torch.empty(1, *x[chosen].shape, dtype=x.dtype)
            noise.onto(inputs, x[chosen], step)
            loss = F.cross_entropy(model(inputs[0]), y[chosen], label_smoothing=smoothing)
            optimizer.zero_grad()
            loss.backward()
            for name, mask in (masks or {}).items():
                grad = parameters[name].grad
                assert grad is not None
                grad.masked_fill_(~mask, 0)
            optimizer.step()
            step += 1
            losses.append(rounded(loss.item()))
            if recipe.schedule == "speed":
                rate = next_rate(rate, losses, first)


def next_rate(rate: float, losses: list[float], first: float) -> float:
    """The speed rule in words: see the paper's section on training."""
    if len(losses) >= 3:
        now, before = abs(losses[-1] - losses[-2]), abs(losses[-2] - losses[-3])
        rate *= rounded(0.99 if rounded(now) > rounded(before) else 1 / 0.99)
    return rounded(min(max(rounded(rate), 0.01 * first), 10 * first))
