"""Gradual pruning in your own training loop: one call after every optimizer step."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel

from ..devices import on_cpu
from ..errors import TrellisError
from ..graph.trellis import Current, Trellis, current, matching, trace, without
from ..masks import Mask, Masks
from ..masks.slots import Slot, is_sharded, named_slots, tied
from ..methods.budget import count
from ..methods.method import Kept, Method, MethodName, Scope
from ..methods.prune import DEFAULT, BuiltIn, allowed, refuse_hooks, warn_starved
from ..methods.saliency import Saliency
from .distributed import agreed, check_group, summed, unwrapped
from .gradients import KINDS, Gathered
from .regrowth import Choice, Chooser, ProbedMask, plenty, returning
from .schedule import Plan, Schedule, Standing, options_of, read_standing
from .sharded import Shards, shards_of

# A mask is updated in place. Parameters, optimizers and compiled code therefore stay valid.


@dataclass(frozen=True, eq=False)
class Carried:
    """The mask on one parameter, its name, and the slot that stores the parameter."""

    name: str
    mask: Mask
    slot: Slot

    @property
    def stored(self) -> Tensor | None:
        """The stored tensor; None if the parameter is computed from others (weight norm)."""
        bare = all(isinstance(transform, Mask) for transform in self.slot.transforms)
        return self.slot.sources[0] if bare else None

    @torch.no_grad()
    def renew(self, kept: Tensor) -> None:
        """Write a new mask; removed and regrown weights are stored as 0."""
        stored = self.stored
        if stored is not None:
            stored.masked_fill_(~(kept & self.mask.mask), 0)
        self.mask.mask.copy_(kept)


def attach(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Put masks on a model, or write them into the masks that it has."""
    bare = dict(masks)  # also those that fit no parameter, which is an error
    for group in tied(named_slots(model), masked=True):
        name, slot = group[0]
        if name in masks:
            mine = [t for t in slot.transforms if isinstance(t, Mask)]
            if mine:
                mine[0].follow(None)
                mine[0].mask.copy_(masks[name])
                del bare[name]
    Masks(bare).apply(model)


def probed(model: nn.Module, names: Collection[str]) -> None:
    """Replace the masks on these parameters by ones that record gradients of pruned weights."""
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


def refuse_computed(model: nn.Module, names: Iterable[str]) -> None:
    """Raise for parameters that are computed from others: their entries cannot be set to 0."""
    slots = dict(named_slots(model))
    for name in names:
        other = [t for t in slots[name].transforms if not isinstance(t, Mask)]
        if other:
            raise TrellisError(
                f"regrown connections start from 0, and {name!r} is computed by "
                f"{type(other[0]).__name__}, whose result cannot be set; leave out regrow, or give "
                f"ignore={name!r}"
            )


def refuse_sparse(model: nn.Module, names: Collection[str]) -> None:
    """Raise for parameters with sparse gradients: a mask cannot pass them on."""
    for name, module in model.named_modules():
        sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
        weight = f"{name}.weight" if name else "weight"
        if sparse and weight in names:
            raise TrellisError(
                f"{weight!r} gets sparse gradients, which a mask cannot pass on; create its layer "
                f"with sparse=False, or give ignore={weight!r}"
            )


def carried(model: nn.Module, names: Iterable[str]) -> list[Carried]:
    """Return the masks on these parameters.

    Raises:
        TrellisError: A parameter or its mask is gone, or a later parametrization undoes the mask.
    """
    slots = dict(named_slots(model))
    found = []
    for name in names:
        if name not in slots:
            raise TrellisError(f"{name!r} is no longer in the model; create a new Pruner")
        slot = slots[name]
        mask = next((t for t in slot.transforms if isinstance(t, Mask)), None)
        if mask is None:
            raise TrellisError(
                f"the mask of {name!r} is gone (baked in or removed) and cannot be updated; create "
                "a new Pruner"
            )
        if slot.overruled and (slot.value()[~mask.mask] != 0).any():
            raise TrellisError(
                f"{type(slot.transforms[-1]).__name__} was registered on {name!r} after its mask, "
                "and makes pruned weights non-zero; register it before you create the Pruner"
            )
        found.append(Carried(name, mask, slot))
    return found


