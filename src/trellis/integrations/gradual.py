"""Gradual pruning that starts with the first batch: what the callbacks have in common."""

from __future__ import annotations

import base64
import inspect
import math
import random
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import TrellisError
from ..graph.inputs import Inputs
from ..masks.masks import pack, unpack
from ..masks.slots import named_slots
from ..methods.budget import budget as exact_budget
from ..paths.audit import audit
from ..training.pruner import Pruner
from ..training.schedule import Schedule, options_of

CURVE = "cubic"
RENEWALS = 50  # mask updates of the default schedule


def missing(package: str, extra: str) -> TrellisError:
    """Return the error for a package that is not installed."""
    return TrellisError(f"{package} is not installed; run: pip install 'trellis-prune[{extra}]'")


class GradualPruning:
    """Hold the options of a pruner until there is a model, a batch and a number of steps.

    Args:
        sparsity: The fraction of connections removed at the end; or give ``keep``.
        keep: The number of connections kept at the end.
        schedule: The schedule, or the name of its curve. See `default_schedule`.
        example_inputs: Inputs to trace the model with, or a function that makes them from a batch.
        **options: Other options of `trellis.Pruner`.
    """

    def __init__(
        self,
        *,
        sparsity: float | None,
        keep: int | None,
        schedule: Schedule | str | None,
        example_inputs: Any,
        **options: Any,
    ) -> None:
        exact_budget(1 << 62, sparsity, keep)  # options are checked now, not after the data is read
        if schedule is not None and not isinstance(schedule, Schedule):
            default_schedule(2, schedule)
        options_of({k: v for k, v in options.items() if k not in ("regrow", "group")})
        self.target: dict[str, Any] = {"sparsity": sparsity, "keep": keep}
        self.schedule, self.options = schedule, options
        self.example_inputs = example_inputs
        self.pruner: Pruner | None = None
        self.saved: Mapping[str, Any] | None = None  # loaded before there is a pruner

    def begin(self, model: nn.Module, batch: Any, steps: float, labels: Collection[str]) -> Pruner:
        """Make the pruner; continue from the saved state, if there is one.

        Args:
            model: The model.
            batch: A batch; or a function that returns one, called only if it is needed.
            steps: The number of optimizer steps of the whole training.
            labels: Names in the batch that are no inputs of the model.
        """
        inputs = self.example_inputs
        if inputs is None or (callable(inputs) and not isinstance(inputs, nn.Module)):
            batch = batch() if callable(batch) else batch
            inputs = inputs_of(model, batch, labels) if inputs is None else inputs(batch)
        schedule = self.schedule
        if not isinstance(schedule, Schedule):
            if self.saved:  # training may be longer now than it was
                schedule = Schedule(**self.saved["plan"]["schedule"])
            else:
                schedule = default_schedule(steps, schedule or CURVE)
        if self.saved:
            _check_restored(model, self.saved["masks"])
        options = dict(self.options)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            options.setdefault("group", dist.group.WORLD)
        self.pruner = Pruner(
            model, inputs, **self.target, schedule=schedule, state=self.saved or None, **options
        )
        self.saved = None
        self._live = self._count()
        return self.pruner

    def step(self) -> bool:
        """Count an optimizer step; return whether masks were updated."""
        assert self.pruner is not None
        renewed = self.pruner.step() is not None
        if renewed:
            self._live = self._count()
        return renewed

    def state(self) -> dict[str, Any]:
        """Return the state of the pruner; before it is made, the state that was loaded."""
        return dict(self.saved or {}) if self.pruner is None else self.pruner.state_dict()

    def progress(self) -> dict[str, float]:
        """Return what is logged: connections kept and live, and the sparsity."""
        assert self.pruner is not None
        kept, live = self._live
        return {
            "trellis/kept": kept,
            "trellis/live": live,
            "trellis/sparsity": 1 - kept / self.pruner.total,
        }

    def _count(self) -> tuple[int, int]:
        pruner = self.pruner
        assert pruner is not None
        if pruner.options.closes and pruner.budget < pruner.total:
            return pruner.kept, pruner.kept  # the pruner has audited them
        found = audit(pruner.net, ignore=pruner.options.ignored)
        return found.kept, found.live


