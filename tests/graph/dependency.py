"""Which input unit leads to which output unit: by the trellis, and by derivatives."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trellis import Trellis, trace
from trellis.graph.steps import Source, Step
from trellis.paths.liveness import propagate
from trellis.paths.propagate import backward


class Op(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Tensor) -> Any:
        return self.function(*xs)


def as_module(operation: Callable[..., Any]) -> nn.Module:
    model = operation if isinstance(operation, nn.Module) else Op(operation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand_like(parameter) + 0.1)  # no two terms cancel
    return model.double().eval()


def points(shapes: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    return tuple(torch.rand(tuple(shape), dtype=torch.float64) + 0.1 for shape in shapes)


def by_derivatives(model: nn.Module, shapes: Sequence[Sequence[int]], draws: int) -> Tensor:
    """(output units, input units): where the Jacobian is not zero at one of ``draws`` points."""
    found: Tensor | None = None
    for _ in range(draws):
        xs = points(shapes)
        rows = torch.autograd.functional.jacobian(lambda *xs: flat(model(*xs)), xs)
        slopes = torch.cat([r.reshape(r.shape[0], -1) for r in rows], 1)
        part = slopes.abs() > 1e-9 * slopes.abs().max()
        found = part if found is None else found | part
    assert found is not None
    return found


def flat(value: Any) -> Tensor:
    return torch.cat([y.reshape(-1) for y in tree_leaves(value) if y.is_floating_point()])


def traced(model: nn.Module, shapes: Sequence[Sequence[int]]) -> Trellis:
    return trace(model, points(shapes))


def backwards(net: Trellis) -> Tensor:
    """The same from the trellis, an output unit at a time, towards the inputs."""
    rows = []
    for signal in net.outputs:
        for unit in torch.eye(int(torch.tensor(signal.shape).prod()), dtype=torch.bool):
            run = propagate(net, None)
            run.changes.clear()
            run.enables.clear()
            backward(run, {signal.id: unit.reshape(signal.shape)})
            rows.append(torch.cat([_whole(run.changes.get(x.id), x.shape) for x in net.inputs]))
    return torch.stack(rows)


def forwards(net: Trellis) -> Tensor:
    """The same, an input unit at a time, towards the outputs; for nets without gates."""
    columns = []
    for signal in net.inputs:
        for unit in torch.eye(int(torch.tensor(signal.shape).prod()), dtype=torch.bool):
            steps: list[Step] = [
                replace(s, depends=s.out.id == signal.id, nonzero=unit.reshape(signal.shape))
                if isinstance(s, Source) and s.depends and s.out.id == signal.id
                else replace(s, depends=False) if isinstance(s, Source) else s
                for s in net.steps
            ]  # fmt: skip
            run = propagate(replace(net, steps=steps, cache={}), None)
            columns.append(torch.cat([_whole(run.depends.get(y.id), y.shape) for y in net.outputs]))
    return torch.stack(columns, 1)


def _whole(message: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    none = torch.zeros((), dtype=torch.bool)
    return (none if message is None else message).expand(shape).reshape(-1)
