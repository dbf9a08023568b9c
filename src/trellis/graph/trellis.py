"""The traced trellis: a value that audits, prunes and schedules share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from ..devices import as_asked, on_cpu
from ..errors import TrellisError
from ..masks.plain import aliases
from ..masks.slots import named_plain_modules
from ..masks.structure import Entangled
from .builder import TRUE
from .export import decompose, export, mutates, on_plain
from .inputs import Inputs, as_inputs, describe, leaves, of_tensors, one_sample, specs, tensors
from .interpreter import Interpreter, UnknownOperation
from .simplify import lean, needed
from .steps import Bias, Contract, Either, Gate, Product, Reshape, Signal, Source, Step, Weight
from .tokens import MOST_USES, assignments


@dataclass(eq=False)
class Trellis:
    """The graph of units and uses of a model.

    ``steps`` in order of evaluation; ``connections`` maps each parameter that holds connections
    to its shape, in the model's own order. ``model`` is where current weights are read from.
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
        """How many connections there are."""
        return sum(math.prod(shape) for shape in self.connections.values())

    @property
    def output_units(self) -> int:
        return sum(math.prod(signal.shape) for signal in self.outputs)

    @cached_property
    def gated(self) -> bool:
        """Whether signals are multiplied anywhere, so that zero must be told from constant."""
        return any(isinstance(step, Gate | Product) for step in self.steps)

    @cached_property
    def biased(self) -> bool:
        """Whether constants are added anywhere (biases, norms, sigmoids)."""
        return any(isinstance(step, Bias) for step in self.steps)

    @cached_property
    def contractions(self) -> list[Contract]:
        """The steps that hold connections."""
        return [s for s in self.steps if isinstance(s, Contract)]

    @cached_property
    def uses(self) -> int:
        """How many uses there are: a connection counts once for each place that shares it."""
        return sum(math.prod(s.weight.shape) * s.x.shape[1] for s in self.contractions)

    @cached_property
    def useful(self) -> set[int]:
        """Signals that messages must come back to: those that connections lead to. Whoever asks
        about connections only, of a lean trellis, has no use for others; else it is all."""
        found: set[int] = set()
        lean = self.__dict__.get("lean") is self
        for step in self.steps:
            if not lean or isinstance(step, Contract) or any(x.id in found for x in step.operands):
                found.add(step.out.id)
        return found

    @cached_property
    def lean(self) -> Trellis:
        """The same connections, outputs and paths in fewer steps and positions; see `lean`."""
        short = lean(self.steps, self.outputs, gated=self.gated)
        scoring = None if self.scoring is None else self.scoring.lean
        net = replace(self, steps=short, scoring=scoring, cache={})
        net.__dict__["lean"] = net  # nothing is left to shorten
        return net

    @property
    def wired(self) -> Trellis:
        """The trellis on which paths are scored: products along plain paths, where this one
        knows what normalisations remove and which tokens exclude each other."""
        return self if self.scoring is None else self.scoring

    def on(self, tensor: Tensor, device: torch.device) -> Tensor:
        """A constant of the trellis on a device, moved once."""
        if tensor.device == device:
            return tensor
        key = (id(tensor), device)
        if key not in self.cache:
            self.cache[key] = tensor, tensor.to(device)  # both: an id is only good while it lives
        found: Tensor = self.cache[key][1]
        return found