def default_schedule(steps: float, curve: str = CURVE) -> Schedule:
    """Return a schedule for a training of ``steps`` optimizer steps.

    The masks are updated some fifty times, from 10 % to 70 % of the steps. The rest fine-tunes.

    >>> default_schedule(1000)
    Schedule(curve='cubic', begin=100, end=700, every=12, initial_sparsity=0.0)
    """
    if not math.isfinite(steps) or steps < 1:
        raise TrellisError(
            f"expected a training with a known number of steps, got {steps}; give "
            "schedule=trellis.Schedule(...), or limit the training (max_steps, max_epochs)"
        )
    if curve == "one-shot":
        return Schedule(curve, begin=int(steps) // 10)
    begin = int(steps) // 10
    end = max(begin + 1, 7 * int(steps) // 10)
    return Schedule(curve, begin=begin, end=end, every=max(1, (end - begin) // RENEWALS))


def inputs_of(model: nn.Module, batch: Any, labels: Collection[str] = ()) -> Any:
    """Return the inputs of a model in a batch.

    Of a dict, those are the entries that ``forward()`` has parameters for, without the labels. Of
    a tuple or list, as many of the first entries as ``forward()`` requires, at least one. Anything
    else is the one input.
    """
    base = getattr(model, "get_base_model", lambda: model)()  # of peft
    parameters = inspect.signature(base.forward).parameters.values()
    if isinstance(batch, Mapping):
        names = [p.name for p in parameters]
        anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        found = {
            name: value
            for name, value in batch.items()
            if name not in labels and (name in names or anything)
        }
        if not found:
            raise TrellisError(
                f"expected a batch with inputs of {type(base).__name__}.forward() "
                f"({', '.join(names)}), got {', '.join(map(str, batch))}; give example_inputs="
            )
        return Inputs(**found)
    if isinstance(batch, Sequence) and not isinstance(batch, str):
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        required = [p for p in parameters if p.kind in positional and p.default is p.empty]
        first = batch[: max(1, len(required))]
        if len(first) == 1 and isinstance(first[0], Mapping):
            return inputs_of(model, first[0], labels)
        return tuple(first)
    if not isinstance(batch, Tensor):
        raise TrellisError(
            f"expected a batch of tensors, got {type(batch).__name__}; give example_inputs=, the "
            "inputs themselves or a function that makes them from a batch"
        )
    return batch


def _check_restored(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Raise if weights are not those of the checkpoint: there, all that is pruned is 0.

    The Trainer of Transformers does not say so where a checkpoint has other names than the model.
    Frozen weights are not looked at: checkpoints of adapters do not hold them.
    """
    for name, slot in named_slots(model):
        if name not in masks or not slot.requires_grad:
            continue
        weight = slot.value()
        if bool(weight[~masks[name].to(weight.device)].any()):
            raise TrellisError(
                f"expected the weights of the checkpoint, got others in {name!r}: it was not "
                "restored. In Transformers, make the model with from_pretrained(CHECKPOINT), and "
                "resume with that"
            )


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """Put all random number generators of the CPU back at the end."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def packed(value: Any) -> Any:
    """Return a pruner's state as JSON can hold it: masks as text, eight connections a byte."""
    if isinstance(value, Tensor):
        text = base64.b64encode(zlib.compress(pack(value).tobytes(), 1)).decode()
        return {"shape": list(value.shape), "bits": text}
    return {k: packed(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def unpacked(value: Any) -> Any:
    """Invert `packed`."""
    if isinstance(value, Mapping) and value.keys() == {"shape", "bits"}:
        content = zlib.decompress(base64.b64decode(value["bits"]))
        return unpack(np.frombuffer(content, np.uint8).copy(), tuple(value["shape"]))
    return {k: unpacked(v) for k, v in value.items()} if isinstance(value, Mapping) else value
