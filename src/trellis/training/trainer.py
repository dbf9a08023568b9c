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
from .adam import Adam
from .batches import Agreement, Feed, Noise, batch_count, batch_indices
from .distillation import Teachers
from .dropout import Dropping
from .recipe import Recipe
from .stack_pruning import Diverged, Shrinking
from .stacks import Forward, Weights

# Learning rates over time, one for every network of a stack.


_FACTOR = 0.99
_LEAST, _MOST = 0.01, 10.0  # of the first rate


def cosine(first: float, step: int, steps: int) -> float:
    """From ``first`` at step 0 down to nothing at ``steps``.

    >>> [round(cosine(1.0, step, 4), 2) for step in range(5)]
    [1.0, 0.85, 0.5, 0.15, 0.0]
    """
    return first * 0.5 * (1 + math.cos(math.pi * step / steps))


class SpeedRule:
    """The paper's rule: slower while the loss changes faster and faster.

    Where the speed |loss − last loss| grew, the network's rate is multiplied by 0.99, else
    divided by it. Everything is (networks,) and in place, so that a graph can be captured.

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
        speed = (loss - self.loss).abs()
        known = ~(self.speed.isnan() | speed.isnan())
        grew = torch.where(speed > self.speed, _FACTOR, 1 / _FACTOR)
        self.rates.mul_(torch.where(known, grew, 1.0).to(self.rates.dtype))
        self.rates.clamp_(_LEAST * self.first, _MOST * self.first)
        self.speed.copy_(speed)
        self.loss.copy_(loss)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return {"loss": self.loss, "speed": self.speed}


# Running a step again and again: on a GPU as one captured graph.


class Replay:
    """The step itself on a CPU; on a GPU, a graph of it that is captured at the first call.

    A small network's step is hundreds of launches that take longer to ask for than to run; a
    captured graph asks once. Capturing needs warm-up runs, which change ``tensors`` (everything
    the step writes): they are put back. The step is given with each call rather than kept: whoever
    owns it owns this too, and a graph must be freed as soon as they are.
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
        with nothing_collected(), torch.cuda.graph(graph):
            step()
        for name, tensor in self.tensors.items():
            tensor.copy_(before[name])
        return graph


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Without Python's collector: a graph that it frees while another is captured breaks that.

    >>> with nothing_collected():
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
TOGETHER = 1200  # recordings that networks are asked about at once, in all: a matter of memory


