"""The pruning methods that bench/images.py compares: Trellis's own and its rivals.

A method is a function that starts on a `Training` and returns what to do before each step. All of
them train for the same number of steps. Rivals follow their papers:

- ``erk``: a random mask with Erdős-Rényi-kernel densities, fixed (Evci et al., 1911.11134).
- ``gmp``, ``gmp-layer``: gradual magnitude pruning (Zhu & Gupta, 1710.01878), one ranking for all
  layers or the same share of each.
- ``lamp``: the same schedule by layer-adaptive magnitudes (Lee et al., 2010.07611).
- ``snip`` (1810.02340), ``grasp`` (2002.07376), ``synflow`` (2006.05467): masks at initialisation.
- ``rigl``: random ERK, then regrowth by gradients (Evci et al., 1911.11134), 30 % at first.
- ``acdc``: alternating dense and sparse phases (Peste et al., 2106.12379).

The last two return weights to channels that lost all inputs. Batch norm divides by the deviation of
such a channel, which is 0, so the first gradient of these weights is hundreds of times too large.
One step makes them the largest of all, and magnitudes then keep them for ever. Both methods
therefore clip gradients, and ``rigl`` grows no weight into a channel without inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from image_models import network
from image_training import Training
from torch import Tensor, nn
from torch.nn import functional as F

import trellis

BeforeStep = Callable[[int], None]
UPDATES_PER_EPOCH = 2
BEGIN, END = 0.1, 0.7  # of all steps: when gradual pruning starts and reaches its target


def keep_all(training: Training, sparsity: float, seed: int) -> BeforeStep:
    """The dense network."""

    def before(step: int) -> None:
        return

    return before


def gradual(
    training: Training,
    sparsity: float,
    seed: int,
    weigh: str = "",
    **options: Any,
) -> BeforeStep:
    """Gradual pruning by `trellis.Pruner`, on a cubic schedule."""
    steps = update_steps(training)
    if weigh:
        training.measures = True
        options["saliency"] = partial(weighed, training, weigh)
    pruner = trellis.Pruner(
        training.loaded(),
        sparsity=sparsity,
        schedule=trellis.Schedule("cubic", end=len(steps), every=1),
        seed=seed,
        **options,
    )

    def before(step: int) -> None:
        if step in steps:
            training.loaded()
            pruner.step()
            training.set_masks(pruner.masks)

    return before


def update_steps(training: Training) -> range:
    """Return the steps before which gradual methods update their masks."""
    first, last = int(BEGIN * training.steps), int(END * training.steps)
    every = max(1, training.steps_per_epoch // UPDATES_PER_EPOCH)
    return range(first + every, last + 1, every)


def weighed(training: Training, kind: str, name: str, parameter: Tensor) -> Tensor:
    """Return a saliency that the gradient has a part in."""
    worth = training.worth[name].contiguous()
    return parameter.detach().abs() * (worth if kind == "taylor" else worth.sqrt())


def static(training: Training, sparsity: float, seed: int, **options: Any) -> BeforeStep:
    """A mask that `trellis.prune` makes at initialisation."""
    masks = trellis.prune(
        training.loaded(), sparsity=sparsity, seed=seed, consistent=False, **options
    )

    def before(step: int) -> None:
        if step == 0:
            training.set_masks(masks)

    return before


def _largest(scores: Mapping[str, Tensor], many: int) -> dict[str, Tensor]:
    """Return masks of the ``many`` largest scores over all layers."""
    flat = torch.cat([score.reshape(-1) for score in scores.values()])
    mask = torch.zeros(flat.numel(), dtype=torch.bool, device=flat.device)
    mask[flat.topk(many).indices] = True
    parts = mask.split([score.numel() for score in scores.values()])
    return {n: part.reshape(scores[n].shape) for n, part in zip(scores, parts, strict=True)}


def snip(training: Training, sparsity: float, seed: int) -> BeforeStep:
    """Keep the largest |weight x gradient| of the untrained network, on one batch."""
    many = int(training.net.total * (1 - sparsity))

    def before(step: int) -> None:
        if step == 0:
            found = training.gradients()
            scores = {n: (training.parameters[n] * g).abs().detach() for n, g in found.items()}
            training.set_masks(_largest(scores, many))

    return before


def grasp(training: Training, sparsity: float, seed: int) -> BeforeStep:
    """Keep what lowers the norm of the gradient least: -weight x (Hessian x gradient)."""
    many = int(training.net.total * (1 - sparsity))

    def before(step: int) -> None:
        if step == 0:
            held = [training.parameters[name] for name in training.names]
            logits = training.model(training.x.float()) / 200  # the paper's temperature
            loss = F.cross_entropy(logits, training.y)
            first = torch.autograd.grad(loss, held, create_graph=True)
            inner = sum((g * g.detach()).sum() for g in first)
            assert isinstance(inner, Tensor)
            second = torch.autograd.grad(inner, held)
            scores = {
                name: -(p.detach() * h)
                for name, p, h in zip(training.names, held, second, strict=True)
            }
            training.set_masks(_largest({n: -s for n, s in scores.items()}, many))

    return before


def rigl(training: Training, sparsity: float, seed: int, share: float = 0.3) -> BeforeStep:
    """Drop the smallest weights of each layer and grow those with the largest gradient."""
    start = static(training, sparsity, seed, method="random", scope="erk")
    training.clips = True
    last = int(0.75 * training.steps)
    every = 100  # as published

    def before(step: int) -> None:
        start(step)
        if step == 0 or step >= last or step % every:
            return
        fraction = share / 2 * (1 + math.cos(math.pi * step / last))
        gradients = training.gradients()
        masks = {}
        for name in training.names:
            mask = training.masks[name].reshape(-1) > 0
            kept = int(mask.sum())
            many = min(int(fraction * kept), mask.numel() - kept)
            weight = training.parameters[name].detach().reshape(-1).abs()
            fed = training.masks[name].flatten(1).any(1)  # channels with inputs
            gradient = (gradients[name].flatten(1).abs() * fed[:, None]).reshape(-1)
            staying = torch.where(mask, weight, -1.0).topk(kept - many).indices
            after = torch.zeros_like(mask)
            after[staying] = True
            grown = torch.where(after, -1.0, gradient).topk(many).indices
            after[grown] = True
            masks[name] = after.reshape(training.masks[name].shape)
        training.set_masks(masks)

    return before


def acdc(training: Training, sparsity: float, seed: int) -> BeforeStep:
    """A dense start, then sparse and dense phases in turn; the last quarter is sparse."""
    training.clips = True
    many = int(training.net.total * (1 - sparsity))
    start, last = int(0.1 * training.steps), int(0.75 * training.steps)
    phase = max(1, (last - start) // 13)  # seven sparse and six dense phases

    def before(step: int) -> None:
        if step < start or step > last or (step - start) % phase:
            return
        if (step - start) // phase % 2 == 0:
            training.set_masks(
                _largest({n: training.parameters[n].detach().abs() for n in training.names}, many)
            )
        elif step + phase <= last:
            training.set_masks({n: torch.ones_like(training.masks[n]) for n in training.names})
            training.forget()

    return before


class Batches:
    """The augmented batches of a `Training`, in a new order at every epoch."""

    def __init__(self, training: Training) -> None:
        self.training = training

    def __len__(self) -> int:
        return self.training.steps_per_epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        size = self.training.settings.batch
        self.training.generator.manual_seed(int(torch.randint(2**62, ())))
        pixels, labels = self.training.augmented()
        for index in range(len(self)):
            part = slice(index * size, (index + 1) * size)
            yield pixels[part].float(), labels[part]


def shrunk(training: Training, sparsity: float, seed: int, **options: Any) -> nn.Module:
    """`trellis.shrink` with its defaults: the same optimizer and steps, its own learning rate."""
    settings = training.settings

    def optimizer(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        if settings.adam:
            return torch.optim.AdamW(groups, lr=settings.rate, weight_decay=settings.decay)
        return torch.optim.SGD(
            groups, lr=settings.rate, momentum=0.9, nesterov=True, weight_decay=settings.decay
        )

    torch.manual_seed(seed)
    model = network(settings.network)
    found = trellis.shrink(
        model, Batches(training), sparsity=sparsity, steps=training.steps, seed=seed,
        optimizer=optimizer, device=training.device, precision="bf16", channels_last=True,
        trained=False, progress=False, **options,
    )  # fmt: skip
    return found.model


Start = Callable[[Training, float, int], BeforeStep]
METHODS: dict[str, Start] = {
    "dense": keep_all,
    "erk": partial(static, method="random", scope="erk"),
    "snip": snip,
    "grasp": grasp,
    "synflow": partial(static, method="synflow"),
    "rigl": rigl,
    "acdc": acdc,
    "gmp": partial(gradual, method="magnitude", consistent=False),
    "gmp-layer": partial(gradual, method="magnitude", scope="layer", consistent=False),
    "lamp": partial(gradual, method="magnitude", scope="lamp", consistent=False),
    # Trellis: the same schedule, every kept connection live, every output and layer reached.
    "closed": partial(gradual, method="magnitude", consistent=True),
    "closed-lamp": partial(gradual, method="magnitude", scope="lamp", consistent=True),
    "closed-taylor": partial(gradual, method="magnitude", consistent=True, weigh="taylor"),
    "closed-root": partial(gradual, method="magnitude", consistent=True, weigh="root"),
    "viterbi": partial(gradual, method="viterbi"),
}

# These train by themselves: the whole of `trellis.shrink`, and plain magnitude inside it.
WHOLE: dict[str, Callable[[Training, float, int], nn.Module]] = {
    "shrink": shrunk,
    "gmp-shrink": partial(shrunk, method="magnitude", saliency="magnitude", consistent=False),
}
