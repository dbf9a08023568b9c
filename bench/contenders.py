"""What is timed on each network. Every repeat starts from a fresh copy of the same weights."""

from __future__ import annotations

import copy

from models import build, connections, example_inputs
from peers import bake, torch_global
from timing import Task, Work
from torch import nn

import trellis

SPARSITY = 0.99


def contenders(network: str) -> dict[str, Task]:
    """The tasks of the speed table, by name; masks are applied to the model in all that prune."""
    dense, inputs = build(network), example_inputs(network)

    def fresh() -> nn.Module:
        return copy.deepcopy(dense)

    def peer() -> Work:
        model = fresh()
        return lambda: torch_global(model, inputs, SPARSITY)

    def trace() -> Work:
        model = fresh()
        return lambda: trellis.trace(model, inputs)

    def first() -> Work:
        model = fresh()
        return lambda: trellis.prune(model, inputs, sparsity=SPARSITY)

    def traced() -> Work:
        net = trellis.trace(fresh(), inputs)
        return lambda: trellis.prune(net, sparsity=SPARSITY)

    def read() -> Work:
        weights = list(connections(fresh()).values())
        # Pass by pass, not weight by weight: the second look must not come from the cache.
        return lambda: [weight.detach().sum() for _ in range(6) for weight in weights]

    def step() -> Work:
        model = fresh()
        model(*inputs).sum().backward()  # the first pass of a model also picks its kernels
        model.zero_grad()
        return lambda: model(*inputs).sum().backward()

    def audit(model: nn.Module) -> Work:
        net = trellis.trace(model, inputs)
        return lambda: trellis.audit(net)

    return {
        "global_unstructured": peer,
        "trace": trace,
        "prune, first call": first,
        "prune, traced": traced,
        "read weights 6x": read,
        "forward + backward": step,
        "audit, dense": lambda: audit(fresh()),
        "audit, 99 % zeros": lambda: audit(bake(torch_global(fresh(), inputs, SPARSITY))),
    }


def chains(network: str) -> dict[str, Task]:
    """Algorithm 1 on a traced network, at 99.9 and 50 %, deterministic and stochastic."""
    dense, inputs = build(network), example_inputs(network)

    def at(sparsity: float, stochastic: bool) -> Work:
        net = trellis.trace(copy.deepcopy(dense), inputs)
        return lambda: trellis.prune(net, sparsity=sparsity, method="chains", stochastic=stochastic)

    return {
        "chains 99.9 %": lambda: at(0.999, False),
        "chains 99.9 %, stochastic": lambda: at(0.999, True),
        "chains 50 %": lambda: at(0.5, False),
        "chains 50 %, stochastic": lambda: at(0.5, True),
    }
