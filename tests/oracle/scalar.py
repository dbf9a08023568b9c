"""A network as scalar units, in plain Python: the definition that everything else is held to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Connection = tuple[str, int]  # (parameter name, flat index of the entry)
Unit = int


@dataclass(frozen=True)
class Input:
    """One scalar of the input."""


@dataclass(frozen=True)
class Constant:
    """A bias, or a value that the program writes down; `nonzero` is False for a state of zeros."""

    nonzero: bool


@dataclass(frozen=True)
class Sum:
    """A sum of other units, each by a connection or, where that is None, by a wire."""

    terms: tuple[tuple[Unit, Connection | None], ...]


@dataclass(frozen=True)
class Product:
    """A gate: the product of two units."""

    left: Unit
    right: Unit


@dataclass(frozen=True)
class Function:
    """An activation; `zero_at_zero` is False for a sigmoid or an exponential."""

    tail: Unit
    zero_at_zero: bool


Node = Input | Constant | Sum | Product | Function


@dataclass
class ScalarGraph:
    """Units in the order of computation: whatever a unit reads stands before it.

    >>> graph = ScalarGraph()
    >>> x = graph.input()
    >>> y = graph.sum([(x, ("w", 0)), (graph.constant(), None)])
    >>> graph.outputs = [graph.function(y, zero_at_zero=True)]
    >>> len(graph.nodes), sorted(graph.connections())
    (4, [('w', 0)])
    """

    nodes: list[Node] = field(default_factory=list)
    outputs: list[Unit] = field(default_factory=list)

    def _add(self, node: Node) -> Unit:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def input(self) -> Unit:
        return self._add(Input())

    def inputs(self, count: int) -> list[Unit]:
        return [self.input() for _ in range(count)]

    def constant(self, nonzero: bool = True) -> Unit:
        return self._add(Constant(nonzero))

    def sum(self, terms: Iterable[tuple[Unit, Connection | None]]) -> Unit:
        return self._add(Sum(tuple(terms)))

    def wires(self, tails: Sequence[Unit]) -> Unit:
        """A sum without connections: a residual addition, a mean."""
        return self.sum((tail, None) for tail in tails)

    def product(self, left: Unit, right: Unit) -> Unit:
        return self._add(Product(left, right))

    def function(self, tail: Unit, zero_at_zero: bool) -> Unit:
        return self._add(Function(tail, zero_at_zero))

    def connections(self) -> set[Connection]:
        """All connections with at least one use."""
        return {
            connection
            for node in self.nodes
            if isinstance(node, Sum)
            for _, connection in node.terms
            if connection is not None
        }

    def uses(self) -> list[tuple[Unit, Connection | None, Unit]]:
        """Every step from one unit to another, as (tail, connection or None, head)."""
        steps: list[tuple[Unit, Connection | None, Unit]] = []
        for head, node in enumerate(self.nodes):
            match node:
                case Sum(terms):
                    steps += [(tail, connection, head) for tail, connection in terms]
                case Product(left, right):
                    steps += [(left, None, head), (right, None, head)]
                case Function(tail, _):
                    steps.append((tail, None, head))
        return steps
