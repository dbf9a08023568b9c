"""Messages backward: which units can still change an output."""

from __future__ import annotations

import torch
from torch import Tensor

from ..trace import steps
from ..trace.values import Signal
from .algebra import contract
from .edges import Edges
from .kernels import as_bytes
from .messages import regroup
from .propagate import Message, Propagation

Pulled = list[tuple[Signal, Message, Message]]  # signal, changes, enables


def backward(run: Propagation, seeds: dict[int, Tensor] | None = None) -> Propagation:
    """Fill ``run.changes`` and ``run.enables`` from the outputs, or from ``seeds`` (a message
    per signal id), towards the inputs, as far as is `useful`. ``run.forward()`` comes first where
    signals are multiplied."""
    g, e, useful = run.changes, run.enables, run.net.useful
    exponents: dict[int, int] = {}
    if seeds is None:
        for signal in run.net.outputs:
            shape = (1,) * len(signal.shape)
            g[signal.id] = torch.ones(shape, dtype=run.algebra.dtype, device=run.device)
    else:
        g.update(seeds)
    for step in reversed(run.net.steps):
        out = step.out.id
        behind = step.x.id if isinstance(step, steps.Contract) else out
        if behind not in useful or (out not in g and out not in e):
            continue
        exponent = exponents.get(out, 0)
        for signal, change, enable in pull(run, step, g.get(out), e.get(out)):
            if signal.id not in useful:
                continue
            if change is not None:
                power = exponent
                if isinstance(step, steps.Contract | steps.Fixed):  # others make nothing larger
                    change, power = scaled(run, change, exponent)
                add(run, g, exponents, signal.id, change, power)
            if enable is not None:
                e[signal.id] = run.algebra.join(e[signal.id], enable) if signal.id in e else enable
    run.back_exponents = exponents
    return run


def scaled(run: Propagation, message: Tensor, exponent: int) -> tuple[Tensor, int]:
    if run.paired or run.algebra.dtype in (torch.bool, torch.float64):
        return message, exponent
    top = float(message.amax())
    if top <= 0 or 2**-32 < top < 2**32:
        return message, exponent
    shift = int(torch.frexp(torch.tensor(top, dtype=torch.float64)).exponent)
    return torch.ldexp(message, torch.tensor(-shift, device=message.device)), exponent + shift


def add(
    run: Propagation,
    into: dict[int, Tensor],
    exponents: dict[int, int],
    key: int,
    message: Tensor,
    exponent: int,
) -> None:
    """Join a message into what other consumers of the signal have sent, at one exponent."""
    if key not in into:
        into[key] = message
        exponents[key] = exponent
        return
    old, have = into[key], exponents.get(key, 0)
    top = max(have, exponent)
    if have != top:
        old = torch.ldexp(old, torch.tensor(have - top, device=old.device))
    if exponent != top:
        message = torch.ldexp(message, torch.tensor(exponent - top, device=message.device))
    into[key] = run.algebra.join(old, message)
    exponents[key] = top


def pull(run: Propagation, step: steps.Step, g: Message, e: Message) -> Pulled:
    """From messages of the output to messages of the inputs."""
    if isinstance(step, steps.Source):
        return []
    if isinstance(step, steps.Gate | steps.Product):
        return through_product(run, step, g, e)
    if isinstance(step, steps.Cat):
        cuts_g, cuts_e = cut(step, g), cut(step, e)
        return [(x, a, b) for x, a, b in zip(step.xs, cuts_g, cuts_e, strict=True)]
    if isinstance(step, steps.Join):
        return [(x, g, e) for x in step.xs]
    back_g = None if g is None else linear(run, step, g)
    back_e = None if e is None else linear(run, step, e)
    return [(step.x, back_g, back_e)]  # type: ignore[attr-defined]


