"""Every path of a small network, one by one: what live and the best path mean without gates."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from math import prod

from .scalar import Connection, Input, Product, ScalarGraph, Unit

Path = tuple[Connection, ...]


def paths(graph: ScalarGraph) -> Iterator[Path]:
    """The connections along every chain of uses from an input unit to an output unit.

    A wire adds nothing to the chain; a product is two wires; a path does not start at a constant.

    >>> graph = ScalarGraph()
    >>> hidden = graph.sum([(graph.input(), ("a", 0))])
    >>> graph.outputs = [graph.sum([(hidden, ("b", 0)), (hidden, ("b", 1))])]
    >>> list(paths(graph))
    [(('a', 0), ('b', 0)), (('a', 0), ('b', 1))]
    """
    heads: dict[Unit, list[tuple[Connection | None, Unit]]] = defaultdict(list)
    for tail, connection, head in graph.uses():
        heads[tail].append((connection, head))
    outputs = set(graph.outputs)

    def onward(unit: Unit, so_far: Path) -> Iterator[Path]:
        if unit in outputs:
            yield so_far
        for connection, head in heads[unit]:
            yield from onward(head, so_far if connection is None else (*so_far, connection))

    for unit, node in enumerate(graph.nodes):
        if isinstance(node, Input):
            yield from onward(unit, ())


def live_by_paths(graph: ScalarGraph, kept: Set[Connection]) -> set[Connection]:
    """The connections on a path of kept connections; for networks without products."""
    if any(isinstance(node, Product) for node in graph.nodes):
        raise ValueError("where signals are multiplied a path is not enough; use brute.live")
    return {c for path in paths(graph) if kept >= set(path) for c in path}


def viterbi(graph: ScalarGraph, weights: Mapping[Connection, float]) -> dict[Connection, float]:
    """The largest product of |w| over the paths through a connection; gates are two wires."""
    best: dict[Connection, float] = {}
    for path in paths(graph):
        score = prod(abs(weights[c]) for c in path)
        for c in path:
            best[c] = max(best.get(c, 0.0), score)
    return best


def weakest_link(
    graph: ScalarGraph, saliency: Mapping[Connection, float]
) -> dict[Connection, float]:
    """The best, over the paths through a connection, of the smallest saliency on the path.

    Without products this is the closure.
    """
    best: dict[Connection, float] = {}
    for path in paths(graph):
        for c in path:
            best[c] = max(best.get(c, float("-inf")), min(saliency[c] for c in path))
    return best
