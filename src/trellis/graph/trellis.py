"""Trace a model once: the trellis that audits, pruning and schedules share.

A trellis also chooses the tokens that it is traced with, and reads the current weights and masks
of its model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..devices import as_asked, on_cpu
from ..errors import TrellisError
from ..masks.masked import aliases, undisturbed
from ..masks.slots import Entangled, named_plain_modules, named_slots, tied
from .builder import TRUE
from .export import decompose, export, mutates, on_plain
from .inputs import (
    Inputs,
    as_inputs,
    describe,
    leaves,
    of_tensors,
    one_sample,
    refuse_hidden,
    specs,
    tensors,
    unwrapped,
)
from .interpreter import Interpreter, UnknownOperation
from .simplify import lean, needed
from .steps import (
    Bias,
    Contract,
    Either,
    Fixed,
    Gate,
    Product,
    Reshape,
    Signal,
    Source,
    Step,
    Weight,
)


@dataclass(eq=False)
class Trellis:
    """Describe the graph of units and uses of a model, as `trellis.trace` found it.

    Pass it in place of a model and its inputs: ``trellis.audit(net)``,
    ``trellis.prune(net, sparsity=0.9)``. Weights and masks are read from the model at each call,
    so a trellis stays valid while the model trains. Trace again when the structure of the model
    changes. The other attributes belong to the implementation and may change.

    Attributes:
        model: The traced model.
        connections: The shape of each parameter that holds connections, by parameter name, in the
            model's order.
        example_inputs: The `Inputs` that the model was traced with, cut to one sample.
        example: Their types and shapes, in words.
        total: Number of connections.
        output_units: Number of output units of one sample.

    Example:
        >>> import trellis
        >>> net = trellis.trace(nn.Linear(3, 2), torch.zeros(1, 3))
        >>> net.total, net.output_units, net.connections
        (6, 2, {'weight': (2, 3)})
    """

    model: nn.Module = field(repr=False)
    steps: list[Step] = field(repr=False)
    inputs: list[Signal] = field(repr=False)
    outputs: list[Signal] = field(repr=False)
    connections: dict[str, tuple[int, ...]]
    offsets: dict[str, int] = field(repr=False)
    example: str
    specs: list[dict[str, Any]] = field(repr=False)
    example_inputs: Inputs = field(repr=False)
    scoring: Trellis | None = field(default=None, repr=False)
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def total(self) -> int:
        """Number of connections."""
        return sum(math.prod(shape) for shape in self.connections.values())

    @property
    def output_units(self) -> int:
        """Number of output units of one sample."""
        return sum(math.prod(signal.shape) for signal in self.outputs)

    @cached_property
    def gated(self) -> bool:
        """Whether the model multiplies signals, so that zero and constant must be distinguished."""
        return any(isinstance(step, Gate | Product) for step in self.steps)

    @cached_property
    def biased(self) -> bool:
        """Whether the model adds constants (biases, norms, sigmoids)."""
        return any(isinstance(step, Bias) for step in self.steps)

    @cached_property
    def contractions(self) -> list[Contract]:
        """The steps that hold connections."""
        return [s for s in self.steps if isinstance(s, Contract)]

    @cached_property
    def uses(self) -> int:
        """Number of uses: a connection counts once for each place that shares it."""
        return sum(math.prod(s.weight.shape) * s.x.shape[1] for s in self.contractions)

    @cached_property
    def useful(self) -> set[int]:
        """Ids of the signals that backward messages must reach.

        In a lean trellis these are the signals behind a connection; otherwise all signals.
        """
        found: set[int] = set()
        lean = self.__dict__.get("lean") is self
        for step in self.steps:
            if not lean or isinstance(step, Contract) or any(x.id in found for x in step.operands):
                found.add(step.out.id)
        return found

    @cached_property
    def lean(self) -> Trellis:
        """The same connections, outputs and paths in fewer steps and positions."""
        short = lean(self.steps, self.outputs, gated=self.gated)
        scoring = None if self.scoring is None else self.scoring.lean
        net = replace(self, steps=short, scoring=scoring, cache={})
        net.__dict__["lean"] = net  # it is already as short as possible
        return net

    @property
    def wired(self) -> Trellis:
        """The trellis on which paths are scored, by products along plain paths.

        This trellis itself also knows what normalisations remove, and which tokens exclude each
        other.
        """
        return self if self.scoring is None else self.scoring

    def on(self, tensor: Tensor, device: torch.device) -> Tensor:
        """Return a constant of the trellis on a device; it is moved once and cached."""
        if tensor.device == device:
            return tensor
        key = (id(tensor), device)
        if key not in self.cache:
            # The tensor itself is kept too: its id is valid only while it exists.
            self.cache[key] = tensor, tensor.to(device)
        found: Tensor = self.cache[key][1]
        return found


@on_cpu()
def trace(model: nn.Module | Trellis, example_inputs: Any = None) -> Trellis:
    """Trace a model once, for any number of audits and prunings.

    The model is exported by `torch.export` in eval mode and is not changed. Tracing takes most of
    the time of an audit, so trace once if you audit or prune the same model repeatedly.

    Args:
        model: The model to trace. A trellis is returned unchanged.
        example_inputs: What the model is called with: a tensor, a tuple of positional inputs, a
            dict of keyword inputs, or `trellis.Inputs` for both. Shapes and types matter, and so
            do the values of integer and boolean inputs other than tokens (masks, edge lists).
            Inputs are moved to the model's device. A batch is cut to its first sample, since
            units are counted for one sample.

    Returns:
        The trellis. It stands in for ``(model, example_inputs)`` in every function.

    Raises:
        TrellisError: The inputs do not fit the model, or the model has an operation that the
            tracer does not know; `trellis.rule` teaches it one.

    Example:
        >>> import trellis
        >>> model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
        >>> net = trellis.trace(model, torch.zeros(1, 3))
        >>> net.total, net.output_units, list(net.connections)
        (8, 1, ['0.weight', '2.weight'])
        >>> trellis.prune(net, sparsity=0.5).kept
        4
    """
    if isinstance(model, Trellis):
        return model
    if not isinstance(model, nn.Module):
        raise TrellisError(f"expected a torch.nn.Module or a traced trellis, got {model!r:.80}")
    model = unwrapped(model)

    def read(seen: nn.Module) -> Traced:
        inputs = as_inputs(seen, example_inputs)
        with as_asked():
            given = one_sample(seen, inputs)
            program = export(seen, given, of=model)
        canonical = {name: first for first, names in aliases(seen).items() for name in names}
        order = [name for name, _ in seen.named_parameters()]
        found = interpret(program, leaves(given), canonical, of=model)
        return Traced(found, order, given, canonical)

    first = on_plain(model, read)
    found, order, inputs = first.found, first.order, first.inputs
    if not found.outputs:
        raise TrellisError(
            f"{type(model).__name__} returns nothing that depends on its inputs "
            f"{describe(inputs)} or its parameters; expected a model whose output is computed "
            "from its input"
        )
    net = assemble(model, found, order, inputs)
    tried = None
    if net.gated and found.build.vocabularies:

        def read_again(seen: nn.Module) -> Interpreter | None:
            with as_asked():
                return token_by_token(seen, first, net.uses, of=model)

        tried = on_plain(model, read_again)
    if tried is None:
        return net
    exact = assemble(model, tried, order, inputs)
    return replace(net, steps=exact.steps, inputs=exact.inputs, outputs=exact.outputs,
                   offsets=exact.offsets, scoring=net.wired, cache={})  # fmt: skip


@dataclass(frozen=True)
class Traced:
    """Hold the result of one trace: the interpreter, the order of the parameters, one sample of the
    inputs, and the canonical name of each parameter name."""

    found: Interpreter
    order: list[str]
    inputs: Inputs
    canonical: dict[str, str]


def token_by_token(
    model: nn.Module, first: Traced, uses: int, *, of: nn.Module
) -> Interpreter | None:
    """Trace the model over a batch of token assignments (see `tokens`) and join its outputs.

    None if the model has no tokens, or if there are too many assignments to try.
    """
    found = first.found
    given = tensors(first.inputs)
    if given is None:
        return None
    looked_up = {
        place: found.build.vocabularies[signal.id]
        for place, signal in enumerate(found.input_signals)
        if signal.id in found.build.vocabularies
    }
    tried_tokens = assignments(given, looked_up, most=MOST_USES // max(uses, 1))
    if tried_tokens is None:
        return None
    waiting = iter(tried_tokens)
    batch = of_tensors(first.inputs, lambda _: next(waiting))
    pair = of_tensors(batch, lambda x: x[:2])
    if one_sample(model, pair) is pair:  # the first dimension is not a batch
        return None
    try:
        program = export(model, batch, of=of)
        tried = interpret(program, leaves(batch), first.canonical, of=of, one_row=True)
    except Entangled:
        raise
    except TrellisError:  # the model computes with tokens before it looks them up
        return None
    tried.outputs = [tried.build.reduce(out, [0], keepdim=True) for out in tried.outputs]
    return tried


def interpret(
    program: Any,
    flat: list[Any],
    canonical: dict[str, str],
    *,
    of: nn.Module,
    one_row: bool = False,
) -> Interpreter:
    """Interpret an exported program.

    It is decomposed first if it changes tensors in place or has operations without a rule.
    """
    if not mutates(program):
        with suppress(UnknownOperation):
            return walked(Interpreter(program, flat, canonical, one_row=one_row))
    return walked(Interpreter(decompose(program, of), flat, canonical, one_row=one_row))


def walked(interpreter: Interpreter) -> Interpreter:
    interpreter.run()
    return interpreter


def assemble(model: nn.Module, found: Interpreter, order: list[str], inputs: Inputs) -> Trellis:
    """Build the trellis: drop steps that lead to no output, and find what holds connections."""
    made = without_added(found.build.steps, found.build.driven)
    steps = resolved(made, found.outputs, exact=True)
    held: dict[str, tuple[int, ...]] = {}
    for step in made:
        if isinstance(step, Contract):
            for name in names_in(step.weight):
                held[name] = found.shapes[name]
    connections = {name: held[name] for name in order if name in held}
    scoring = None
    if any(isinstance(step, Either) for step in made):
        scoring = resolved(made, found.outputs, exact=False)
    net = Trellis(
        model,
        steps,
        found.input_signals,
        found.outputs,
        connections,
        found.offsets,
        describe(inputs),
        specs(inputs),
        inputs,
    )
    if scoring is not None:
        net.scoring = replace(net, steps=scoring, cache={})
    _ = net.lean.useful  # computed here, so that later calls do not wait for it
    return net


def resolved(made: list[Step], outputs: Sequence[Signal], *, exact: bool) -> list[Step]:
    """Choose one side of every `Either`, and return the steps that lead to an output."""
    chosen: list[Step] = []
    for step in made:
        if isinstance(step, Either):
            side = step.rest if exact else step.x
            step = Source(step.out, False, ~TRUE) if side is None else Reshape(step.out, side)
        chosen.append(step)
    return needed(chosen, outputs)


def without_added(steps: list[Step], driven: set[int]) -> list[Step]:
    """Turn lifted parameters that are only added to signals back into constants (biases).

    A lifted parameter holds connections only if it multiplies a signal that depends on an input.
    """
    lifted: dict[int, set[int]] = {}  # signal -> the lifting steps it comes from
    multiplies: set[int] = set()
    sources = {step.out.id for step in steps if isinstance(step, Source) and step.lifts}
    for step in steps:
        own = {step.out.id} if isinstance(step, Contract) and step.x.id in sources else set()
        parts = [lifted.get(x.id, set()) for x in step.operands]
        if isinstance(step, Gate | Product):
            for mine, other in ((step.x, step.y), (step.y, step.x)):
                if other.id in driven:
                    multiplies |= lifted.get(mine.id, set())
        if step.out.id not in driven:
            lifted[step.out.id] = own.union(*parts)
    return [
        Source(step.out, False, TRUE)
        if isinstance(step, Contract) and step.x.id in sources and step.out.id not in multiplies
        else step
        for step in steps
    ]


def names_in(weight: Weight) -> list[str]:
    """Return the names of the parameters that a weight is computed from."""
    if weight.name is not None:
        return [weight.name]
    positions = weight.carrier[weight.carrier >= 0]
    ordered = sorted(weight.offsets.items(), key=lambda item: item[1])
    starts = torch.tensor([start for _, start in ordered])
    which = torch.unique(torch.searchsorted(starts, positions, right=True) - 1)
    return [ordered[i][0] for i in which.tolist()]


ALL = 256
PAIRS = 1024
MOST_USES = 1 << 27  # uses of connections, over all assignments


def assignments(
    inputs: Sequence[Tensor], vocabularies: Mapping[int, int], most: int
) -> tuple[Tensor, ...] | None:
    """Return the inputs as a batch with one sample for each assignment.

    None if there are more than ``most`` assignments. ``vocabularies`` maps the place of each input
    that holds tokens to the size of its vocabulary.

    >>> assignments([torch.zeros(1, 2, dtype=torch.int64)], {0: 2}, 4)[0].tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    if any(x.shape[:1] != (1,) for x in inputs):
        return None
    sizes = [vocabularies[i] for i in vocabularies for _ in range(inputs[i].numel())]
    if not sizes:
        return None
    rows = _all(sizes) if math.prod(sizes) <= ALL else _pairs(sizes)
    if rows is None or len(rows) > most:
        return None
    batch, start = [], 0
    for place, x in enumerate(inputs):
        if place in vocabularies:
            mine = rows[:, start : start + x.numel()]
            start += x.numel()
            batch.append(mine.reshape(len(rows), *x.shape[1:]).to(x))
        else:
            batch.append(x.expand(len(rows), *x.shape[1:]).clone())
    return tuple(batch)


