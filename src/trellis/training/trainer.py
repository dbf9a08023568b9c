"""The training loop: a stack of networks, one epoch after another."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import TrellisError
from .batches import Dropout, Feed, Noise, batch_count, batch_indices
from .distillation import Teachers
from .recipe import Recipe
from .stack_pruning import Diverged, GradualPruning
from .stacks import Adam, Forward, Weights

# Learning-rate schedules, with one rate for each network of a stack.


_FACTOR = 0.99
_LEAST, _MOST = 0.01, 10.0  # of the first rate


def cosine(first: float, step: int, steps: int) -> float:
    """Return the rate at ``step`` of a cosine from ``first`` down to 0 at ``steps``.

    >>> [round(cosine(1.0, step, 4), 2) for step in range(5)]
    [1.0, 0.85, 0.5, 0.15, 0.0]
    """
    return first * 0.5 * (1 + math.cos(math.pi * step / steps))


class SpeedRule:
    """The paper's learning-rate rule.

    If the speed |loss − last loss| of a network grew, its rate is multiplied by 0.99, else divided
    by it. All tensors are (networks,) and change in place, so that a CUDA graph can be captured.

    >>> rates = torch.tensor([1.0])
    >>> rule = SpeedRule(rates, first=1.0)
    >>> for loss in (4.0, 3.0, 1.0):    # speeds: none yet, 1, 2
    ...     rule.step(torch.tensor([loss]))
    >>> round(rates.item(), 4)
    0.99
    """

    def __init__(self, rates: Tensor, first: float) -> None:
        self.rates = rates
        self.first = first
        self.loss = torch.full_like(rates, math.nan)
        self.speed = torch.full_like(rates, math.nan)

    def step(self, loss: Tensor) -> None:
        """Update the rates by the losses of a step, (networks,)."""
        speed = (loss - self.loss).abs()
        known = ~(self.speed.isnan() | speed.isnan())
        grew = torch.where(speed > self.speed, _FACTOR, 1 / _FACTOR)
        self.rates.mul_(torch.where(known, grew, 1.0).to(self.rates.dtype))
        self.rates.clamp_(_LEAST * self.first, _MOST * self.first)
        self.speed.copy_(speed)
        self.loss.copy_(loss)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint stores."""
        return {"loss": self.loss, "speed": self.speed}