def linear(run: Propagation, step: steps.Step, g: Tensor) -> Message:
    """The transposes of the linear steps."""
    algebra = run.algebra
    if isinstance(step, steps.Reshape):
        return regroup(g, step.out.shape, step.x.shape)
    if isinstance(step, steps.Permute):
        order = [step.dims.index(d) for d in range(len(step.dims))]
        return g.permute(order)
    if isinstance(step, steps.Expand):
        dims = [
            d for d, (a, b) in enumerate(zip(step.x.shape, step.out.shape, strict=True)) if a != b
        ]
        return algebra.reduce(g, dims, step.out.shape)
    if isinstance(step, steps.Gather):
        return returned(run, step, g)
    if isinstance(step, steps.Reduce):
        for d in step.dims:
            g = g.unsqueeze(d)
        return g
    if isinstance(step, steps.Mix):
        return run.mixed(step, g)
    if isinstance(step, steps.Block):
        return algebra.times(g, run.net.on(step.keep, run.device).to(algebra.dtype))
    if isinstance(step, steps.Bias):
        return g
    assert isinstance(step, steps.Contract | steps.Fixed)
    w = run.weight(step)
    if isinstance(w, Edges) and w.empty:
        return None
    return contract(algebra, g, None if w is None else w.mT, step.out.shape[2], run.rows)


def cut(step: steps.Cat, g: Message) -> list[Message]:
    if g is None:
        return [None] * len(step.xs)
    if g.shape[step.dim] == 1 and step.out.shape[step.dim] > 1:
        return [g] * len(step.xs)
    sizes = [x.shape[step.dim] for x in step.xs]
    return list(g.split(sizes, step.dim))


def returned(run: Propagation, step: steps.Gather, g: Tensor) -> Tensor:
    """The transpose of a gather: each entry receives from every place that read it."""
    dim, ndim = step.dim, step.index.ndim
    lead, tail = g.shape[:dim], g.shape[dim + ndim :]
    algebra = run.algebra
    uniform = all(n == 1 for n in g.shape[dim : dim + ndim])
    if run.coarse and algebra.idempotent and g.shape[dim] == 1 and step.index.shape[0] > 1:
        if not uniform:  # taps differ, places do not
            taps = run.taps(step)
            if taps is not None:
                g = algebra.times(g, taps.reshape(tuple(taps.shape) + (1,) * len(tail)))
            g = algebra.reduce(g, (dim + 1,), g.shape)
        return g.reshape((*lead, 1, *tail))
    size, fan = step.inverse.shape
    read = run.valid(step, inverse=True)
    if uniform and algebra.idempotent:
        g = g.reshape((*lead, 1, *tail))
        if read is None or bool(step.inverse[:, 0].min() >= 0):
            return g
        return algebra.times(g, read[:, 0].reshape((size,) + (1,) * len(tail)))
    g = g.expand((*lead, *step.index.shape, *tail))
    if step.window is not None and algebra.merges:
        return step.window.write(as_bytes(g)).view(g.dtype)
    g = g.reshape((*lead, -1, *tail))
    places = run.net.on(step.inverse, run.device).reshape(-1).clamp(min=0)
    found = g.index_select(dim, places).reshape((*lead, size, fan, *tail))
    if read is not None:
        found = algebra.times(found, read.reshape((size, fan) + (1,) * len(tail)))
    return algebra.reduce(found, (dim + 1,), found.shape).squeeze(dim + 1)


def through_product(
    run: Propagation, step: steps.Gate | steps.Product, g: Message, e: Message
) -> Pulled:
    """x·y: a change of x passes where y is not zero; being non-zero, x enables what passes
    through y."""
    if not run.paired:
        if isinstance(step, steps.Gate) or g is None:
            return [(step.x, g, None), (step.y, g, None)]
        gx = run.algebra.reduce(g, (2,), step.out.shape)
        gy = run.algebra.reduce(g, (1,), step.out.shape).mT
        return [(step.x, gx, None), (step.y, gy, None)]
    result: Pulled = []
    for mine, other, flip in ((step.x, step.y, False), (step.y, step.x, True)):
        d, n = run.depends.get(other.id), run.nonzero.get(other.id)
        change = back(run, step, g, n, flip)
        enable = run.plus(back(run, step, e, n, flip), back(run, step, g, d, flip))
        result.append((mine, change, enable))
    return result


def back(
    run: Propagation, step: steps.Gate | steps.Product, g: Message, other: Message, flip: bool
) -> Message:
    """Message of one factor: g times the other factor, over what the product summed."""
    if g is None or other is None:
        return None
    if isinstance(step, steps.Gate):
        return run.algebra.times(g, other)
    # x (b, m, k) = ⊕ over n of g[m, n] y[n, k];  y (b, n, k) = ⊕ over m of g[m, n] x[m, k]
    return run.bilinear(g.mT if flip else g, other.mT)