def _all(sizes: Sequence[int]) -> Tensor:
    count = torch.arange(math.prod(sizes))
    columns = []
    for size in sizes:
        columns.append(count % size)
        count = count // size
    return torch.stack(columns, 1)


def _pairs(sizes: Sequence[int]) -> Tensor | None:
    """Return an orthogonal array (p², columns), p prime: every two columns hold every pair.

    Column j of row (a, b) is a + j b modulo p, so two columns determine a and b.
    """
    p = max(*sizes, len(sizes), 2) if len(sizes) > 1 else sizes[0]
    while any(p % d == 0 for d in range(2, math.isqrt(p) + 1)):
        p += 1
    if p * p > PAIRS:
        return None
    a, b = torch.arange(p * p) // p, torch.arange(p * p) % p
    return torch.stack([(a + j * b) % p % size for j, size in enumerate(sizes)], 1)


@dataclass(frozen=True, eq=False)
class Current:
    """Hold the effective ``weights`` of all parameters with connections, and their ``masks``.

    Both are keyed by plain name. All tensors are contiguous, whatever the model's memory layout.
    """

    weights: dict[str, Tensor]
    masks: dict[str, Tensor]

    def kept(self) -> dict[str, Tensor]:
        """Return True where the mask is 1 or, without a mask, where the weight is not 0."""
        return {
            name: _nonzero(weight) if (mask := self.masks.get(name)) is None else mask
            for name, weight in self.weights.items()
        }


