"""The compacted model: a module that runs a list of operations, and its report of sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...errors import TrellisError
from ...graph.inputs import from_specs, values
from ...graph.trellis import Trellis, current
from ...masks import plain
from ...paths.kernels import count
from ...paths.liveness import draw
from ...saving.model import registered
from ...schema import CompactedInput, CompactedModel, CompactedReport, fitted
from .program import HERE, KINDS, Held, Program, Ref, placed, replaced
from .safety import called, check_size, checked

# The report of a compaction: sizes before and after, what had to stay and why.


@dataclass(frozen=True)
class Size:
    """How large a network is.

    Attributes:
        units: Units that its layers compute, batch aside.
        connections: Entries of its weights.
        kept: Connections that are not pruned.
        dense: Multiplications per sample, with all connections.
        sparse: Multiplications per sample, with kept connections.
        bytes: Size of all tensors.
    """

    units: int
    connections: int
    kept: int
    dense: int
    sparse: int
    bytes: int

    @classmethod
    def of(cls, net: Trellis, model: nn.Module) -> Size:
        net = net.wired  # each layer once
        kept = current(net).kept()
        with plain(model) as seen:
            tensors = {t.data_ptr(): t for t in seen.state_dict().values()}
            size = sum(t.numel() * t.element_size() for t in tensors.values())
        return cls(
            units=sum(math.prod(step.out.shape) for step in net.contractions),
            connections=net.total,
            kept=sum(count(mask) for mask in kept.values()),
            dense=net.uses,
            sparse=sum(
                count(draw(net, step.weight, kept)) * step.x.shape[1] for step in net.contractions
            ),
            bytes=size,
        )


@dataclass(frozen=True)
class Stay:
    """Dead units of a layer that had to stay, and why."""

    layer: str
    units: int
    why: str

    def __str__(self) -> str:
        return f"{self.layer}: {self.units:,} stay because {self.why}"


@dataclass(frozen=True)
class Report:
    """What a compaction changed; prints as a table.

    Attributes:
        before: Size of the given model.
        after: Size of the compacted model.
        stays: Dead units that had to stay.
        notes: Further remarks.
    """

    before: Size
    after: Size
    stays: tuple[Stay, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Report:
        """Rebuild a report from `to_dict`."""
        found = fitted(given, CompactedReport)
        before, after = (Size(**found[when]) for when in ("before", "after"))
        return cls(before, after, tuple(Stay(**s) for s in found["stays"]), tuple(found["notes"]))

    def rows(self) -> list[list[str]]:
        """Return the table: a header, and one row per measure."""
        rows = [["", "before", "after", "of before"]]
        words = {
            "units": "units",
            "connections": "connections",
            "kept": "of them kept",
            "dense": "multiplications, dense",
            "sparse": "multiplications, sparse",
            "bytes": "bytes",
        }
        for name, word in words.items():
            a, b = getattr(self.before, name), getattr(self.after, name)
            rows.append([word, f"{a:,}", f"{b:,}", _share(b, a)])
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(cells)).rstrip()
            for cells in (list(zip(row, widths, strict=True)) for row in rows)
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        told = [f"- {stay}" for stay in self.stays] + [f"- {note}" for note in self.notes]
        return "\n".join([*lines, *([""] if told else []), *told])


def _share(part: int, whole: int) -> str:
    """
    >>> _share(1, 4), _share(3, 1000), _share(0, 0)
    ('25 %', '0.3 %', '')
    """
    return f"{100 * part / whole:.3g} %" if whole else ""


def measured(model: nn.Module, net: Trellis) -> Size:
    """Measure a model that was traced."""
    with torch.no_grad():
        return Size.of(net, model)


# The compacted model: a module that runs a list of operations over its own tensors.


_LARGEST = 1 << 32  # entries of an example input


@registered("Compacted")
class Compacted(nn.Module):
    """The model that `trellis.compact` returns: the same function with fewer units.

    It trains, saves, deep-copies and exports like any module. Kept connections learn; removed
    ones stay removed. Parameters and buffers keep their names.

    Attributes:
        report: Sizes before and after, what had to stay and why. ``print(model)`` shows it.

    >>> import trellis
    >>> model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    >>> _ = trellis.prune(model, torch.zeros(1, 8), sparsity=0.9)
    >>> small = trellis.compact(model, torch.zeros(1, 8))
    >>> small.report.after.connections < small.report.before.connections
    True
    >>> small(torch.zeros(5, 8)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        program: Program,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        report: Report,
        specs: Sequence[Mapping[str, Any]] = (),
        flat: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        for name, tensor in parameters.items():
            home, leaf = self._home(name)
            parameter = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor)
            home.register_parameter(leaf, parameter)
        for name, tensor in buffers.items():
            home, leaf = self._home(name)
            home.register_buffer(leaf, tensor)
        self.report = report
        self.specs = [dict(spec) for spec in specs]
        # The same for every tensor among the inputs, in the order of the program's names.
        self.flat = self.specs if flat is None else [dict(spec) for spec in flat]
        self.program = program
        if missing := set(program.held()) - parameters.keys() - buffers.keys():
            raise TrellisError(f"the tensor {sorted(missing)[0]!r} is missing")
        self._held = [(name, *_split(name)) for name in program.held()]
        self._last = program.last_uses()
        self.eval()

    def _home(self, name: str) -> tuple[nn.Module, str]:
        """Return the module that holds a tensor of this name, creating it if needed."""
        *path, leaf = name.split(".")
        home: nn.Module = self
        for part in path:
            if part not in home._modules:
                home.add_module(part, Part())
            home = home.get_submodule(part)
        if not leaf or leaf in home._modules or hasattr(home, leaf):
            raise TrellisError(f"invalid tensor name {name!r}")
        return home, leaf

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Compute what the original computes in eval mode, from inputs given in the same way."""
        given = pytree.tree_leaves(inputs)
        # Those without a name come first, and are given by position.
        names = list(dict.fromkeys(each["name"] for each in self.specs if "name" in each))
        if unknown := [name for name in named if name not in names]:
            raise TrellisError(
                f"unknown keyword input {unknown[0]!r}; the compacted model takes "
                f"{', '.join(names) or 'positional inputs only'}"
            )
        given += pytree.tree_leaves([named[name] for name in names if name in named])
        if len(given) != len(self.program.inputs):
            raise TrellisError(f"expected {len(self.program.inputs)} inputs, got {len(given)}")
        held = {name: getattr(self.get_submodule(path), leaf) for name, path, leaf in self._held}
        return self._run(given, held, called)

    def _run(
        self, given: Sequence[Any], held: Mapping[str, Tensor], call: Callable[..., Any]
    ) -> Any:
        """Run the list of operations, each by ``call(op, args, kwargs)``."""
        values: dict[str, Any] = dict(zip(self.program.inputs, given, strict=True))
        device = next((x.device for x in given if isinstance(x, Tensor)), torch.device("cpu"))

        def read(leaf: Any) -> Any:
            if isinstance(leaf, Ref):
                return values[leaf.name]
            return held[leaf.name] if isinstance(leaf, Held) else leaf

        for op, gone in zip(self.program.ops, self._last, strict=True):
            kwargs = replaced(dict(op.kwargs), read)
            if HERE in kwargs or placed(op.target):
                kwargs[HERE] = device
            values[op.name] = call(op, replaced(op.args, read), kwargs)
            for name in gone:
                values.pop(name, None)
        return replaced(self.program.result, read)

    def outputs(self, tensors: Mapping[str, Tensor] | None = None) -> list[dict[str, Any]] | None:
        """Return the type and shape of every output, for the shapes of the example inputs.

        None if the values of an input decide them. Raises if an operation cannot run. ``tensors``
        are the model's own, for a model that holds only their shapes.
        """
        held = {name: getattr(self.get_submodule(path), leaf) for name, path, leaf in self._held}
        with torch.no_grad():
            shapes = {name: torch.empty_like(t, device="meta") for name, t in held.items()}
            return checked(
                self.program,
                lambda given, call: self._run(given, shapes, call),
                self.flat,
                held if tensors is None else tensors,
            )

    def example(self) -> tuple[Tensor, ...]:
        """Return inputs of the shapes and types that the model was compacted with.

        Floats are drawn from a normal distribution, the same at every call; integers are 0.
        An attention mask is 1 everywhere.
        """
        for spec in self.specs:
            if "shape" not in spec or "dtype" not in spec:
                raise TrellisError(f"expected tensors as inputs of the model, got {spec!r:.80}")
        return tuple(values(from_specs(self.specs)))

    def described(self) -> dict[str, Any]:
        """Describe the architecture, for a saved model."""
        return {
            "program": self.program.to_json(),
            "report": self.report.to_dict(),
            "inputs": self.specs,
            "shapes": {"inputs": self.flat, "outputs": self.outputs()},
            "buffers": [name for name, _ in self.named_buffers() if not _of_a_mask(name)],
        }

    @classmethod
    def rebuilt(cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Compacted:
        """Rebuild a model from `described` and its tensors, by name."""
        found = fitted(description, CompactedModel, "$.architecture.arguments")
        program = Program.from_json(found["program"])
        buffers = set(found["buffers"])
        held = set(program.held())
        if unknown := sorted(held - tensors.keys()):
            raise TrellisError(f"the tensor {unknown[0]!r} is missing")
        made = {
            name: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
            for name, tensor in tensors.items()
            if name in held
        }
        if wrong := [n for n, t in made.items() if n not in buffers and not t.is_floating_point()]:
            raise TrellisError(
                f"expected floats in the parameter {wrong[0]!r}, got {made[wrong[0]].dtype}"
            )
        # Files of older releases have no shapes, so theirs are not compared.
        shapes = found.get("shapes")
        model = cls(
            program,
            {name: tensor for name, tensor in made.items() if name not in buffers},
            {name: tensor for name, tensor in made.items() if name in buffers},
            Report.from_dict(found["report"]),
            [_spec(spec) for spec in found["inputs"]],
            None if shapes is None else [_spec(spec) for spec in shapes["inputs"]],
        )
        if all("shape" in each for each in model.specs) and model.flat != model.specs:
            raise TrellisError(
                f"its inputs contradict each other: {model.specs!r:.80}, {model.flat!r:.80}"
            )
        outputs = model.outputs(tensors)
        if shapes is not None and outputs != shapes["outputs"]:
            raise TrellisError(
                f"its operations make {outputs!r:.80}, expected {shapes['outputs']!r:.80}; save "
                "the compacted model again"
            )
        return model

    def __str__(self) -> str:
        return str(self.report)

    def extra_repr(self) -> str:
        return str(self.report)


class Part(nn.Module):
    """Holds tensors under the name of the module they came from."""

    def extra_repr(self) -> str:
        tensors = {**self._parameters, **self._buffers}
        return ", ".join(
            f"{name}: {'x'.join(map(str, tensor.shape)) or 'scalar'}"
            for name, tensor in tensors.items()
            if tensor is not None
        )


def _split(name: str) -> tuple[str, str]:
    path, _, leaf = name.rpartition(".")
    return path, leaf


def _spec(given: CompactedInput) -> dict[str, Any]:
    """Return the description of an input from a file, if its type and size are plausible."""
    named = {"name": given["name"]} if "name" in given else {}
    if "shape" not in given:
        return {"value": str(given.get("value")), **named}
    shape, kind = given["shape"], given.get("dtype")
    if kind not in KINDS or math.prod(shape) > _LARGEST:
        raise TrellisError(f"invalid description of an input: {given!r:.80}")
    check_size(math.prod(shape) * KINDS[kind].itemsize, "an input")
    return {"dtype": kind, "shape": shape, **named}


def _of_a_mask(name: str) -> bool:
    return ".parametrizations." in f".{name}"