class CudaGraph:
    """Run a training step, on a GPU as a captured CUDA graph.

    A small network's step is hundreds of kernel launches that take longer to issue than to run; a
    captured graph issues them once. The step is passed to each call and not stored, because the
    owner of the step also owns this object: a reference cycle would keep the graph alive.

    Args:
        tensors: Everything that a step writes. Capturing needs warm-up steps, after which these
            tensors are restored.
        device: The device of the step.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        self.tensors, self.device = tensors, device
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, step: Callable[[], None]) -> None:
        if self.device.type != "cuda":
            step()
            return
        with torch.cuda.device(self.device):  # graphs and kernels go to the current one
            if self.graph is None:
                self.graph = self._captured(step)
            self.graph.replay()

    def _captured(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph:
        before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with no_garbage_collection(), torch.cuda.graph(graph):
            step()
        for name, tensor in self.tensors.items():
            tensor.copy_(before[name])
        return graph


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector: freeing a CUDA graph breaks the capture of another one.

    >>> with no_garbage_collection():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


PRECISIONS = ("fp32", "tf32", "bf16")
TOGETHER = 1200  # recordings per evaluation batch, over all networks; limits memory


class Training:
    """Train a stack of networks of one architecture on the same recordings.

    Each network's result is the same, to rounding, whichever other networks are in the stack.
    Batches depend on the epoch; noise and dropout depend on the network's seed and the step.

    Args:
        forward: The function of the stack (`forward_of`).
        weights: The stack (`stack`), (networks, …) each; trained in place.
        x: Recordings (recordings, …), on the device of the weights.
        y: Labels (recordings,).
        recipe: Epochs, learning rates, batch size and so on.
        seeds: One seed per network.
        masks: Masks, (networks, …) each. Removed weights are set to 0 and stay 0.
        tune: Whether to use the recipe's settings for fine-tuning.
        precision: "fp32", "tf32" (GPUs only) or "bf16".
        teachers: Networks to learn from beside the labels (distillation).
        feed: Makes the inputs of each step, in place of the recipe's noise.
        dropout: Drops hidden units at each step.
        pruning: Prunes gradually, with the recipe's settings for pruning. Masks are then where
            pruning begins (default: all connections).

    Raises:
        TrellisError: Arguments do not fit together.

    Example:
        >>> x, y = torch.eye(4), torch.arange(4)
        >>> model = torch.nn.Linear(4, 4)
        >>> from trellis.training import forward_of, recipe_named, stack
        >>> weights = stack([model])
        >>> recipe = recipe_named("default", epochs=50, rate=0.1)
        >>> training = Training(forward_of(model), weights, x, y, recipe, seeds=[0])
        >>> while not training.done:
        ...     training.epoch()
        >>> accuracies(forward_of(model), weights, x, y)
        tensor([1.])
    """

    def __init__(
        self,
        forward: Forward,
        weights: Weights,
        x: Tensor,
        y: Tensor,
        recipe: Recipe,
        *,
        seeds: Sequence[int],
        masks: Mapping[str, Tensor] | None = None,
        tune: bool = False,
        precision: str = "fp32",
        teachers: Teachers | None = None,
        feed: Feed | None = None,
        dropout: Dropout | None = None,
        pruning: GradualPruning | None = None,
    ) -> None:
        sample = next(iter(weights.values()))
        if len(sample) != len(seeds):
            raise TrellisError(
                f"expected one seed per network, got {len(seeds)} seeds for {len(sample)} networks"
            )
        if len(x) != len(y) or len(x) == 0:
            raise TrellisError(
                f"expected one label per recording, got {len(y)} labels for {len(x)} recordings"
            )
        if teachers is not None and teachers.own and teachers.count != len(seeds):
            raise TrellisError(
                f"expected one teacher per network, got {teachers.count} teachers for {len(seeds)} "
                "networks; give one each, or own=False"
            )
        if precision not in PRECISIONS:
            raise TrellisError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
        if precision == "tf32" and sample.device.type != "cuda":
            raise TrellisError("precision='tf32' needs a GPU; give 'fp32' or 'bf16' on the CPU")
        self.forward, self.weights, self.recipe = forward, weights, recipe
        self.x, self.y, self.precision = x.to(sample.dtype), y, precision
        self.pruning, self.dropout = pruning, dropout
        if pruning is not None:
            if tune or len(pruning.targets) != len(seeds):
                raise TrellisError(
                    f"expected one pruning target per network and tune=False, got "
                    f"{len(pruning.targets)} targets for {len(seeds)} networks and tune={tune!r}; "
                    "fine-tune after pruning, in another Training"
                )
            self.epochs, self.first_rate = recipe.prune_epochs, recipe.prune_rate
            begun = pruning.whole(weights) if masks is None else masks
            masks = {name: mask.clone() for name, mask in begun.items()}
        elif tune:
            self.epochs, self.first_rate = recipe.tune_epochs, recipe.tune_rate
        else:
            self.epochs, self.first_rate = recipe.epochs, recipe.rate
        self.smoothing = recipe.smoothing
        if tune and recipe.tune_smoothing is not None:
            self.smoothing = recipe.tune_smoothing
        self.epochs_done = 0
        self.masks = {n: m.to(sample.device, torch.bool) for n, m in (masks or {}).items()}
        for name, mask in self.masks.items():
            weights[name].mul_(mask)

        count = len(seeds)
        self.batches = batch_count(len(x), recipe.batch)
        size = len(x) // self.batches
        self.seeds, self.teachers = list(seeds), teachers
        self.feed = Noise(seeds, recipe.noise, sample.device) if feed is None else feed
        self.inputs = torch.empty(count, size, *x.shape[1:], dtype=self.x.dtype, device=x.device)
        self.targets = torch.empty(size, dtype=y.dtype, device=y.device)
        self.loss = torch.zeros(count, device=sample.device, dtype=sample.dtype)
        self.hits = torch.zeros(count, device=sample.device, dtype=sample.dtype)
        self.rates = torch.full((count,), self.first_rate, device=sample.device)
        self.rule = SpeedRule(self.rates, self.first_rate) if recipe.schedule == "speed" else None
        self.adam = Adam(weights, self.masks, recipe.momentum, recipe.decay)
        self.graph = CudaGraph(self.tensors(), sample.device)

    @property
    def done(self) -> bool:
        """Whether all epochs are done."""
        return self.epochs_done >= self.epochs

    def epoch(self) -> None:
        """Train on every recording once, but for the remainder that fills no batch."""
        order = batch_indices(len(self.x), self.recipe.batch, self.epochs_done)
        for i, chosen in enumerate(order):
            step = self.epochs_done * self.batches + i
            if self.rule is None and self.pruning is None:
                self.rates.fill_(cosine(self.first_rate, step, self.epochs * self.batches))
            if self.batches == 1:
                batch, targets = self.x, self.y
            else:
                chosen = chosen.to(self.x.device)
                batch, targets = self.x[chosen], self.y[chosen]
            self.feed.onto(self.inputs, batch, step)
            self.targets.copy_(targets)
            if self.dropout is not None:
                self.dropout.draw(step)
            with arithmetic(self.precision):
                self.once(step)
        self.epochs_done += 1
        if self.pruning is not None:
            self._prune(self.pruning)

    def once(self, step: int) -> None:
        """Do a step; its inputs and targets are in place."""
        self.graph(self._step)

    @torch.no_grad()
    def _prune(self, pruning: GradualPruning) -> None:
        """Update the masks if that is due; in place, because a captured step reads them."""
        masks = pruning.renewed(self.epochs_done, self.weights, self.adam.squares, self.masks)
        for name, mask in (masks or {}).items():
            self.masks[name].copy_(mask)
            for tensor in (self.weights[name], self.adam.means[name], self.adam.squares[name]):
                tensor.mul_(mask)

    def _step(self) -> None:
        leaves = [w.detach().requires_grad_() for w in self.weights.values()]
        weights = dict(zip(self.weights, leaves, strict=True))
        if self.dropout is not None:
            weights = self.dropout.applied(weights)
        with autocast(self.precision, self.inputs.device):
            logits = self.forward(weights, self.inputs)  # networks, batch, classes
        wide = logits.to(self.loss.dtype)
        targets = self.targets.expand(len(wide), -1)
        losses = F.cross_entropy(
            wide.transpose(1, 2), targets, reduction="none", label_smoothing=self.smoothing
        ).mean(1)
        if self.teachers is not None:
            with autocast(self.precision, self.inputs.device):
                taught = self.teachers.losses(wide, self.inputs)
            losses = (1 - self.teachers.weight) * losses + self.teachers.weight * taught
        gradients = torch.autograd.grad(losses.sum(), leaves)
        self.adam.step(gradients, self.rates)
        with torch.no_grad():
            self.loss.copy_(losses)
            self.hits.copy_((wide.argmax(2) == targets).to(self.hits.dtype).mean(1))
            if self.rule is not None:
                self.rule.step(losses.detach().to(self.rates.dtype))

    def check_finite(self) -> None:
        """Raise `Diverged` if a loss or a weight is not finite."""
        if all(bool(each.isfinite().all()) for each in (self.loss, *self.weights.values())):
            return
        sound = self.loss.isfinite()
        for weight in self.weights.values():
            sound = sound & weight.flatten(1).isfinite().all(1)
        first = int((~sound).nonzero()[0])
        loss = float(self.loss[first])
        what = "a weight is not finite" if math.isfinite(loss) else f"loss is {_told(loss)}"
        raise Diverged(
            f"training diverged ({what}) by epoch {self.epochs_done:,}, seed {self.seeds[first]}; "
            "lower the learning rate, look for wild coordinates (`trellis data info`), or raise "
            "the temperature of the teachers"
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that training changes; `restore` copies into them."""
        found = {f"weights.{name}": weight for name, weight in self.weights.items()}
        found |= {"rates": self.rates, "last.loss": self.loss, "last.hits": self.hits}
        found |= self.adam.tensors()
        if self.rule is not None:
            found |= {f"rule.{name}": value for name, value in self.rule.tensors().items()}
        if self.pruning is not None:
            found |= {f"masks.{name}": mask for name, mask in self.masks.items()}
        return found

    def follow(self, other: Training, changed: Callable[[Weights], Weights]) -> None:
        """Continue from the state of ``other``, whose networks have other shapes.

        Args:
            other: A training of the same networks.
            changed: Converts a stack of its pruned parameters, masks or averages to these shapes.
        """
        given = other.tensors()
        found = dict(given)
        for kind in ("weights", "masks", "adam.mean", "adam.square"):
            mine = {name: f"{kind}.{name}" for name in self.masks}
            stack = changed({name: given[key] for name, key in mine.items() if key in given})
            found |= {f"{kind}.{name}": value for name, value in stack.items()}
        self.restore(found, other.epochs_done)

    def restore(self, tensors: Mapping[str, Tensor], epochs_done: int) -> None:
        """Continue from what `tensors` returned after ``epochs_done`` epochs.

        Raises:
            TrellisError: The tensors have other names or shapes.
        """
        own = self.tensors()
        if tensors.keys() != own.keys():
            raise TrellisError(
                "the checkpoint is of another training: "
                f"{sorted(tensors.keys() ^ own.keys())[0]!r} is in only one of them"
            )
        for name, value in own.items():
            if tensors[name].shape != value.shape:
                raise TrellisError(
                    f"the checkpoint is of another training: {name!r} has the shape "
                    f"{tuple(tensors[name].shape)}, not {tuple(value.shape)}"
                )
        for name, value in own.items():
            value.copy_(tensors[name])
        self.epochs_done = epochs_done


def _told(loss: float) -> str:
    return "NaN" if math.isnan(loss) else "infinite"


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Set the precision of float32 matrix products, and restore it afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the autocast context of a precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@torch.no_grad()
def logits_of(forward: Forward, weights: Weights, x: Tensor) -> Tensor:
    """Return the logits, (networks, recordings, classes)."""
    count = len(next(iter(weights.values())))
    batch = max(1, TOGETHER // count)
    found = [forward(weights, part.expand(count, *part.shape)) for part in x.split(batch)]
    return torch.cat(found, dim=1)


def predictions(forward: Forward, weights: Weights, x: Tensor) -> Tensor:
    """Return the predicted classes, (networks, recordings)."""
    return logits_of(forward, weights, x).argmax(2)


def accuracies(forward: Forward, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
    """Return the top-1 accuracies, (networks,)."""
    return (predictions(forward, weights, x) == y).float().mean(1)


def losses(forward: Forward, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
    """Return the mean cross entropies, without noise and label smoothing, (networks,)."""
    said = logits_of(forward, weights, x)
    each = F.cross_entropy(said.transpose(1, 2), y.expand(len(said), -1), reduction="none")
    return each.mean(1)