def _nonzero(weight: Tensor) -> Tensor:
    """Return where a tensor is not 0; on the CPU numpy is several times faster than torch."""
    if weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.asarray(weight.numpy() != 0))
    return weight != 0


def current(net: Trellis) -> Current:
    """Read the weights and masks of the traced model."""
    return undisturbed(net.model, lambda: _current(net))


def _current(net: Trellis) -> Current:
    refuse_hidden(net.model)
    weights: dict[str, Tensor] = {}
    masks: dict[str, Tensor] = {}
    for group in tied(named_slots(net.model), masked=True):
        for name, slot in group:
            if name not in net.connections:
                continue
            value = slot.value()
            if tuple(value.shape) != net.connections[name]:
                raise TrellisError(
                    f"{name!r}: expected the shape {net.connections[name]} of the trace, got "
                    f"{tuple(value.shape)}; trace the model again"
                )
            weights[name] = value.contiguous()
            if slot.mask is not None:
                masks[name] = slot.mask.bool().contiguous()
                if slot.overruled:  # a later parametrization may undo the mask
                    masks[name] = masks[name] | (weights[name] != 0)
            break
    gone = [name for name in net.connections if name not in weights]
    if gone:
        raise TrellisError(f"{gone[0]!r} is no longer in the model; trace the model again")
    devices = {w.device for w in weights.values()}
    if len(devices) > 1:
        raise TrellisError(
            f"expected a model on one device, got {', '.join(sorted(map(str, devices)))}; "
            "move it to one device"
        )
    return Current({n: weights[n] for n in net.connections}, masks)


