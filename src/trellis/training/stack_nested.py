"""Train nested networks together: one stack of shared weights, several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .batches import Dropout, Feed, stream
from .recipe import Recipe
from .stacks import Forward, Weights
from .trainer import SpeedRule, Training, autocast


@dataclass(frozen=True, eq=False)
class Size:
    """One of the networks.

    Args:
        masks: What it keeps, in the shapes that ``forward`` reads, (1, …) each.
        forward: The function of the network, such as that of its used parts alone.
        part: Returns the weights that ``forward`` reads, of the shared ones; differentiable.
        stop: The number of the network asked for that comes before, or is this one.
        share: How far it is from there to the next one asked for.
        dropout: Drops hidden units, if any.
    """

    masks: Mapping[str, Tensor]
    forward: Forward
    part: Callable[[Weights], Weights]
    stop: int
    share: float
    dropout: Dropout | None = None

    def weights(self, shared: Weights) -> Weights:
        """Return the weights of this network, (1, …) each.

        Parameters without a mask have a value for each network asked for; between two, they are
        interpolated.
        """
        found: Weights = {}
        for name, weight in self.part(shared).items():
            if name in self.masks:
                found[name] = weight * self.masks[name]
            else:
                value = weight[self.stop]
                if self.share:
                    value = torch.lerp(value, weight[self.stop + 1], self.share)
                found[name] = value[None]
        return found if self.dropout is None else self.dropout.applied(found)


_ASKED = 0.5  # share of the steps whose third network is one that was asked for


class NestedTraining(Training):
    """Train networks of several sizes that share their weights.

    Each step trains the largest, the smallest and one between. These two also learn from the
    outputs of the largest.

    Args:
        sizes: The networks, largest first.
        weights: The shared weights, (1, …) each. Parameters without a mask have one value for each
            network asked for, (asked, …).
        masks: What the largest network keeps, (1, …) each.
        x: Recordings (recordings, …).
        y: Labels (recordings,).
        recipe: The settings, those for fine-tuning.
        seed: The seed.
        feed: Makes the inputs of each step.
        precision: As for `Training`.
        taught: Share of the loss of the smaller two that comes from the largest.
        temperature: Of both softmaxes.
    """

    def __init__(
        self,
        sizes: Sequence[Size],
        weights: Weights,
        masks: Mapping[str, Tensor],
        x: Tensor,
        y: Tensor,
        recipe: Recipe,
        *,
        seed: int,
        feed: Feed | None,
        precision: str,
        taught: float,
        temperature: float,
    ) -> None:
        connections = {name: weights[name] for name in masks}
        super().__init__(
            sizes[0].forward, connections | weights, x, y, recipe, seeds=[seed], masks=masks,
            tune=True, precision=precision, feed=feed,
        )  # fmt: skip
        self.sizes, self.taught, self.temperature = sizes, taught, temperature
        self.drawn: list[Size] = []
        # One for each value of a parameter without a mask.
        asked = max(len(weight) for weight in weights.values())
        self.rates = torch.full((asked,), self.first_rate, device=x.device)
        if self.rule is not None:
            self.rule = SpeedRule(self.rates, self.first_rate)

    def once(self, step: int) -> None:
        """Do a step. It is not captured as a CUDA graph, because each step trains other sizes."""
        self.drawn = [self.sizes[0], *self._between(step), self.sizes[-1]]
        for size in self.drawn:
            if size.dropout is not None:
                size.dropout.draw(step)
        self._step()

    def _between(self, step: int) -> list[Size]:
        """Return a network between the largest and the smallest, by the seed and the step."""
        between = self.sizes[1:-1]
        if not between:
            return []
        generator = torch.Generator().manual_seed(stream(self.seeds[0], step))
        asked = [size for size in between if not size.share]
        if asked and float(torch.rand((), generator=generator)) < _ASKED:
            between = asked
        return [between[int(torch.randint(len(between), (), generator=generator))]]

    def _step(self) -> None:
        leaves = [weight.detach().requires_grad_() for weight in self.weights.values()]
        shared = dict(zip(self.weights, leaves, strict=True))
        targets = self.targets.expand(1, -1)
        total: Tensor | None = None
        wanted: Tensor | None = None
        for size in self.drawn:
            with autocast(self.precision, self.inputs.device):
                logits = size.forward(size.weights(shared), self.inputs)  # 1, batch, classes
            wide = logits.to(self.loss.dtype)
            loss = own = F.cross_entropy(wide[0], self.targets, label_smoothing=self.smoothing)
            if wanted is None:
                wanted = F.softmax(wide.detach() / self.temperature, dim=2)
            else:
                said = F.log_softmax(wide / self.temperature, dim=2)
                divergence = F.kl_div(said, wanted, reduction="none").sum(2).mean()
                loss = (1 - self.taught) * own + self.taught * divergence * self.temperature**2
            total = loss if total is None else total + loss
        assert total is not None
        self.adam.step(torch.autograd.grad(total, leaves), self.rates)
        with torch.no_grad():  # of the smallest
            self.loss.copy_(own)
            self.hits.copy_((wide.argmax(2) == targets).to(self.hits.dtype).mean(1))
            if self.rule is not None:
                self.rule.step(self.loss.to(self.rates.dtype))
