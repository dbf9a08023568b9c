"""One training loop for all pruning methods of bench/images.py.

Every method gets the same network, images, optimizer, schedule of the learning rate and number of
steps. It only decides which weights are masked. On a GPU, one step (forward, backward, optimizer)
is captured once as a CUDA graph and replayed for every run of the same network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from image_data import DEVIATION, MEAN, Images
from image_models import network
from torch import Tensor, nn
from torch.nn import functional as F

import trellis

Masks = Mapping[str, Tensor]
CLIP = 2.0


@dataclass(frozen=True)
class Settings:
    """What all methods share.

    Args:
        network: A name of `image_models.network`.
        epochs: Passes over the training images.
        batch: Images a step.
        rate: Highest learning rate; it rises over the first 5 % and falls along a cosine.
        decay: Weight decay of convolutions and linear layers.
        adam: AdamW instead of SGD with Nesterov momentum 0.9.
    """

    network: str
    epochs: int
    batch: int = 256
    rate: float = 0.2
    decay: float = 5e-4
    adam: bool = False


def cosine(progress: float) -> float:
    """Rise over the first 5 %, then fall along a cosine."""
    if progress < 0.05:
        return progress / 0.05 + 1e-3
    return (1 + math.cos(math.pi * (progress - 0.05) / 0.95)) / 2


def settings_for(name: str, epochs: int) -> Settings:
    """Return the settings of a network."""
    if name == "vit":
        return Settings(name, epochs, rate=1e-3, decay=0.05, adam=True)
    if name == "vgg19":
        return Settings(name, epochs, rate=0.1)
    return Settings(name, epochs)


class Training:
    """A network, its optimizer and its masks, in memory that every run uses again.

    Attributes:
        parameters: The network's parameters. Those that can be pruned are 0 where masked.
        masks: Float masks of the prunable parameters, 1 where kept. Change them with `set_masks`.
        clips: Whether the gradient's norm is held to at most 2. Weights that return to a channel
            without inputs need it: batch norm multiplies their first gradient by up to 316.
        worth: Running mean of the absolute gradient of each prunable weight, pruned ones too,
            where `measures` is set.
    """

    def __init__(self, settings: Settings, images: Images, device: torch.device) -> None:
        self.settings = settings
        self.device = device
        self.cuda = device.type == "cuda"
        self.images = images.to(device)
        self.steps_per_epoch = len(images.train) // settings.batch
        self.steps = self.steps_per_epoch * settings.epochs
        self.model = network(settings.network).to(device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = dict(self.model.named_parameters())
        self.retrace()
        self.names = list(self.net.connections)
        prunable = {name: self.parameters[name] for name in self.names}
        self.masks = {n: torch.ones_like(p) for n, p in prunable.items()}
        self.worth = {n: torch.zeros_like(p) for n, p in prunable.items()}
        self.trained = [p.detach() for p in self.parameters.values()]
        self.decayed = [p for p in self.trained if p.ndim > 1]
        self.first = [torch.zeros_like(p) for p in self.trained]  # momentum
        self.second = [torch.zeros_like(p) for p in self.trained]  # AdamW alone
        for p in self.parameters.values():
            p.grad = torch.zeros_like(p)
        self.rate = torch.zeros((), device=device)
        self.count = torch.zeros((), device=device)
        side = images.train.shape[-1]
        self.x = torch.zeros(settings.batch, 3, side, side, device=device)
        self.x = self.x.to(memory_format=torch.channels_last)
        self.y = torch.zeros(settings.batch, dtype=torch.int64, device=device)
        self.train_set = self._normalized(self.images.train)
        self.held_set = self._normalized(self.images.held)
        self.test_set = self._normalized(self.images.test)
        self.generator = torch.Generator(device=device)
        self.graphs: dict[tuple[bool, bool], torch.cuda.CUDAGraph] = {}
        self.start(0)

    def retrace(self) -> None:
        """Trace a copy without masks: Trellis registers its masks on what it prunes."""
        self.net = trellis.trace(
            network(self.settings.network).to(self.device).eval(),
            torch.zeros(1, *self.images.train.shape[1:], device=self.device),
        )

    def start(self, seed: int) -> None:
        """Draw first weights, and forget all masks and statistics."""
        torch.manual_seed(seed)
        fresh = network(self.settings.network)
        with torch.no_grad():
            self.model.load_state_dict(fresh.state_dict())
            for tensors in (self.first, self.second, self.worth.values()):
                for tensor in tensors:
                    tensor.zero_()
            for mask in self.masks.values():
                mask.fill_(1)
            self.count.zero_()
        self.measures = self.clips = False
        self.generator.manual_seed(seed)
        self.model.train()

    @torch.no_grad()
    def set_masks(self, masks: Masks) -> None:
        """Keep what ``masks`` keep. Weights that return start from 0."""
        for name, mask in masks.items():
            self.masks[name].copy_(mask)
            self.parameters[name].mul_(self.masks[name])
        for name, *states in zip(self.parameters, self.first, self.second, strict=True):
            if name in self.masks:
                for state in states:
                    state.mul_(self.masks[name])

    def train(self, before_step: Callable[[int], None]) -> None:
        """Train for all steps; ``before_step(step)`` may change masks."""
        for epoch in range(self.settings.epochs):
            pixels, labels = self.augmented()
            for index in range(self.steps_per_epoch):
                step = epoch * self.steps_per_epoch + index
                part = slice(index * self.settings.batch, (index + 1) * self.settings.batch)
                self.x.copy_(pixels[part])
                self.y.copy_(labels[part])
                before_step(step)
                self.rate.fill_(self.settings.rate * cosine(step / self.steps))
                self._replay()

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradient of every prunable weight, pruned ones too, on the present batch."""
        self._backward()
        found = {n: self._gradient(n).clone() for n in self.names}
        self._clear()
        return found

    @torch.no_grad()
    def accuracy(self, model: nn.Module, images: Tensor, labels: Tensor) -> float:
        """Return the share of images that a model names right."""
        model.eval()
        right = 0
        for part in range(0, len(images), 1000):
            with self._autocast():
                found = model(images[part : part + 1000]).argmax(1)
            right += int((found == labels[part : part + 1000]).sum())
        model.train()
        return right / len(images)

    @torch.no_grad()
    def loaded(self) -> trellis.Trellis:
        """Return the traced network with the present weights, for `trellis.prune`."""
        for name, parameter in self.net.model.named_parameters():
            plain = name.replace("parametrizations.", "").removesuffix(".original")
            parameter.copy_(self.parameters[plain])
        return self.net

    def masked(self) -> trellis.Trellis:
        """Return the network, traced anew, with the present weights and masks, for an audit."""
        self.retrace()
        net = self.loaded()
        trellis.Masks({name: mask > 0 for name, mask in self.masks.items()}).apply(net.model)
        return net

    def forget(self) -> None:
        """Reset the optimizer's momentum."""
        for state in (*self.first, *self.second, self.count):
            state.zero_()

    # A step.

    def _autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)

    def _gradient(self, name: str) -> Tensor:
        gradient = self.parameters[name].grad
        assert gradient is not None
        return gradient

    def _clear(self) -> None:
        torch._foreach_zero_([self._gradient(name) for name in self.parameters])

    def _backward(self) -> None:
        with self._autocast():
            logits = self.model(self.x)
        F.cross_entropy(logits.float(), self.y).backward()

    def _step(self) -> None:
        self._backward()
        with torch.no_grad():
            self._update()
        self._clear()

    def _update(self) -> None:
        gradients = [self._gradient(name) for name in self.parameters]
        prunable = [self._gradient(name) for name in self.names]
        if self.measures:
            torch._foreach_lerp_(list(self.worth.values()), torch._foreach_abs(prunable), 0.02)
        torch._foreach_mul_(prunable, list(self.masks.values()))
        if self.clips:
            norm = torch.stack(torch._foreach_norm(gradients)).norm()
            torch._foreach_mul_(gradients, (CLIP / (norm + 1e-6)).clamp(max=1))
        settings = self.settings
        if settings.adam:
            self.count.add_(1)
            torch._foreach_lerp_(self.first, gradients, 0.1)
            torch._foreach_mul_(self.second, 0.999)
            torch._foreach_addcmul_(self.second, gradients, gradients, 0.001)
            change = torch._foreach_div(self.first, 1 - 0.9**self.count)
            scale = torch._foreach_div(self.second, 1 - 0.999**self.count)
            torch._foreach_sqrt_(scale)
            torch._foreach_add_(scale, 1e-8)
            torch._foreach_div_(change, scale)
            torch._foreach_mul_(self.decayed, 1 - self.rate * settings.decay)
        else:
            steep = [g for g, p in zip(gradients, self.trained, strict=True) if p.ndim > 1]
            torch._foreach_add_(steep, self.decayed, alpha=settings.decay)
            torch._foreach_mul_(self.first, 0.9)
            torch._foreach_add_(self.first, gradients)
            change = torch._foreach_add(gradients, self.first, alpha=0.9)
        torch._foreach_mul_(change, self.rate)
        torch._foreach_sub_(self.trained, change)

    def _replay(self) -> None:
        if not self.cuda:
            self._step()
            return
        if (self.measures, self.clips) not in self.graphs:
            self._capture()
        self.graphs[self.measures, self.clips].replay()

    def _capture(self) -> None:
        """Capture a step. Its warm-up runs change the state, which is put back."""
        state = [self.model.state_dict(), self.worth]
        tensors = [t for held in state for t in held.values()]
        tensors += [*self.first, *self.second, self.count]
        before = [t.clone() for t in tensors]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        graph = self.graphs[self.measures, self.clips] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        with torch.no_grad():
            for tensor, old in zip(tensors, before, strict=True):
                tensor.copy_(old)

    # Images.

    def _normalized(self, pixels: Tensor) -> Tensor:
        mean = torch.tensor(MEAN, device=self.device).reshape(1, 3, 1, 1) * 255
        deviation = torch.tensor(DEVIATION, device=self.device).reshape(1, 3, 1, 1) * 255
        return ((pixels.float() - mean) / deviation).bfloat16()

    def augmented(self) -> tuple[Tensor, Tensor]:
        """Return all training images, shuffled, each moved by up to an eighth and mirrored."""
        many, _, _, side = self.train_set.shape
        edge = side // 8
        order = torch.randperm(many, generator=self.generator, device=self.device)
        shift = torch.randint(
            0, 2 * edge + 1, (2, many), generator=self.generator, device=self.device
        )
        mirrored = torch.rand(many, generator=self.generator, device=self.device) < 0.5
        inside = torch.arange(side, device=self.device)
        columns = torch.where(mirrored[:, None], side - 1 - inside, inside) + shift[0][:, None]
        rows = inside + shift[1][:, None]
        padded = F.pad(self.train_set, (edge,) * 4)[order]
        moved = padded.gather(2, rows[:, None, :, None].expand(-1, 3, -1, side + 2 * edge))
        moved = moved.gather(3, columns[:, None, None, :].expand(-1, 3, side, -1))
        return moved, self.images.train_labels[order]
