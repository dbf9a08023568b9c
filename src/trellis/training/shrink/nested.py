"""Train nested networks together: one model, several rates.

A run first prunes the model gradually from one rate to the next, and notes each network. Then all
of them are trained together. A shared weight begins with that of the smallest network that has it.
Each step trains the largest network, the smallest, and one between. These two also learn from the
outputs of the largest (Yu & Huang, "Universally Slimmable Networks", 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...graph.trellis import Trellis, current, without
from ...masks import Masks, masks_of
from ...masks.slots import named_slots
from ...methods.budget import count
from ...methods.nested import chain, share
from ...saving.nested import Nested, others_of, refuse_computed
from ..batches import stream
from ..pruner import carried
from .course import Phase
from .loop import Run, estimate_batch_norm
from .result import Rate
from .task import Batch, output_of

_DISTILL = 0.5  # share of the largest network's outputs in the loss of the others
_ASKED = 0.5  # share of the steps whose third network is one that was asked for


class Shared(nn.Module):
    """What an optimizer trains: shared parameters, and values of each rate for the others."""

    def __init__(self, shared: Sequence[nn.Parameter], own: Sequence[Mapping[str, Tensor]]) -> None:
        super().__init__()
        self.shared = nn.ParameterList(shared)
        values = [[nn.Parameter(value.clone()) for value in each.values()] for each in own]
        self.own = nn.ModuleList(nn.ParameterList(each) for each in values)


@dataclass(frozen=True)
class Place:
    """A network on the way from one that was asked for to the next.

    Args:
        masks: What it keeps.
        stop: The number of the one before.
        share: How far it is from there to the next one, in the logarithm of the size.
    """

    masks: Mapping[str, Tensor]
    stop: int
    share: float


@dataclass(eq=False)
class Together(Run):
    """Train nested networks at once, from networks that were pruned one after another.

    Args:
        stops: The networks, largest first: what `Run.marked` noted.
        asked: Their budgets.
    """

    stops: Sequence[Mapping[str, Mapping[str, Tensor]]] = ()
    asked: Sequence[int] = ()
    places: list[Place] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.net.model
        masks_of(model).undo(model)
        names = list(self.stops[0]["masks"])
        slots = dict(named_slots(model))
        weights: dict[str, Tensor] = {}
        for name in names:
            refuse_computed(name, slots[name])
            weights[name] = self.stops[0]["weights"][name].clone()
            for one in self.stops[1:]:
                kept = one["masks"][name]
                weights[name] = torch.where(kept, one["weights"][name], weights[name])
            with torch.no_grad():
                slots[name].sources[0].copy_(weights[name])
        self.places = _places(pruned(self.net, names), weights, self.stops)
        Masks(self.places[0].masks).apply(model)
        self.masks = {each.name: each.mask.mask for each in carried(model, names)}
        own = others_of(model, names)
        self.own = {
            name: value for name, value in own.items()
            if isinstance(value, nn.Parameter) and value.requires_grad
        }  # fmt: skip
        self.buffers = {n: value for n, value in own.items() if not isinstance(value, nn.Parameter)}
        for value in self.own.values():
            value.grad = None
        apart = {id(value) for value in self.own.values()}
        shared = [p for p in model.parameters() if id(p) not in apart and p.requires_grad]
        begun = [{name: one["others"][name] for name in self.own} for one in self.stops]
        self.trained = Shared(shared, begun)
        super().__post_init__()

    @property
    def distills(self) -> bool:
        """Whether there is a teacher beside the networks: the largest of them teaches."""
        return False

    def owner(self) -> nn.Module:
        """Return the module that the optimizer trains."""
        return self.trained

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint stores of the parameters."""
        # The model's own state_dict() would set the weights outside the network shown to 0.
        return {"trained": self.trained.state_dict(), "buffers": dict(self.model.named_buffers())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.trained.load_state_dict(state["trained"])
        with torch.no_grad():
            for name, value in self.model.named_buffers():
                value.copy_(state["buffers"][name])

    def measured(self) -> float | None:
        """Return the score of the smallest network."""
        if self.setup.validation is None:
            return None
        self.show(self.places[-1])
        estimate_batch_norm(self.model, self.setup)
        return self.setup.score(self.model)

    @property
    def kept(self) -> int:
        """The size of the smallest network, whose score the history notes."""
        return count(self.places[-1].masks)

    @torch.no_grad()
    def show(self, place: Place) -> None:
        """Make the model one of the networks."""
        for name, mask in place.masks.items():
            self.masks[name].copy_(mask)
        for value, own in zip(self.own.values(), self._values(place), strict=True):
            value.copy_(own)

    def _values(self, place: Place) -> list[Tensor]:
        first: list[Tensor] = list(self._own(place.stop))
        if not place.share:
            return first
        second = self._own(place.stop + 1)
        return [torch.lerp(a, b, place.share) for a, b in zip(first, second, strict=True)]

    def _own(self, stop: int) -> nn.ParameterList:
        found = self.trained.own[stop]
        assert isinstance(found, nn.ParameterList)
        return found

    def learn(self, batch: Batch, phase: Phase) -> Tensor:
        """Add the gradients of three networks; return the loss of the smallest."""
        setup, task = self.setup, self.setup.task
        taught = None
        for place in (self.places[0], *self._drawn(), self.places[-1]):
            self.show(place)
            with setup.autocast():
                result = self.forward(batch, phase)
                loss = told = result.loss.reshape(())
                if phase.distill and task.distills():
                    if taught is None:
                        taught = output_of(result.output).detach()
                    else:
                        temperature = setup.course.temperature
                        theirs = task.distilled(result.output, taught, batch.targets, temperature)
                        loss = (1 - phase.distill) * loss + phase.distill * theirs
            self.scaler.scale(loss).backward()
            self._collect(place)
        return told.detach()

    def finish_rounding(self, batch: Batch) -> None:
        """Leave weights as they are: shared ones have another scale in each network."""

    def _drawn(self) -> list[Place]:
        """Return a network between the largest and the smallest, by the seed and the step."""
        between = self.places[1:-1]
        if not between:
            return []
        generator = torch.Generator().manual_seed(stream(self.setup.seed, self.step))
        asked = [place for place in between if not place.share]
        if asked and float(torch.rand((), generator=generator)) < _ASKED:
            between = asked
        return [between[int(torch.randint(len(between), (), generator=generator))]]

    def _collect(self, place: Place) -> None:
        """Move the gradients of what each rate has for itself from the model to its values."""
        parts = [(place.stop, 1 - place.share), (place.stop + 1, place.share)]
        for number, value in enumerate(self.own.values()):
            gradient, value.grad = value.grad, None
            if gradient is None:
                continue
            for stop, part in parts:
                if part:
                    own = self._own(stop)[number]
                    own.grad = part * gradient if own.grad is None else own.grad + part * gradient

    @torch.no_grad()
    def nested(self) -> tuple[Nested, tuple[Rate, ...]]:
        """Return the networks at the end, and their scores; the model is the largest afterwards."""
        others, rates = [], []
        total = sum(mask.numel() for mask in self.masks.values())
        for place in self.places:
            self.show(place)
            estimate_batch_norm(self.model, self.setup)
            parts = [*self.own.items(), *self.buffers.items()]
            others.append({name: value.detach().cpu().clone() for name, value in parts})
            kept = count(place.masks)
            score = self.setup.score(self.model)
            rates.append(Rate(kept, total, score, asked=not place.share))
        same = [
            name for name, value in others[0].items()
            if all(torch.equal(value, each[name]) for each in others)
        ]  # fmt: skip
        for name in same:
            for each in others:
                del each[name]
        slots = dict(named_slots(self.model))
        largest = self.places[0].masks
        weights = {
            name: torch.where(mask, slots[name].sources[0], 0).detach().cpu()
            for name, mask in largest.items()
        }
        masks = [{n: mask.cpu() for n, mask in place.masks.items()} for place in self.places]
        made = Nested(weights, masks, others, tuple(self.asked), total, self.net.specs)
        made.apply(self.net, keep=self.asked[0])
        return made, tuple(rates)


def pruned(net: Trellis, names: Sequence[str]) -> Trellis:
    """Return the trellis with the connections of these parameters alone."""
    wires = [name for name in net.connections if name not in names]
    return without(net, wires, current(net).weights) if wires else net


def _places(
    net: Trellis, weights: Mapping[str, Tensor], stops: Sequence[Mapping[str, Any]]
) -> list[Place]:
    asked = [stop["masks"] for stop in stops]
    found = []
    sizes = [count(masks) for masks in asked]
    for masks in chain(net, weights, asked):
        size = count(masks)
        stop = max(i for i, each in enumerate(sizes) if each >= size)
        at = 0.0 if size == sizes[stop] else share(sizes[stop + 1], sizes[stop], size)
        found.append(Place(masks, stop, at))
    return found
