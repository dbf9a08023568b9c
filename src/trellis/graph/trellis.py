"""Trace a model once: the trellis that audits, pruning and schedules share."""

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


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside `torch.compile` and data-parallel wrappers; its names are used."""
    while True:
        inner: object = getattr(model, "_orig_mod", None)  # where torch.compile keeps it
        if isinstance(model, DataParallel | DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            _refuse_opaque(model)
            return model
        model = inner


def _refuse_opaque(model: nn.Module) -> None:
    """Raise if a module hides its weights from Python or does not store them as dense tensors."""
    name = type(model).__name__
    for place, module in named_plain_modules(model):  # raises for TorchScript
        where = f"{place!r} of {name}" if place else name
        kind = type(module)
        packed = kind.__module__.startswith("torch.ao.nn.") and ".quantized." in kind.__module__
        if packed and not kind.__name__.endswith("Functional"):
            raise TrellisError(
                f"{where} is quantised ({kind.__module__}.{kind.__name__}); expected "
                "floating-point weights; prune and compact the model first, then quantise it"
            )
    for place, parameter in model.named_parameters():
        if not is_lazy(parameter) and parameter.layout is not torch.strided:
            raise TrellisError(
                f"parameter {place!r} of {name} is stored as {parameter.layout}; expected an "
                "ordinary tensor; convert it with to_dense(), and mask what should stay zero"
            )


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