@on_cpu()
def trace(model: nn.Module | Trellis, example_inputs: Any = None) -> Trellis:
    """Trace a model once, for any number of audits and prunings.

    ``example_inputs`` is a tensor or a tuple of them, as the model is called. A batch of more
    than one is cut to its first sample: units are counted batch aside.

    >>> net = trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), torch.zeros(1, 3))
    >>> net.total, net.output_units, list(net.connections)
    (8, 1, ['0.weight', '2.weight'])
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
            f"{describe(inputs)} or its parameters: there is no path to look for"
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
    """A model walked through once: what was found, the order of its parameters, one sample of its
    inputs, and for every name of a parameter its first."""

    found: Interpreter
    order: list[str]
    inputs: Inputs
    canonical: dict[str, str]


def token_by_token(
    model: nn.Module, first: Traced, uses: int, *, of: nn.Module
) -> Interpreter | None:
    """The same model over a batch of token assignments (see :mod:`.tokens`), its outputs joined;
    None where there are no tokens, or where that is too much to try."""
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
    except TrellisError:  # tokens that are computed with before they are looked up
        return None
    tried.outputs = [tried.build.reduce(out, [0], keepdim=True) for out in tried.outputs]
    return tried


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, whose names count, inside `torch.compile` and data-parallel wrappers."""
    while True:
        inner: object = getattr(model, "_orig_mod", None)  # where torch.compile keeps it
        if isinstance(model, DataParallel | DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            _refuse_opaque(model)
            return model
        model = inner


def _refuse_opaque(model: nn.Module) -> None:
    """Raise if a part of the model hides its weights from Python, or stores them as no array."""
    name = type(model).__name__
    for place, module in named_plain_modules(model):  # raises for TorchScript
        where = f"{place!r} of {name}" if place else name
        kind = type(module)
        packed = kind.__module__.startswith("torch.ao.nn.") and ".quantized." in kind.__module__
        if packed and not kind.__name__.endswith("Functional"):
            raise TrellisError(
                f"{where} is quantised ({kind.__module__}.{kind.__name__}), so its weights are "
                "packed; prune and compact the floating-point model first, then quantise it"
            )
    for place, parameter in model.named_parameters():
        if not is_lazy(parameter) and parameter.layout is not torch.strided:
            raise TrellisError(
                f"parameter {place!r} of {name} is stored as {parameter.layout}; expected an "
                "ordinary tensor: make it one with to_dense(), and mask what should stay zero"
            )


def interpret(
    program: Any,
    flat: list[Any],
    canonical: dict[str, str],
    *,
    of: nn.Module,
    one_row: bool = False,
) -> Interpreter:
    """Walk an exported program, rewritten first where it changes tensors in place or has
    operations without a rule."""
    if not mutates(program):
        with suppress(UnknownOperation):
            return walked(Interpreter(program, flat, canonical, one_row=one_row))
    return walked(Interpreter(decompose(program, of), flat, canonical, one_row=one_row))


def walked(interpreter: Interpreter) -> Interpreter:
    interpreter.run()
    return interpreter


def assemble(model: nn.Module, found: Interpreter, order: list[str], inputs: Inputs) -> Trellis:
    """Drop steps that lead to no output, and see which parameters hold connections."""
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
    _ = net.lean.useful  # now, so that those who trace once need not wait for it later
    return net


def resolved(made: list[Step], outputs: Sequence[Signal], *, exact: bool) -> list[Step]:
    """The steps that lead to an output, with one side of every `Either`."""
    chosen: list[Step] = []
    for step in made:
        if isinstance(step, Either):
            side = step.rest if exact else step.x
            step = Source(step.out, False, ~TRUE) if side is None else Reshape(step.out, side)
        chosen.append(step)
    return needed(chosen, outputs)


def without_added(steps: list[Step], driven: set[int]) -> list[Step]:
    """Parameters that were computed with, and then only added to signals, are biases: what was
    lifted as a connection becomes a constant again.

    A lifted parameter holds connections if it comes to multiply a signal that an input drives.
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
    """Parameters that a weight draws on."""
    if weight.name is not None:
        return [weight.name]
    positions = weight.carrier[weight.carrier >= 0]
    ordered = sorted(weight.offsets.items(), key=lambda item: item[1])
    starts = torch.tensor([start for _, start in ordered])
    which = torch.unique(torch.searchsorted(starts, positions, right=True) - 1)
    return [ordered[i][0] for i in which.tolist()]
