"""Algorithm 1 word by word, and the unrolled graph it walks: slow, and easy to check by eye."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from trellis.methods.chains import Choices
from trellis.methods.layers import Layered

Use = tuple[float, int, tuple[int, int]]  # key, connection, head as (level, unit)
Graph = dict[tuple[int, int], list[Use]]


def mlp(widths: Sequence[int]) -> nn.Sequential:
    """Dense layers without biases."""
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(widths)))


def saliency_of(model: nn.Module, levels: int | None, seed: int) -> dict[str, Tensor]:
    """Random magnitudes; with ``levels`` so few values that ties and zeros abound."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.rand(p.shape, generator=generator)
        if levels is None
        else torch.randint(0, levels, p.shape, generator=generator).float()
        for name, p in model.named_parameters()
        if p.ndim > 1
    }


def count(masks: Mapping[str, Tensor]) -> int:
    return sum(int(mask.sum()) for mask in masks.values())


def unroll(net: Layered, choices: Choices) -> Graph:
    """Every unit with its uses, best key first, ties by connection, then head."""
    graph: Graph = {(len(net.layers), unit): [] for unit in range(net.units[-1])}
    for level, layer in enumerate(net.layers):
        for unit in range(net.units[level]):
            connections, heads = layer.row(unit)
            keys = choices.keys(level, unit, connections, heads)
            uses = zip(keys.tolist(), connections.tolist(), heads.tolist(), strict=True)
            ranked = sorted(uses, key=lambda use: (-use[0], use[1], use[2]))
            graph[level, unit] = [(key, c, (level + 1, head)) for key, c, head in ranked]
    return graph


def is_open(graph: Graph, taken: set[int], unit: tuple[int, int]) -> bool:
    """It, or a unit that its connections lead to, has an untaken connection."""
    return any(c not in taken or is_open(graph, taken, head) for _, c, head in graph[unit])


def algorithm_1(graph: Graph, depth: int, rotation: Sequence[int], budget: int) -> set[int]:
    """Chains in turn from each input unit that is open, until the next would overshoot."""
    taken: set[int] = set()
    while True:
        turns = [unit for unit in rotation if is_open(graph, taken, (0, unit))]
        if not turns or len(taken) == budget:
            return taken
        for start in turns:
            if not is_open(graph, taken, (0, start)):
                continue
            unit, chain = (0, start), set(taken)
            while unit[0] < depth:
                untaken = [use for use in graph[unit] if use[1] not in chain]
                passing = [use for use in graph[unit] if is_open(graph, chain, use[2])]
                _, connection, unit = (untaken or passing or graph[unit])[0]
                chain.add(connection)
            assert len(chain) > len(taken)
            if len(chain) > budget:
                return taken
            taken = chain
