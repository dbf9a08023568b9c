"""The audit: count the live and dead connections of a model, layer by layer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from ..devices import on_cpu
from ..graph.trellis import Trellis, current, matching, trace, without
from ..masks.masked import check_finite
from ..masks.masks import is_starved
from .kernels import count
from .liveness import ends, liveness, propagate, reached


@dataclass(frozen=True)
class Layer:
    """Count the connections of one parameter; a row of `Audit.layers`.

    Attributes:
        name: Name of the parameter.
        shape: Its shape.
        total: Number of connections.
        kept: Kept connections: not masked and, without a mask, not zero.
        accessible: Kept connections that an input reaches.
        coaccessible: Kept connections that can reach an output.
        live: Kept connections on a path from an input to an output.
        dead: Kept connections that are not live.
    """

    name: str
    shape: tuple[int, ...]
    total: int
    kept: int
    accessible: int
    coaccessible: int
    live: int

    @property
    def dead(self) -> int:
        """Number of kept connections that are not live."""
        return self.kept - self.live

    def words(self) -> str | None:
        """Describe the dead connections of this layer in a sentence; None if all are live."""
        if self.kept == 0:
            return f"`{self.name}`: nothing is kept"
        if self.live == 0:
            return f"`{self.name}`: nothing that is kept is on a path; the layer is cut off"
        unreached, leading_nowhere = self.kept - self.accessible, self.kept - self.coaccessible
        parts = []
        if unreached:
            parts.append(
                f"{_percent(unreached / self.kept)} of what is kept is reached by no input"
            )
        if leading_nowhere:
            kind = "" if parts else " of what is kept"
            parts.append(f"{_percent(leading_nowhere / self.kept)}{kind} can reach no output")
        if self.dead and not parts:
            parts.append(
                f"{_percent(self.dead / self.kept)} of what is kept is reached and leads on, "
                "but in no place both"
            )
        return f"`{self.name}`: " + ", ".join(parts) if parts else None


@dataclass(frozen=True, eq=False)
class Audit:
    """Hold what `trellis.audit` found. ``print(audit)`` shows it as a table with a summary.

    Attributes:
        layers: One row for each parameter that holds connections, with ``name``, ``shape``,
            ``total``, ``kept``, ``accessible``, ``coaccessible``, ``live`` and ``dead``.
        total: Number of connections.
        kept: Number of kept connections.
        live: Number of live connections: kept, and on a path from an input to an output.
        dead: Number of dead connections: kept, but not live.
        live_fraction: ``live / kept``; 0.0 if nothing is kept.
        outputs: Number of output units.
        outputs_reached: Number of output units that an input reaches.
        live_masks: The live connections, ``{parameter name: bool tensor}``.
        biased: Whether the model adds constants, so that a unit without inputs is a constant.

    Example:
        >>> import torch, trellis
        >>> audit = trellis.audit(nn.Linear(3, 2), torch.zeros(1, 3))
        >>> audit.kept, audit.live, audit.live_fraction, audit.outputs_reached
        (6, 6, 1.0, 2)
        >>> [(layer.name, layer.shape, layer.live) for layer in audit.layers]
        [('weight', (2, 3), 6)]
        >>> audit.live_masks["weight"].all()
        tensor(True)
    """

    layers: tuple[Layer, ...]
    outputs: int
    outputs_reached: int
    live_masks: dict[str, Tensor] = field(repr=False)
    biased: bool = False

    @property
    def total(self) -> int:
        """Number of connections."""
        return sum(layer.total for layer in self.layers)

    @property
    def kept(self) -> int:
        """Number of kept connections."""
        return sum(layer.kept for layer in self.layers)

    @property
    def live(self) -> int:
        """Number of live connections: kept, and on a path from an input to an output."""
        return sum(layer.live for layer in self.layers)

    @property
    def dead(self) -> int:
        """Number of dead connections: kept, but not live."""
        return self.kept - self.live

    @property
    def live_fraction(self) -> float:
        """``live / kept``; 0.0 if nothing is kept."""
        return self.live / self.kept if self.kept else 0.0

    def words(self) -> list[str]:
        """Describe what is dead, the worst layer first, and the starved layers.

        A starved layer keeps less than a hundredth of its fair share, which is ``kept / total`` of
        its connections.

        Returns:
            One sentence for each layer with dead connections, or a single one if all are live.
            Then one for each starved layer.
        """
        bad = [
            (layer.dead / max(layer.kept, 1) if layer.kept else 1.0, layer) for layer in self.layers
        ]
        bad.sort(key=lambda item: -item[0])
        lines = [text for _, layer in bad if (text := layer.words())]
        if self.outputs_reached < self.outputs:
            missing = self.outputs - self.outputs_reached
            lines.insert(0, f"{missing:,} of {self.outputs:,} outputs are reached by no input")
        if not self.layers:
            return ["the model has no connections: no parameter multiplies a signal"]
        if not lines:
            lines = ["every kept connection is on a path from an input to an output"]
        lines += [
            f"`{layer.name}`: starved, {layer.kept:,} of {layer.total:,} kept: less than a "
            "hundredth of its fair share"
            for layer in self.layers
            if layer.kept and is_starved(layer.kept, layer.total, self.kept, self.total)
        ]
        if self.biased and self.dead:
            lines.append(
                "a unit that nothing reaches is a constant here (biases, norms): removing what is "
                "dead behind it needs its value folded into the next bias"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the masks, as values that JSON can hold."""
        return {
            "total": self.total,
            "kept": self.kept,
            "live": self.live,
            "dead": self.dead,
            "live_fraction": self.live_fraction,
            "outputs": self.outputs,
            "outputs_reached": self.outputs_reached,
            "layers": [
                asdict(layer) | {"shape": list(layer.shape), "dead": layer.dead}
                for layer in self.layers
            ],
            "words": self.words(),
        }

    def rows(self) -> list[list[str]]:
        """Return the table as text: a header, a row for each layer, and a last row of sums."""
        head = [
            "layer",
            "shape",
            "connections",
            "kept",
            "accessible",
            "co-accessible",
            "live",
            "dead",
        ]
        rows = [head]
        for layer in self.layers:
            counts = (
                layer.total,
                layer.kept,
                layer.accessible,
                layer.coaccessible,
                layer.live,
                layer.dead,
            )
            rows.append([layer.name, "x".join(map(str, layer.shape)), *(f"{c:,}" for c in counts)])
        sums = [
            sum(getattr(layer, k) for layer in self.layers)
            for k in ("total", "kept", "accessible", "coaccessible", "live", "dead")
        ]
        rows.append(["whole", "", *(f"{c:,}" for c in sums)])
        return rows

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        rule = "-" * max(len(line) for line in lines)
        table = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
        summary = (
            f"live: {_percent(self.live_fraction)} of what is kept; "
            f"outputs reached: {self.outputs_reached:,} of {self.outputs:,}"
        )
        return "\n".join([*table, "", summary, *(f"- {text}" for text in self.words())])