class Training:
    """Networks of one architecture, trained side by side on the same recordings.

    ``weights`` is a stack, (networks, …) each, and is trained in place; ``x`` (recordings, …) and
    ``y`` (recordings,) lie on its device. ``masks``, where given, are a stack too: what they
    remove is set to zero and stays there. ``tune`` takes the recipe's settings for tuning,
    ``shrinking`` those for pruning: masks then keep less and less, of all if none are given.
    ``teachers`` are networks to learn from beside the labels. ``feed`` writes each step's inputs,
    in place of the recipe's noise. ``dropping`` leaves out some hidden units at each step.
    ``agreement`` draws together what a network says of two variants of a recording.

    Each network's result is the same, to rounding, whichever others it is stacked with: batches
    depend on the epoch, noise and what is left out on the network's seed and the step.

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
        dropping: Dropping | None = None,
        agreement: Agreement | None = None,
        shrinking: Shrinking | None = None,
    ) -> None:
        sample = next(iter(weights.values()))
        if len(sample) != len(seeds):
            raise TrellisError(f"{len(sample)} networks and {len(seeds)} seeds: give one each")
        if len(x) != len(y) or len(x) == 0:
            raise TrellisError(f"{len(x)} recordings and {len(y)} labels to train on")
        if teachers is not None and teachers.own and teachers.count % len(seeds):
            raise TrellisError(
                f"{teachers.count} teachers cannot be those of {len(seeds)} networks: give each as "
                "many, or own=False"
            )
        if precision not in PRECISIONS:
            raise TrellisError(f"precision={precision!r} is unknown: {', '.join(PRECISIONS)}")
        if precision == "tf32" and sample.device.type != "cuda":
            raise TrellisError("precision='tf32' is for GPUs; on the CPU use 'fp32' or 'bf16'")
        self.forward, self.weights, self.recipe = forward, weights, recipe
        self.x, self.y, self.precision = x.to(sample.dtype), y, precision
        self.shrinking, self.dropping, self.agreement = shrinking, dropping, agreement
        if shrinking is not None:
            if tune or len(shrinking.targets) != len(seeds):
                raise TrellisError(
                    "networks that are pruned gradually have a target each, and are tuned "
                    "afterwards"
                )
            self.epochs, self.first_rate = recipe.prune_epochs, recipe.prune_rate
            begun = shrinking.whole(weights) if masks is None else masks
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
        self.replay = Replay(self.tensors(), sample.device)

    @property
    def done(self) -> bool:
        return self.epochs_done >= self.epochs

    def epoch(self) -> None:
        """See every recording once (but for what does not divide into batches), or half of them
        twice, if networks are to agree."""
        indices = batch_indices if self.agreement is None else self.agreement.indices
        order = indices(len(self.x), self.recipe.batch, self.epochs_done)
        for i, chosen in enumerate(order):
            step = self.epochs_done * self.batches + i
            if self.rule is None and self.shrinking is None:
                self.rates.fill_(cosine(self.first_rate, step, self.epochs * self.batches))
            if self.batches == 1 and self.agreement is None:
                batch, targets = self.x, self.y
            else:
                chosen = chosen.to(self.x.device)
                batch, targets = self.x[chosen], self.y[chosen]
            self.feed.onto(self.inputs, batch, step)
            self.targets.copy_(targets)
            if self.dropping is not None:
                self.dropping.drawn(step)
            with arithmetic(self.precision):
                self.replay(self._step)
        self.epochs_done += 1
        if self.shrinking is not None:
            self._shrink(self.shrinking)

    @torch.no_grad()
    def _shrink(self, shrinking: Shrinking) -> None:
        """Choose anew what is kept, if that is due. Everything is in place: a captured step goes
        on reading the same masks."""
        masks = shrinking.renewed(self.epochs_done, self.weights, self.adam.squares, self.masks)
        for name, mask in (masks or {}).items():
            self.masks[name].copy_(mask)
            for tensor in (self.weights[name], self.adam.means[name], self.adam.squares[name]):
                tensor.mul_(mask)

    def _step(self) -> None:
        leaves = [w.detach().requires_grad_() for w in self.weights.values()]
        weights = dict(zip(self.weights, leaves, strict=True))
        if self.dropping is not None:
            weights = self.dropping.applied(weights)
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
        if self.agreement is not None:
            losses = losses + self.agreement.weight * self.agreement.losses(wide)
        gradients = torch.autograd.grad(losses.sum(), leaves)
        self.adam.step(gradients, self.rates)
        with torch.no_grad():
            self.loss.copy_(losses)
            self.hits.copy_((wide.argmax(2) == targets).to(self.hits.dtype).mean(1))
            if self.rule is not None:
                self.rule.step(losses.detach().to(self.rates.dtype))

    def check_finite(self) -> None:
        """Raise if a loss or a weight is no longer a finite number."""
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
            "the temperature of teachers"
        )

    def tensors(self) -> dict[str, Tensor]:
        """All that changes while training; copy into them to go back to an earlier moment."""
        found = {f"weights.{name}": weight for name, weight in self.weights.items()}
        found |= {"rates": self.rates, "last.loss": self.loss, "last.hits": self.hits}
        found |= self.adam.tensors()
        if self.rule is not None:
            found |= {f"rule.{name}": value for name, value in self.rule.tensors().items()}
        if self.shrinking is not None:
            found |= {f"masks.{name}": mask for name, mask in self.masks.items()}
        return found

    def follow(self, other: Training, changed: Callable[[Weights], Weights]) -> None:
        """Stand where ``other`` stands. ``changed`` makes of a stack of its pruned parameters (or
        of their masks, or averages) one for these networks."""
        given = other.tensors()
        found = dict(given)
        for kind in ("weights", "masks", "adam.mean", "adam.square"):
            mine = {name: f"{kind}.{name}" for name in self.masks}
            stack = changed({name: given[key] for name, key in mine.items() if key in given})
            found |= {f"{kind}.{name}": value for name, value in stack.items()}
        self.restore(found, other.epochs_done)

    def restore(self, tensors: Mapping[str, Tensor], epochs_done: int) -> None:
        """Go on from what ``tensors()`` gave after ``epochs_done`` epochs."""
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
    """Let matrix products round as ``precision`` allows, and put things back afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def autocast(precision: str, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@torch.no_grad()
def answers(forward: Forward, weights: Weights, x: Tensor) -> Tensor:
    """What each network says of each recording: (networks, recordings, classes)."""
    count = len(next(iter(weights.values())))
    batch = max(1, TOGETHER // count)
    found = [forward(weights, part.expand(count, *part.shape)) for part in x.split(batch)]
    return torch.cat(found, dim=1)


def predictions(forward: Forward, weights: Weights, x: Tensor) -> Tensor:
    """The class each network gives each recording: (networks, recordings)."""
    return answers(forward, weights, x).argmax(2)


def accuracies(forward: Forward, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
    """The share of recordings each network gets right: (networks,)."""
    return (predictions(forward, weights, x) == y).float().mean(1)


def losses(forward: Forward, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
    """The mean cross entropy of each network on recordings as they are: (networks,)."""
    said = answers(forward, weights, x)
    each = F.cross_entropy(said.transpose(1, 2), y.expand(len(said), -1), reduction="none")
    return each.mean(1)
