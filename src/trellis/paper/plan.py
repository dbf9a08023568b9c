"""The plan of a run: its rows, cells and stacks, determined by the settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cached_property
from itertools import pairwise

import torch

from ..methods.budget import budget
from ..skeleton import GCN
from ..training.batches import batch_count
from .settings import (
    METHODS,
    Data,
    Method,
    Settings,
    method_named,
    paper_rate,
    plain,
    with_inverse_alpha,
)

# Memory of a stack of networks. It is fixed per kind of device and does not depend on what is free,
# because a continued run must have the same plan. On a CPU it is small: large stacks gain nothing,
# and their memory is allocated again at every step.
LIMITS = {"cpu": 1 << 28, "cuda": 12 << 30}


@dataclass(frozen=True)
class Architecture:
    """The sizes of a `GCN`.

    >>> paper = Architecture(nodes=21, channels=96, classes=45, heads=16, filters=128)
    >>> paper.connections
    2139024
    >>> paper.fitting("cuda", batch=600) > paper.fitting("cpu", batch=600)
    True
    """

    nodes: int
    channels: int
    classes: int
    heads: int
    filters: int
    blocks: int = 1
    shared: bool = False
    first_weights: str = "usual"

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter that `build` makes, by name."""
        found: dict[str, tuple[int, ...]] = {}
        channels, kernels = self.channels, 1 if self.shared else self.heads
        for block in range(self.blocks):
            found[f"blocks.{block}.attention"] = (self.heads, self.nodes, self.nodes)
            found[f"blocks.{block}.convolution"] = (kernels, channels, self.filters)
            channels = self.heads * self.filters
        return found | {"dense.weight": (self.classes, self.nodes * channels)}

    @property
    def connections(self) -> int:
        """The number of connections."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def build(self, seed: int) -> GCN:
        """Return the untrained network of a seed, on the CPU; it is the same for every device."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return GCN(**asdict(self))

    def bytes(self, batch: int) -> int:
        """Estimate the memory to train one network in float32.

        It counts weights, gradients, the optimizer's two moments, masks, and the activations of a
        batch.
        """
        units, channels = self.nodes * self.channels, self.channels
        for _ in range(self.blocks):
            units += self.nodes * self.heads * (min(channels, self.filters) + self.filters)
            channels = self.heads * self.filters
        return 4 * (6 * self.connections + 3 * batch * units)

    def fitting(self, device: str, batch: int) -> int:
        """Return the number of networks in a stack, at least one."""
        return max(1, LIMITS[device] // self.bytes(batch))


def architecture_of(settings: Settings, data: Data) -> Architecture:
    """Return the architecture of a run's networks."""
    return Architecture(
        nodes=data.joints,
        channels=settings.chunks * 3,
        classes=data.classes,
        heads=settings.heads,
        filters=settings.filters,
        blocks=settings.blocks,
        shared=settings.shared,
        first_weights=settings.recipe.first_weights,
    )


DENSE = "dense"


@dataclass(frozen=True)
class Row:
    """A row of a table; ``rate`` is in percent, and ``method`` is None for the dense network."""

    key: str
    rate: float
    method: Method | None

    @property
    def sparsity(self) -> Decimal:
        """The fraction removed, exactly.

        >>> Row("mp@99.9", 99.9, METHODS["mp"]).sparsity
        Decimal('0.999')
        """
        return Decimal(repr(float(self.rate))) / 100


@dataclass(frozen=True)
class Cell:
    """One network: a row, for one seed, on one fold."""

    row: Row
    seed: int
    fold: int

    @property
    def key(self) -> str:
        """The name of the cell in the run's folder."""
        return f"{self.row.key}/seed-{self.seed}/fold-{self.fold}"


@dataclass(frozen=True)
class Stack:
    """Networks that are trained side by side: of one fold, and all dense or all pruned."""

    number: int
    fold: int
    cells: tuple[Cell, ...]

    @property
    def dense(self) -> bool:
        """Whether the networks are dense."""
        return self.cells[0].row.method is None


@dataclass(frozen=True)
class Plan:
    """The rows of a run and its stacks, in order; stacks of dense networks come first."""

    rows: tuple[Row, ...]
    stacks: tuple[Stack, ...]

    @property
    def cells(self) -> list[Cell]:
        """All cells, in the order of the stacks."""
        return [cell for stack in self.stacks for cell in stack.cells]

    def dense(self, seed: int, fold: int) -> tuple[Stack, int]:
        """Return the stack that holds the dense network of a seed and fold, and its index there."""
        for stack in self.stacks:
            for place, cell in enumerate(stack.cells):
                if stack.dense and (cell.seed, cell.fold) == (seed, fold):
                    return stack, place
        raise KeyError((seed, fold))


def rows_of(settings: Settings) -> tuple[Row, ...]:
    """Return the rows of a table, in order.

    >>> from trellis.paper.settings import Settings
    >>> [row.key for row in rows_of(Settings("table3", "hands45", inverse_alphas=(1, 10)))]
    ['dense', 'tc-stochastic@99.9', 'alpha-1@99.9', 'alpha-10@99.9']
    """
    rows = [Row(DENSE, 0.0, None)]
    if settings.table == "table2":
        chosen = [method for key, method in METHODS.items() if key in settings.rows]
        chosen += [method_named(key) for key in settings.rows if key not in METHODS]
        rows += [_row(rate, method) for rate in settings.rates for method in chosen]
    elif settings.table == "table3":
        methods = [METHODS["tc-stochastic"], *map(with_inverse_alpha, settings.inverse_alphas)]
        rows += [_row(paper_rate(settings), method) for method in methods]
    return tuple(rows)


def _row(rate: float, method: Method) -> Row:
    return Row(f"{method.key}@{plain(rate)}", rate, method)


def plan_of(settings: Settings, data: Data) -> Plan:
    """Return the plan of a run.

    Raises:
        TrellisError: A rate leaves no connection.
    """
    rows = rows_of(settings)
    architecture = architecture_of(settings, data)
    for row in rows:
        budget(architecture.connections, row.sparsity)  # raises for a budget of 0
    stacks: list[Stack] = []
    for group in (rows[:1], rows[1:]):
        for fold, recordings in enumerate(data.train):
            batch = recordings // batch_count(recordings, settings.recipe.batch)
            size = settings.stack or architecture.fitting(settings.device, batch)
            cells = [Cell(row, seed, fold) for row in group for seed in range(settings.seeds)]
            for part in _split(cells, size):
                stacks.append(Stack(len(stacks), fold, tuple(part)))
    return Plan(rows, tuple(stacks))


def _split(cells: Sequence[Cell], most: int) -> list[Sequence[Cell]]:
    """Return the fewest parts of at most ``most`` cells, of nearly equal size.

    >>> [len(part) for part in _split([None] * 10, 4)]
    [4, 3, 3]
    """
    count = -(-len(cells) // most)
    bounds = [-(-len(cells) * i // count) for i in range(count + 1)] if count else []
    return [cells[a:b] for a, b in pairwise(bounds)]