@on_cpu()
def audit(
    model: nn.Module | Trellis, example_inputs: Any = None, *, ignore: str | Collection[str] = ()
) -> Audit:
    """Find the dead weights of a model: kept, but on no path from an input to an output.

    A connection is kept if its mask says so (a mask of Trellis or of `torch.nn.utils.prune`) or,
    without a mask, if its weight is not zero. The model is not changed.

    Args:
        model: The model, or a trellis from `trellis.trace`.
        example_inputs: What the model is called with: a tensor, a tuple of positional inputs, a
            dict of keyword inputs, or `trellis.Inputs` for both. Not needed with a trellis.
        ignore: Name patterns of parameters that are not counted, such as "head.*". They carry
            paths with their present weights, as in `trellis.prune`. The adapters of peft are
            always ignored.

    Returns:
        The counts for each layer and for the model, and the masks of the live connections.

    Raises:
        TrellisError: The inputs do not fit the model, the model cannot be traced, or a weight is
            NaN or infinite.

    Example:
        >>> import torch, trellis
        >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
        >>> with torch.no_grad():
        ...     _ = model[1].weight.copy_(torch.tensor([[1.0, 0.0]]))
        >>> print(trellis.audit(model, torch.zeros(1, 2)))
        layer     shape  connections  kept  accessible  co-accessible  live  dead
        -------------------------------------------------------------------------
        0.weight  2x2              4     4           4              2     2     2
        1.weight  1x2              2     1           1              1     1     0
        -------------------------------------------------------------------------
        whole                      6     5           5              3     3     2
        <BLANKLINE>
        live: 60 % of what is kept; outputs reached: 1 of 1
        - `0.weight`: 50 % of what is kept can reach no output
    """
    net = trace(model, example_inputs)
    now = current(net)
    check_finite(now.weights, "repair it before the audit")
    net = without(net, matching(net, ignore), now.weights)
    kept = {name: mask for name, mask in now.kept().items() if name in net.connections}
    if not kept:  # paths without connections may still lead to outputs
        wired = sum(count(mask) for mask in reached(net.lean, propagate(net.lean, None)))
        return Audit((), net.output_units, wired, {}, net.biased)
    found = liveness(net.lean, kept)
    accessible, coaccessible = ends(net.lean, kept, found.run)
    layers = tuple(
        Layer(
            name,
            shape,
            kept[name].numel(),
            count(kept[name]),
            count(accessible[name]),
            count(coaccessible[name]),
            count(found.live[name]),
        )
        for name, shape in net.connections.items()
    )
    return Audit(layers, net.output_units, found.outputs_reached, dict(found.live), net.biased)


def _percent(fraction: float) -> str:
    """Format a percentage with enough digits that it is not rounded to 0 % or 100 %.

    >>> _percent(0.41), _percent(0.9999), _percent(1.0)
    ('41 %', '99.99 %', '100 %')
    """
    for digits in range(5):
        shown = round(100 * fraction, digits)
        if (shown not in (0.0, 100.0)) or fraction in (0.0, 1.0):
            return f"{shown:.{digits}f} %"
    return f"{100 * fraction:.2g} %"
