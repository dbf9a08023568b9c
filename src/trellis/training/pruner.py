"""Gradual pruning in anyone's training loop: one call after every optimizer step."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..devices import on_cpu
from ..errors import TrellisError
from ..graph.current import Current, current, matching, without
from ..graph.trellis import Trellis, trace
from ..masks import Mask, Masks
from ..masks.slots import Slot, named_slots, tied
from ..methods.method import Kept, Method, Scope
from ..methods.options import DEFAULT
from ..methods.prune import BuiltIn, allowed, refuse_hooks
from ..methods.ranking import count
from ..methods.saliency import Saliency
from .distributed import agreed, check_group, summed, unwrapped
from .plan import Plan, Standing, options_of, read_standing
from .regrowth import Choice, Chooser, ProbedMask, plenty, returning
from .schedule import Schedule

# The masks that a model carries while it is trained: found, and renewed in place.
#
# The mask is a buffer of a parametrization. Writing into it keeps everything else as it was:
# parameters and their optimizer, compiled code, the buffers that data-parallel training knows.


@dataclass(frozen=True, eq=False)
class Carried:
    """The mask on one parameter, by its plain name, and where the parameter is stored."""

    name: str
    mask: Mask
    slot: Slot

    @property
    def stored(self) -> Tensor | None:
        """The stored tensor, entry for entry the masked one; None where it is computed from
        others (weight norm, say)."""
        bare = all(isinstance(transform, Mask) for transform in self.slot.transforms)
        return self.slot.sources[0] if bare else None

    @torch.no_grad()
    def renew(self, kept: Tensor) -> None:
        """Write a new mask. What goes and what comes back is stored as zero."""
        stored = self.stored
        if stored is not None:
            stored.masked_fill_(~(kept & self.mask.mask), 0)
        self.mask.mask.copy_(kept)


def attach(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Put masks on a model."""
    bare: dict[str, Tensor] = {}
    for group in tied(named_slots(model), masked=True):
        name, slot = group[0]
        if name in masks:
            mine = [t for t in slot.transforms if isinstance(t, Mask)]
            if mine:
                mine[0].mask.copy_(masks[name])
            else:
                bare[name] = masks[name]
    Masks(bare).apply(model)


def probed(model: nn.Module, names: Collection[str]) -> None:
    """Make the masks on these parameters such as can tell the gradients of what is pruned."""
    made: dict[int, ProbedMask] = {}  # aliases of a tied parameter share one mask
    for name, slot in named_slots(model):
        for place, mask in enumerate(slot.transforms):
            if not isinstance(mask, Mask) or isinstance(mask, ProbedMask):
                continue
            if name in names or id(mask) in made:
                _chain(slot)[place] = made.setdefault(id(mask), ProbedMask(mask.mask))


def _chain(slot: Slot) -> parametrize.ParametrizationList:
    chains = slot.module.parametrizations
    assert isinstance(chains, nn.ModuleDict)
    chain = chains[slot.leaf]
    assert isinstance(chain, parametrize.ParametrizationList)
    return chain


def storable(model: nn.Module, names: Iterable[str]) -> None:
    """Refuse parameters that are computed from others: no entry of theirs can be set to zero."""
    slots = dict(named_slots(model))
    for name in names:
        other = [t for t in slots[name].transforms if not isinstance(t, Mask)]
        if other:
            raise TrellisError(
                f"connections that come back start from zero, and {name!r} is computed by "
                f"{type(other[0]).__name__}, which cannot be set: leave out regrow, or "
                f"ignore={name!r}"
            )


def refuse_sparse(model: nn.Module, names: Collection[str]) -> None:
    """Refuse parameters whose gradients are sparse tensors: no mask can pass those on."""
    for name, module in model.named_modules():
        sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
        weight = f"{name}.weight" if name else "weight"
        if sparse and weight in names:
            raise TrellisError(
                f"{weight!r} gets sparse gradients, which a mask cannot pass on: make its layer "
                f"with sparse=False, or ignore={weight!r}"
            )