def matching(net: Trellis, patterns: str | Collection[str]) -> list[str]:
    """Return the parameters with a name that matches a pattern (shell style, ``head.*``).

    A tied parameter has several names. A pattern that matches no parameter is an error, since it
    is probably misspelt. The adapters of peft always match.
    """
    patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    adapters = _adapters(net.model)
    if not patterns and not adapters:
        return []
    slots = list(named_slots(net.model))
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name, _ in slots):
            raise TrellisError(
                f"ignore pattern {pattern!r} fits no parameter; there are "
                f"{', '.join(map(repr, list(net.connections)[:8]))}"
                f"{' …' if len(net.connections) > 8 else ''}"
            )
    fits = {
        name: any(
            alias.startswith(adapters) or any(fnmatchcase(alias, pattern) for pattern in patterns)
            for alias, _ in group
        )
        for group in tied(slots, masked=False)
        for name, _ in group
    }
    return [name for name in net.connections if fits[name]]


def _adapters(model: nn.Module) -> tuple[str, ...]:
    """Return how the names of peft's adapters (LoRA and others) begin.

    An adapter starts at zero, and its weights are merged into others later. A layer with adapters
    lists the attributes that hold them.
    """
    return tuple(
        f"{prefix}.{leaf}" if prefix else leaf
        for prefix, module in named_plain_modules(model)
        for leaf in getattr(type(module), "adapter_layer_names", ())
    )