@dataclass(frozen=True)
class Renewal:
    """A mask update, as `Pruner.step` returns it.

    Args:
        step: The step after which masks were updated.
        sparsity: The scheduled sparsity.
        budget: The scheduled number of connections.
        kept: The number of connections kept.
        regrown: How many of them had been pruned before.
    """

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
    """Prune a model while it is trained; every kept connection stays live.

    Create it once for a model, and call `step` after every optimizer step. At the steps of the
    schedule, the masks are updated to exactly the scheduled budget. The model is traced once. It
    carries masks from then on, which at first keep everything except weights that are exactly 0.

    Masks change in place: create the optimizer and compile, copy or wrap the model before or after
    the Pruner. Create an average of the model's weights (EMA) after it. Pruned weights are stored
    as 0; what an optimizer does to them between two updates has no effect.

    Without ``regrow``, kept connections only get fewer. With it, each update replaces a share of
    them by the pruned connections with the largest gradient that lie on a path. The share falls
    along a cosine from ``regrow`` to 0 at the last update. Regrown connections start from 0.

    Args:
        model: The model, or a trellis of it (`trellis.trace`).
        example_inputs: Inputs to trace the model with.
        sparsity: The fraction of connections removed at the end; or give ``keep``.
        keep: The number of connections kept at the end.
        schedule: When masks are updated, and how sparse they are then.
        regrow: The share of kept connections that is replaced, from 0 to below 1.
        group: The processes that train the model together. It is not needed if the model is
            wrapped in `DistributedDataParallel`, or if ``regrow`` is 0.
        state: What `state_dict` of a pruner with the same settings returned. Training continues
            from there, as after `load_state_dict`; nothing is chosen among the present weights.
        method: As for `trellis.prune`.
        saliency: As for `trellis.prune`, or gathered from the gradients of the training: "taylor"
            (|w| times the running mean of |g|), "gradient-magnitude" (|w| times the root of that),
            or "movement" (the sum of -w g).
        consistent: As for `trellis.prune`, but True by default.
        stochastic: As for `trellis.prune`.
        seed: As for `trellis.prune`.
        cover_outputs: As for `trellis.prune`.
        cover_layers: As for `trellis.prune`.
        ignore: As for `trellis.prune`.
        **method_options: The options of the method, as for `trellis.prune`: ``scope``,
            ``surrogate``, ``inverse_alpha``, ``row_normalize``, or those of your own method.

    Raises:
        TrellisError: An option is invalid, the model cannot be traced, or the target cannot be
            reached.

    Example:
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
        state: Mapping[str, Any] | None = None,
        method: BuiltIn = "closed",
        saliency: Saliency = "magnitude",
        consistent: bool | None = True,
        stochastic: bool = False,
        seed: int = 0,
        cover_outputs: bool = True,
        cover_layers: bool = True,
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
        state: Mapping[str, Any] | None = None,
        method: MethodName | str | Method = DEFAULT,
        saliency: Saliency = "magnitude",
        consistent: bool | None = True,
        stochastic: bool = False,
        seed: int = 0,
        cover_outputs: bool = True,
        cover_layers: bool = True,
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
        state: Mapping[str, Any] | None = None,
        method: MethodName | str | Method = DEFAULT,
        saliency: Saliency = "magnitude",
        consistent: bool | None = True,
        stochastic: bool = False,
        seed: int = 0,
        cover_outputs: bool = True,
        cover_layers: bool = True,
        ignore: str | Collection[str] = (),
        **method_options: Any,
    ) -> None:
        shared = {
            "method": method, "saliency": saliency, "consistent": consistent,
            "stochastic": stochastic, "seed": seed, "cover_outputs": cover_outputs,
            "cover_layers": cover_layers, "ignore": ignore,
        }  # fmt: skip
        gradual = getattr(schedule, "curve", None) != "one-shot"
        self.options = options_of(shared | method_options, gradual=gradual)
        if isinstance(model, nn.Module):
            model, found = unwrapped(model)
            group = found if group is None else group
        self.net = trace(model, example_inputs)
        refuse_hooks(self.model)
        self._ignored = matching(self.net, self.options.ignored)
        shapes = {n: s for n, s in self.net.connections.items() if n not in self._ignored}
        self._names = tuple(shapes)
        if not shapes:
            raise TrellisError(
                f"{type(self.model).__name__} has no prunable weights: no parameter outside "
                "`ignore` multiplies a signal"
            )
        chosen = self.options.method
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        chosen.check(sizes)
        self.plan = Plan.of(sum(sizes.values()), sparsity, keep, schedule, regrow)
        self.plan.fits(chosen)
        refuse_sparse(self.model, shapes)
        self.steps = 0
        self.budget = self.plan.total
        self._inside: Kept | None = None
        self._warned = False  # of starved layers
        self._shards = shards_of(self.model, self.net.connections, self._names)
        check_group(group, alone=not regrow or self._shards is not None)
        self.group = group
        self._gathered: Gathered | None = None
        kind = self.options.saliency
        if isinstance(kind, str) and kind in KINDS:
            if self._shards is not None:
                raise TrellisError(
                    f"saliency={kind!r} is not gathered for sharded models; use 'magnitude'"
                )
            self._gathered = Gathered(kind, self._names)
        if self._shards is not None:
            self._begin_sharded(self._shards, state)
            return
        if regrow:
            refuse_computed(self.model, shapes)
        now = current(self.net)
        net = self._net(now)
        able = allowed(net, now, closed=self.options.closes)
        self._guarded = self._guards(net)
        if state is None:
            # Select with the present weights: an impossible target raises now, not hours later.
            last = self._chooser(now).choose(able, self.plan.target)
            self._inside = last if self._guarded else None
        if able is None:
            able = {n: torch.ones_like(now.weights[n], dtype=torch.bool) for n in net.connections}
        begun = None if state is None else self._read(state)
        if state is not None:
            self._restore(state)
        attach(self.model, able if begun is None else begun.masks)
        if regrow:  # now, so that a compiled model need not be compiled again while it trains
            probed(self.model, self._names)
        if begun is not None:
            self._continue(begun)
        elif self.plan.renews(0):
            self._renew()
        if self._gathered is not None:
            self._gathered.watch(self.model)
        self._prepare()

    @property
    def model(self) -> nn.Module:
        """The pruned model, without `torch.compile` and data-parallel wrappers."""
        return self.net.model

    @property
    def masks(self) -> Masks:
        """A copy of the present masks; of a sharded model, all processes must ask for it."""
        if self._shards is not None:
            kept = {n: self._shards.whole(n, mask) for n, mask in self._shards.masks.items()}
        else:
            kept = {mine.name: mine.mask.mask.clone() for mine in self._carried()}
        return Masks(
            kept,
            budget=self.budget,
            provenance={"options": self.options.record(), "inputs": self.net.specs},
        )

    @property
    def kept(self) -> int:
        """The number of connections kept now."""
        if self._shards is not None:
            return self._shards.kept
        return count({mine.name: mine.mask.mask for mine in self._carried()})

    @property
    def total(self) -> int:
        """The number of prunable connections."""
        return self.plan.total

    @property
    def sparsity(self) -> float:
        """The fraction of connections removed now."""
        return 1 - self.kept / self.total

    @property
    def done(self) -> bool:
        """Whether the last mask update is done; further steps change nothing."""
        return self.steps >= self.plan.schedule.last

    @on_cpu()
    def step(self) -> Renewal | None:
        """Count an optimizer step, and update the masks if the schedule says so.

        Returns:
            The mask update, or None.
        """
        self.steps += 1
        if self._shards is not None:
            self._shards.clear()
        try:
            renewal = self._renew() if self.plan.renews(self.steps) else None
        except BaseException:  # also KeyboardInterrupt and MemoryError
            self.steps -= 1  # so that the step can be repeated
            raise
        self._prepare()
        return renewal

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the pruner, without those of model and optimizer.

        ``"masks"`` and ``"inside"`` hold tensors by name; JSON can hold the other values. For a
        sharded model they are sharded too, as `torch.distributed.checkpoint` reads and writes them.
        """
        if self._shards is not None:
            shards = self._shards
            masks, known = shards.distributed(shards.masks), shards.distributed(shards.inside)
            return Standing(self.steps, self.budget, masks, known).shared(
                self.plan.to_dict(self.options)
            )
        kept = {mine.name: mine.mask.mask for mine in self._carried()}
        inside = {} if self._inside is None else dict(self._inside)
        standing = Standing(self.steps, self.budget, kept, inside)
        state = standing.to_dict(self.plan.to_dict(self.options))
        if self._gathered is not None:
            gathered = self._gathered.values.items()
            state["gradients"] = {name: value.cpu().clone() for name, value in gathered}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a pruner with the same settings.

        Load the model's own state before or after it.

        Raises:
            TrellisError: The state is damaged, or is that of a pruner with other settings.
        """
        self._continue(self._read(state))
        self._restore(state)
        self._prepare()

    def share_masks(self, average: nn.Module) -> None:
        """Give a copy of the model the model's masks, now and after every update.

        It is for copies that training writes into, such as an average of the weights (EMA). An
        `AveragedModel` that is made after the pruner has them already. What is registered on the
        copy's own masks is lost.

        Args:
            average: The copy, also in an `AveragedModel`.

        Raises:
            TrellisError: The copy has other parameters.
        """
        if self._shards is not None:
            raise TrellisError(
                "share_masks does not know sharded models; average the sharded parameters, and "
                "call Pruner.masks.apply on the whole average in the end"
            )
        copied = average.module if isinstance(average, AveragedModel) else average
        copied, _ = unwrapped(copied)
        mine = {each.name: each.mask for each in self._carried()}
        attach(copied, {name: mask.mask for name, mask in mine.items()})
        for each in carried(copied, mine):
            each.mask.follow(mine[each.name])

    def __repr__(self) -> str:
        plan = self.plan
        try:
            kept = self.kept
        except TrellisError:
            return (
                f"Pruner: step {self.steps:,} of {plan.schedule.last:,}; the model no longer has "
                f"its masks (baked in or removed); {plan.schedule}"
            )
        due = plan.next(self.steps)
        grown = f", regrowing {100 * plan.regrow:g} %" if plan.regrow else ""
        coming = "" if due is None else f"; {plan.budget(due):,} after step {due:,}"
        target = "" if due is None else f", {plan.target:,} in the end"
        return (
            f"Pruner: step {self.steps:,} of {plan.schedule.last:,}, {kept:,} of "
            f"{plan.total:,} connections kept ({100 * (1 - kept / plan.total):.6g} % pruned); "
            f"{plan.schedule}{grown}{coming}{target}"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Pruner:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        # Everything but the model is immutable or, like the group, cannot be copied.
        copied.__dict__.update(self.__dict__)
        copied.net = replace(self.net, model=deepcopy(self.model, memo), cache={})
        if self._gathered is not None:
            mine = self._gathered
            copied._gathered = Gathered(mine.kind, mine.names, mine.decay)
            copied._gathered.values = {n: v.clone() for n, v in mine.values.items()}
            copied._gathered.watch(copied.model)
        copied._prepare()
        return copied

    def _read(self, state: Mapping[str, Any]) -> Standing:
        shapes = {name: self.net.connections[name] for name in self._names}
        kept: Callable[[Mapping[str, Tensor]], int] = count
        if self._shards is not None and isinstance(state, Mapping):
            masks = state.get("masks")
            if isinstance(masks, Mapping) and any(map(is_sharded, masks.values())):
                kept = self._shards.count
        return read_standing(
            state, self.plan.to_dict(self.options), shapes, inside=self._guarded, count=kept
        )

    def _continue(self, found: Standing) -> None:
        if self._shards is not None:
            shards = self._shards
            masks = {name: shards.part(name, mask) for name, mask in found.masks.items()}
            shards.inside = {name: shards.part(name, mask) for name, mask in found.inside.items()}
            shards.wear(masks, shards.count(masks))
            self.steps, self.budget = found.steps, found.budget
            return
        for mine in self._carried():
            mine.mask.mask.copy_(found.masks[mine.name])
        if self._guarded:
            self._inside = found.inside
        self.steps, self.budget = found.steps, found.budget

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take over gathered gradients from a state."""
        if self._gathered is not None:
            found = state.get("gradients", {})
            self._gathered.values = {name: value.clone() for name, value in found.items()}

    def _carried(self) -> list[Carried]:
        return carried(self.model, self._names)

    def _net(self, now: Current) -> Trellis:
        # Ignored parameters are wires with their present weights.
        return without(self.net, self._ignored, now.weights)

    def _renew(self) -> Renewal:
        """Select among the kept and regrown connections, and write the masks."""
        if self._shards is not None:
            return self._renew_sharded(self._shards)
        now = current(self.net)
        masks = self._carried()
        before = {
            mine.name: mine.mask.mask.clone(memory_format=torch.contiguous_format) for mine in masks
        }
        budget = self.plan.budget(self.steps)
        chosen = self._chosen(now, before, budget, self._gradients(masks), self._inside)
        kept = agreed({name: chosen.kept[name] for name in self._names}, self.group)
        self._inside = None if chosen.inside is None else agreed(chosen.inside, self.group)
        try:
            for mine in masks:
                mine.renew(kept[mine.name])
        except BaseException:  # write all masks: old and new ones together may be inconsistent
            for mine in masks:
                mine.renew(kept[mine.name])
            raise
        self.budget = budget
        self._warn(kept)
        regrown = count({name: mask & ~before[name] for name, mask in kept.items()})
        sparsity = self.plan.sparsity(self.steps)
        return Renewal(self.steps, sparsity, budget, count(kept), regrown)

    def _warn(self, kept: Kept) -> None:
        """Warn of starved layers, once."""
        if not self._warned:
            masks = Masks(dict(kept), provenance={"options": self.options.record()})
            self._warned = warn_starved(masks, stacklevel=6)

    def _guards(self, net: Trellis) -> bool:
        """Return whether a network with the last budget must be known inside every selection."""
        bound = plenty(net, self.options)
        return bound is None or self.plan.target < bound

    def _begin_sharded(self, shards: Shards, state: Mapping[str, Any] | None) -> None:
        """Do what a pruner does at first, by the weights that the first process gathers."""
        now = shards.current()

        def choose() -> tuple[Kept, Kept | None, int]:
            assert now is not None
            net = self._net(now)
            able = allowed(net, now, closed=self.options.closes)
            guarded = self._guards(net)
            last = self._chooser(now).choose(able, self.plan.target) if state is None else None
            if able is None:
                able = {name: torch.ones_like(now.weights[name], dtype=torch.bool)
                        for name in self._names}  # fmt: skip
            return able, last if guarded else None, guarded

        self._guarded = bool(shards.select(choose))
        if state is not None:
            self._continue(self._read(state))
        elif self.plan.renews(0):
            self._renew()
        self._prepare()

    def _renew_sharded(self, shards: Shards) -> Renewal:
        now, inside = shards.current(), shards.gathered(shards.inside)
        gradients = shards.gathered(shards.probes)
        budget = self.plan.budget(self.steps)

        def choose() -> tuple[Kept, Kept | None, int]:
            assert now is not None
            before = {name: now.masks[name] for name in self._names}
            chosen = self._chosen(now, before, budget, gradients or {}, inside or None)
            self._warn(chosen.kept)
            regrown = count({name: mask & ~before[name] for name, mask in chosen.kept.items()})
            return chosen.kept, chosen.inside, regrown

        regrown = shards.select(choose)
        self.budget = budget
        return Renewal(self.steps, self.plan.sparsity(self.steps), budget, shards.kept, regrown)

    def _chooser(self, now: Current) -> Chooser:
        options = self.options
        if self._gathered is not None:
            # Before anything is trained, magnitudes tell whether the target can be reached.
            begun = bool(self.steps or self._gathered.values)
            worth = self._saliency(now) if begun else "magnitude"
            options = replace(options, saliency=worth)
        return Chooser(self._net(now), now, options, self.plan.target, self.plan.share)

    def _saliency(self, now: Current) -> Mapping[str, Tensor]:
        assert self._gathered is not None
        found = self._gathered.saliency({name: now.weights[name] for name in self._names})
        return summed(found, found, self.group)

    def _chosen(
        self, now: Current, before: Kept, budget: int, gradients: Mapping[str, Tensor],
        inside: Kept | None,
    ) -> Choice:  # fmt: skip
        chooser = self._chooser(now)
        # It may be on another device than the model.
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
        """Record gradients of pruned weights in the step before a mask update that regrows."""
        if not self.plan.regrow:
            return
        wanted = self.plan.regrown(self.steps + 1) > 0
        if self._shards is not None:
            self._shards.probe(wanted)
            return
        if wanted:
            probed(self.model, self._names)  # the masks may have been replaced
        for mine in self._carried():
            if isinstance(mine.mask, ProbedMask):
                stored = mine.slot.sources[0]
                if wanted and stored.requires_grad:
                    mine.mask.open(stored)
                else:
                    mine.mask.close()

    def _gradients(self, masks: list[Carried]) -> Mapping[str, Tensor]:
        """Return the gradients of all connections; nothing if none will be regrown."""
        if self.plan.regrown(self.steps) == 0:
            return {}
        found = {}
        for mine in masks:
            gradient = mine.mask.close() if isinstance(mine.mask, ProbedMask) else None
            if gradient is not None:
                found[mine.name] = gradient
        return summed(found, {mine.name: mine.mask.mask for mine in masks}, self.group)
