"""Methods that judge each connection by itself: magnitude, closed or not, and a random choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .method import Method, Problem, Scope, ScopedMethod, register_method


@register_method("magnitude")
@dataclass(frozen=True, kw_only=True)
class Magnitude(ScopedMethod):
    """Keep the connections of largest saliency, which is the magnitude by default.

    The result is consistent with ``consistent=True`` only. With ``stochastic=True``, connections
    are sampled without replacement, in proportion to saliency.

    Args:
        scope: How the budget is spread over parameters. "global": one ranking for all. "layer": the
            same fraction of each. "erk": Erdős–Rényi kernel densities. "lamp": layer-adaptive
            magnitudes. "balanced": between "global" and "erk". A mapping of parameter names to
            counts sets them directly.

    >>> import trellis
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    >>> trellis.prune(model, torch.zeros(1, 8), keep=8, method=Magnitude(scope="layer")).kept
    8
    """

    def scores(self, problem: Problem) -> Mapping[str, Tensor]:
        return problem.saliency


@register_method("closed")
@dataclass(frozen=True, kw_only=True)
class Closed(Magnitude):
    """Keep the connections of largest saliency that lie on a path of such connections.

    It is "magnitude" with a consistent result: the live part of a threshold on the saliency that
    has exactly the budget. Depth is not punished, so it suits networks with skip connections.

    Args:
        scope: How the budget is spread over parameters. "global": one ranking for all (the default
            in a schedule). "layer": the same fraction of each. "erk": Erdős–Rényi kernel densities.
            "lamp": layer-adaptive magnitudes. "balanced": between "global" and "erk" (the default
            where a network is pruned at once). A mapping of parameter names to counts sets them
            directly.

    >>> import trellis
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    >>> masks = trellis.prune(model, torch.zeros(1, 8), keep=8, method=Closed())
    >>> masks.kept, trellis.audit(model, torch.zeros(1, 8)).dead
    (8, 0)
    """

    consistent = True

    scope: Scope | None = None

    def settled(self, *, gradual: bool) -> Method:
        """Return the method with its scope decided."""
        if self.scope is not None:
            return self
        return replace(self, scope="global" if gradual else "balanced")


@register_method("random")
@dataclass(frozen=True, kw_only=True)
class Random(ScopedMethod):
    """Keep a random choice of connections, all with the same probability.

    Args:
        scope: How the budget is spread over parameters. "global": one ranking for all. "layer": the
            same fraction of each. "erk": Erdős–Rényi kernel densities. "lamp": layer-adaptive
            scores. "balanced": between "global" and "erk". A mapping of parameter names to
            counts sets them directly.

    >>> import trellis
    >>> model = torch.nn.Linear(4, 4)
    >>> trellis.prune(model, torch.zeros(1, 4), keep=6, method=Random(), seed=2).kept
    6
    """

    sampling = "always"

    def scores(self, problem: Problem) -> Mapping[str, Tensor]:
        generator = problem.generator()
        return {
            name: torch.rand(shape, generator=generator).to(problem.weights[name].device)
            for name, shape in problem.net.connections.items()
        }
