"""What is live, by definition: two bits forward and two bits backward, unit by unit.

Forward, **D**: the unit depends on the input; **N**: it is not identically zero. Backward, **G**: a
change here changes an output; **E**: being non-zero here lets an input reach an output. A
connection is live if it is kept and, for one of its uses, D(tail) G(head) + N(tail) E(head).
"""

from collections.abc import Mapping, Set
from itertools import combinations

from .scalar import Connection, Constant, Function, Input, Product, ScalarGraph, Sum, Unit


def forward(graph: ScalarGraph, kept: Set[Connection]) -> tuple[list[bool], list[bool]]:
    """D and N of every unit."""
    depends: list[bool] = []
    nonzero: list[bool] = []
    for node in graph.nodes:
        match node:
            case Input():
                d, n = True, True
            case Constant(value):
                d, n = False, value
            case Sum(terms):
                tails = [tail for tail, c in terms if c is None or c in kept]
                d, n = any(depends[t] for t in tails), any(nonzero[t] for t in tails)
            case Product(a, b):
                d = (depends[a] and nonzero[b]) or (nonzero[a] and depends[b])
                n = nonzero[a] and nonzero[b]
            case Function(tail, zero_at_zero):
                d, n = depends[tail], nonzero[tail] or not zero_at_zero
        depends.append(d)
        nonzero.append(n)
    return depends, nonzero


def backward(
    graph: ScalarGraph, kept: Set[Connection], depends: list[bool], nonzero: list[bool]
) -> tuple[list[bool], list[bool]]:
    """G and E of every unit."""
    changes = [False] * len(graph.nodes)
    enables = [False] * len(graph.nodes)
    for output in graph.outputs:
        changes[output] = True
    for head in reversed(range(len(graph.nodes))):
        g, e = changes[head], enables[head]
        match graph.nodes[head]:
            case Sum(terms):
                for tail, c in terms:
                    if c is None or c in kept:
                        changes[tail] |= g
                        enables[tail] |= e
            case Product(a, b):
                for x, y in ((a, b), (b, a)):
                    changes[x] |= g and nonzero[y]
                    enables[x] |= (e and nonzero[y]) or (g and depends[y])
            case Function(tail, _):
                # a sigmoid is a constant plus a part that is zero at zero; like a term of a
                # sum, that part enables what is behind it, whether or not something else does
                changes[tail] |= g
                enables[tail] |= e
    return changes, enables


def live(graph: ScalarGraph, kept: Set[Connection]) -> set[Connection]:
    """The kept connections through which an input reaches an output.

    In x * (w * 1) the connection w is live: without it x goes nowhere.

    >>> graph = ScalarGraph()
    >>> gate = graph.sum([(graph.constant(), ("w", 0))])
    >>> graph.outputs = [graph.product(graph.input(), gate)]
    >>> live(graph, {("w", 0)})
    {('w', 0)}
    """
    depends, nonzero = forward(graph, kept)
    changes, enables = backward(graph, kept, depends, nonzero)
    return {
        c
        for tail, c, head in graph.uses()
        if c is not None
        and c in kept
        and ((depends[tail] and changes[head]) or (nonzero[tail] and enables[head]))
    }


def consistent(graph: ScalarGraph, kept: Set[Connection]) -> bool:
    """Every kept connection is live."""
    return live(graph, kept) == kept


def outputs_reached(graph: ScalarGraph, kept: Set[Connection]) -> set[Unit]:
    """The output units that depend on the input."""
    depends, _ = forward(graph, kept)
    return {output for output in graph.outputs if depends[output]}


def layers_of(connections: Set[Connection]) -> set[str]:
    """The parameters that these connections belong to."""
    return {name for name, _ in connections}


def feasible_budgets(
    graph: ScalarGraph, cover_outputs: bool = False, cover_layers: bool = False
) -> set[int]:
    """All K >= 1 for which a consistent network of exactly K connections exists, by trying all.

    With `cover_outputs` it must also reach every output that the dense network reaches; with
    `cover_layers`, have connections in every parameter that lives there.
    """
    everything = sorted(graph.connections())
    if len(everything) > 14:
        raise ValueError(f"{len(everything)} connections have too many subsets; give at most 14")
    wanted = outputs_reached(graph, set(everything)) if cover_outputs else set()
    layers = layers_of(live(graph, set(everything))) if cover_layers else set()
    return {
        size
        for size in range(1, len(everything) + 1)
        if any(
            layers <= layers_of(set(kept))
            and consistent(graph, set(kept))
            and wanted <= outputs_reached(graph, set(kept))
            for kept in combinations(everything, size)
        )
    }


def closure(graph: ScalarGraph, saliency: Mapping[Connection, float]) -> dict[Connection, float]:
    """The largest t at which a connection is live among those with saliency >= t.

    Connections that are not live even in the dense network are left out.
    """
    closed: dict[Connection, float] = {}
    for threshold in sorted(set(saliency.values())):
        kept = {c for c, s in saliency.items() if s >= threshold}
        closed |= dict.fromkeys(live(graph, kept), threshold)
    return closed