def refuse_sharded(model: nn.Module) -> None:
    """Refuse parameters of which every process holds a part: paths are found in whole networks."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "full_tensor"):  # a DTensor, without waiting for its import
            raise TrellisError(
                f"{name!r} is shared out over processes ({type(parameter).__name__}, as "
                "fully_shard leaves it), and paths are found in whole networks: train in "
                "DistributedDataParallel, or prune before it is shared out"
            )


def carried(model: nn.Module, names: Iterable[str]) -> list[Carried]:
    """The masks on these parameters."""
    slots = dict(named_slots(model))
    found = []
    for name in names:
        if name not in slots:
            raise TrellisError(f"{name!r} is no longer in the model: make a new Pruner for it")
        slot = slots[name]
        mask = next((t for t in slot.transforms if isinstance(t, Mask)), None)
        if mask is None:
            raise TrellisError(
                f"the mask of {name!r} is gone (baked in, or removed), so it cannot be renewed: "
                "make a new Pruner for the model as it is"
            )
        if slot.overruled and (slot.value()[~mask.mask] != 0).any():
            raise TrellisError(
                f"{type(slot.transforms[-1]).__name__} was registered on {name!r} after its mask, "
                "and brings back what is pruned: register it before the Pruner is made"
            )
        found.append(Carried(name, mask, slot))
    return found


@dataclass(frozen=True)
class Renewal:
    """Masks were renewed after ``step``: ``kept`` connections of a ``budget``, ``regrown`` of
    them pruned before. ``sparsity`` is what the schedule says."""

    step: int
    sparsity: float
    budget: int
    kept: int
    regrown: int

    def __str__(self) -> str:
        asked = "" if self.kept == self.budget else f", budget {self.budget:,}"
        grown = f", {self.regrown:,} of them regrown" if self.regrown else ""
        return (
            f"step {self.step:,}: {self.kept:,} connections kept "
            f"({100 * self.sparsity:.4g} % pruned{asked}){grown}"
        )


class Pruner:
    """Prune a model gradually while it is trained, with every kept connection live throughout.

    Make one for a model, and call `step` after every optimizer step. At the steps of the
    ``schedule``, `step` renews the masks to exactly the scheduled budget. The model is traced once.
    From then on it carries masks that first keep everything except weights that are exactly zero.
    Masks change in place. Make the optimizer, compile, copy or wrap the model before or after; make
    an average of its weights afterwards.

    Without ``regrow``, pruned connections never return. With it, each renewal replaces a share of
    the kept connections by the pruned ones of largest gradient that lie on a path. They start from
    zero. The share falls along a cosine from ``regrow`` to 0 at the last renewal. Pruned weights
    are stored as zero. What an optimizer does to them between renewals has no effect.

    Args:
        model: The model, what `trellis.trace` returned for it, or a `DistributedDataParallel`.
        example_inputs: As for `trellis.prune`.
        sparsity: Fraction of connections to remove in the end. Give this or ``keep``.
        keep: Number of connections to keep in the end.
        schedule: When to renew the masks, and how many connections to keep then.
        regrow: Largest share of the kept connections that one renewal replaces, 0 to below 1.
        group: The processes that train the model together; default: those of the
            `DistributedDataParallel`, if there is one.
        method: As for `trellis.prune`.
        saliency: As for `trellis.prune`.
        consistent: As for `trellis.prune`, but True by default.
        stochastic: As for `trellis.prune`.
        seed: As for `trellis.prune`.
        cover_outputs: As for `trellis.prune`.
        ignore: As for `trellis.prune`.
        **method_options: The options of the method, as for `trellis.prune`: ``scope``,
            ``surrogate``, ``inverse_alpha``, ``row_normalize``, or those of your own method.

    Raises:
        TrellisError: If an option is invalid, or the final budget is too small.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> schedule = Schedule("cubic", end=4, every=2)
    >>> pruner = Pruner(model, torch.zeros(1, 8), sparsity=0.9, schedule=schedule)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> for _ in range(4):
    ...     optimizer.zero_grad()
    ...     model(torch.randn(3, 8)).square().sum().backward()
    ...     optimizer.step()
    ...     if renewal := pruner.step():
    ...         print(renewal)
    step 2: 34 connections kept (78.75 % pruned)
    step 4: 16 connections kept (90 % pruned)
    >>> pruner
    Pruner: step 4 of 4, 16 of 160 connections kept (90 % pruned); cubic, steps 0 to 4, every 2
    """

    # The first signature is for editors: it lists the options of the built-in methods.
    @overload
    def __init__(
        self,
        model: nn.Module | Trellis,
        example_inputs: Any = None,
        *,
        sparsity: float | None = None,
        keep: int | None = None,
        schedule: Schedule,
        regrow: float = 0.0,
        group: dist.ProcessGroup | None = None,
        method: BuiltIn = "viterbi",
        saliency: Saliency = "magnitude",
        consistent: bool | None = True,
        stochastic: bool = False,
        seed: int = 0,
        cover_outputs: bool = True,
        ignore: str | Collection[str] = (),
        scope: Scope = ...,
        surrogate: Literal["local", "global"] = ...,
        inverse_alpha: float = ...,
        row_normalize: bool = ...,
    ) -> None: ...

    @overload
    def __init__(
        self,
        model: nn.Module | Trellis,
        example_inputs: Any = None,
        *,
        sparsity: float | None = None,
        keep: int | None = None,
        schedule: Schedule,
        regrow: float = 0.0,
        group: dist.ProcessGroup | None = None,
        method: str | Method = "viterbi",
        saliency: Saliency = "magnitude",
        consistent: bool | None = True,
        stochastic: bool = False,
        seed: int = 0,
        cover_outputs: bool = True,
        ignore: str | Collection[str] = (),
        **method_options: Any,
    ) -> None: ...

    @on_cpu()
    def __init__(
        self,
        model: nn.Module | Trellis,
        example_inputs: Any = None,
        *,
        sparsity: float | None = None,
        keep: int | None = None,
        schedule: Schedule,
        regrow: float = 0.0,
        group: dist.ProcessGroup | None = None,
        method: str | Method = DEFAULT,
        saliency: Saliency = "magnitude",
        consistent: bool | None = True,
        stochastic: bool = False,
        seed: int = 0,
        cover_outputs: bool = True,
        ignore: str | Collection[str] = (),
        **method_options: Any,
    ) -> None:
        shared = {
            "method": method, "saliency": saliency, "consistent": consistent,
            "stochastic": stochastic, "seed": seed, "cover_outputs": cover_outputs,
            "ignore": ignore,
        }  # fmt: skip
        self.options = options_of(shared | method_options)
        if isinstance(model, nn.Module):
            model, found = unwrapped(model)
            group = found if group is None else group
        check_group(group, alone=not regrow)
        self.group = group
        if isinstance(model, nn.Module):
            refuse_sharded(model)
        self.net = trace(model, example_inputs)
        refuse_hooks(self.model)
        self._ignored = matching(self.net, self.options.ignored)
        now = current(self.net)
        net = self._net(now)
        if not net.connections:
            raise TrellisError(
                f"{type(self.model).__name__} has no prunable weights: no parameter outside "
                "`ignore` multiplies a signal"
            )
        chosen = self.options.method
        chosen.check({name: math.prod(shape) for name, shape in net.connections.items()})
        self.plan = Plan.of(net.total, sparsity, keep, schedule, regrow)
        self.plan.fits(chosen)
        refuse_sparse(self.model, net.connections)
        if regrow:
            storable(self.model, net.connections)
        able = allowed(net, now, closed=self.options.closes)
        # On the weights as they are: what cannot be reached is said now, not hours into training.
        last = self._chooser(now).choose(able, self.plan.target)
        bound = plenty(net, self.options)
        self._inside = None if bound is not None and self.plan.target >= bound else last
        if able is None:
            able = {n: torch.ones_like(now.weights[n], dtype=torch.bool) for n in net.connections}
        self._names = tuple(net.connections)
        attach(self.model, able)
        if regrow:  # now, and not in the middle of training: what is compiled stays so
            probed(self.model, self._names)
        self.steps = 0
        self.budget = net.total
        if self.plan.renews(0):
            self._renew()
        self._prepare()

    @property
    def model(self) -> nn.Module:
        """The model that is pruned, out of its wrappers."""
        return self.net.model

    @property
    def masks(self) -> Masks:
        """What is kept now; a copy, which later renewals leave as it is."""
        return Masks(
            {mine.name: mine.mask.mask.clone() for mine in self._carried()},
            budget=self.budget,
            provenance={"options": self.options.record(), "inputs": self.net.specs},
        )

    @property
    def kept(self) -> int:
        """How many connections are kept now."""
        return count({mine.name: mine.mask.mask for mine in self._carried()})

    @property
    def total(self) -> int:
        """How many connections there are to prune."""
        return self.plan.total

    @property
    def sparsity(self) -> float:
        """The fraction of the connections that is removed now."""
        return 1 - self.kept / self.total

    @property
    def done(self) -> bool:
        """Whether the last renewal is over: further steps change nothing."""
        return self.steps >= self.plan.schedule.last

    @on_cpu()
    def step(self) -> Renewal | None:
        """Count an optimizer step. At a scheduled one renew the masks, and say what is kept."""
        self.steps += 1
        try:
            renewal = self._renew() if self.plan.renews(self.steps) else None
        except BaseException:  # Ctrl-C and too little memory, too
            self.steps -= 1  # it is still to come, when what was wrong is mended
            raise
        self._prepare()
        return renewal

    def state_dict(self) -> dict[str, Any]:
        """Where this pruner stands: values that JSON can hold and, under ``"masks"`` and
        ``"inside"``, tensors by name. Model and optimizer have states of their own."""
        kept = {mine.name: mine.mask.mask for mine in self._carried()}
        inside = {} if self._inside is None else dict(self._inside)
        standing = Standing(self.steps, self.budget, kept, inside)
        return standing.to_dict(self.plan.to_dict(self.options))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where a pruner with the same settings stood; before or after the model's
        own state is loaded."""
        shapes = {name: self.net.connections[name] for name in self._names}
        needed = self._inside is not None
        found = read_standing(state, self.plan.to_dict(self.options), shapes, inside=needed)
        for mine in self._carried():
            mine.mask.mask.copy_(found.masks[mine.name])
        if needed:
            self._inside = found.inside
        self.steps, self.budget = found.steps, found.budget
        self._prepare()

    def __repr__(self) -> str:
        plan = self.plan
        due = plan.next(self.steps)
        grown = f", regrowing {100 * plan.regrow:g} %" if plan.regrow else ""
        coming = "" if due is None else f"; {plan.budget(due):,} after step {due:,}"
        target = "" if due is None else f", {plan.target:,} in the end"
        return (
            f"Pruner: step {self.steps:,} of {plan.schedule.last:,}, {self.kept:,} of "
            f"{plan.total:,} connections kept ({100 * self.sparsity:.6g} % pruned); "
            f"{plan.schedule}{grown}{coming}{target}"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Pruner:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        # All but the model is never changed in place, or (the group) cannot be copied.
        copied.__dict__.update(self.__dict__)
        copied.net = replace(self.net, model=deepcopy(self.model, memo), cache={})
        copied._prepare()
        return copied

    def _carried(self) -> list[Carried]:
        return carried(self.model, self._names)

    def _net(self, now: Current) -> Trellis:
        # What is ignored stands for wires of its current strength.
        return without(self.net, self._ignored, now.weights)

    def _renew(self) -> Renewal:
        """Choose anew among what is kept, let come back what may, and write the masks."""
        refuse_sharded(self.model)
        now = current(self.net)
        masks = self._carried()
        before = {
            mine.name: mine.mask.mask.clone(memory_format=torch.contiguous_format) for mine in masks
        }
        budget = self.plan.budget(self.steps)
        chosen = self._chosen(now, before, budget, self._gradients(masks))
        kept = agreed({name: chosen.kept[name] for name in self._names}, self.group)
        self._inside = None if chosen.inside is None else agreed(chosen.inside, self.group)
        try:
            for mine in masks:
                mine.renew(kept[mine.name])
        except BaseException:  # half of the new masks beside half of the old may lead nowhere
            for mine in masks:
                mine.renew(kept[mine.name])
            raise
        self.budget = budget
        regrown = count({name: mask & ~before[name] for name, mask in kept.items()})
        sparsity = self.plan.sparsity(self.steps)
        return Renewal(self.steps, sparsity, budget, count(kept), regrown)

    def _chooser(self, now: Current) -> Chooser:
        return Chooser(self._net(now), now, self.options, self.plan.target, self.plan.share)

    def _chosen(
        self, now: Current, before: Kept, budget: int, gradients: Mapping[str, Tensor]
    ) -> Choice:
        chooser = self._chooser(now)
        inside = self._inside  # which stayed behind if the model has moved to another device
        if inside is not None:
            inside = {name: inside[name].to(mask.device) for name, mask in before.items()}
        if gradients:
            most = self.plan.regrown(self.steps)
            closes = self.options.closes
            fresh = returning(chooser.net, before, gradients, most, consistent=closes)
            if count(fresh):
                before = {name: mask | fresh[name] for name, mask in before.items()}
                chooser = replace(chooser, fresh=fresh)
        return chooser.shrink(before, inside, budget)

    def _prepare(self) -> None:
        """Open the probes for the step whose gradients the next renewal will ask for."""
        if not self.plan.regrow:
            return
        wanted = self.plan.regrown(self.steps + 1) > 0
        if wanted:
            probed(self.model, self._names)  # somebody may have put other masks on it
        for mine in self._carried():
            if isinstance(mine.mask, ProbedMask):
                stored = mine.slot.sources[0]
                if wanted and stored.requires_grad:
                    mine.mask.open(stored)
                else:
                    mine.mask.close()

    def _gradients(self, masks: list[Carried]) -> Mapping[str, Tensor]:
        """Of all connections, pruned ones too; nothing where none will come back."""
        if self.plan.regrown(self.steps) == 0:
            return {}
        found = {}
        for mine in masks:
            gradient = mine.mask.close() if isinstance(mine.mask, ProbedMask) else None
            if gradient is not None:
                found[mine.name] = gradient
        return summed(found, {mine.name: mine.mask.mask for mine in masks}, self.group)