def without(net: Trellis, names: list[str], weights: dict[str, Tensor]) -> Trellis:
    """Return the same trellis with these parameters as constants instead of connections."""
    if not names:
        return net
    gone = set(names)
    steps: list[Step] = []
    for step in net.steps:
        if isinstance(step, Contract):
            used = set(names_in(step.weight))
            if used & gone and not used <= gone:
                raise TrellisError(
                    f"{', '.join(sorted(used))} are used as one matrix; ignore all of them or none"
                )
            if used <= gone:
                step = Fixed(step.out, step.x, _constant(step.weight, weights))
        steps.append(step)
    left = {n: shape for n, shape in net.connections.items() if n not in gone}
    scoring = None if net.scoring is None else without(net.scoring, names, weights)
    return replace(net, steps=steps, connections=left, scoring=scoring, cache={})


def _constant(weight: Weight, weights: dict[str, Tensor]) -> Tensor:
    sizes = {n: weights[n].numel() for n in names_in(weight)}
    flat = torch.zeros(max(weight.offsets[n] + sizes[n] for n in sizes))
    for name in sizes:
        start = weight.offsets[name]
        flat[start : start + sizes[name]] = weights[name].detach().cpu().float().abs().reshape(-1)
    positions = weight.positions()
    return torch.where(positions >= 0, flat[positions.clamp(min=0)], torch.zeros(()))
