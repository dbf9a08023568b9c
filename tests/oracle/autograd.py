"""What is live, by automatic differentiation of the model itself.

Move the input along a line, x = x0 + t v. A connection w carries the input to an output if the
speed d out / dt of some output depends on it: if d2 out / (dw dt) is not zero for generic weights.
For a gate x (w 1) this counts w, without which x goes nowhere; for a bias it does not.

Generic: every kept weight, bias, scale and input is drawn at random, away from zero, in
float64, and activations are straight lines (see `lines`), so that no ReLU is shut by chance and no
bias counts because of a curve. A derivative is then a polynomial in what was drawn, and is zero
either everywhere or, with probability one, not here. Terms that are zero are products with
an exact 0, or differences that cancel but for rounding (what all entries of a softmax have in
common). So non-zero means more than 1e-12 of the largest derivative, in one draw of several.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn

from .straight import Straight


def generic(shape: torch.Size, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    """Random in [0.5, 1.5] * scale, either sign."""
    size = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5
    sign = 1 - 2 * torch.randint(0, 2, shape, generator=generator, dtype=torch.float64)
    return scale * size * sign


def draw_weights(
    model: nn.Module, kept: Mapping[str, Tensor], names: Iterable[str], generator: torch.Generator
) -> dict[str, Tensor]:
    """Values for every parameter by every one of its names; those of `names` are leaves."""
    drawn: dict[int, Tensor] = {}
    wanted = set(names)
    for name, parameter in model.named_parameters():
        fan_in = max(1, parameter[0].numel()) if parameter.ndim > 1 else 1
        if name in kept and parameter.ndim > 1:
            rows = int(kept[name].flatten(1).any(1).sum())
            few = max(1, int(kept[name].sum()) // max(rows, 1))
            if 4 * few < fan_in:  # else a deep path of few connections fades away
                fan_in = few
        value = generic(parameter.shape, generator, fan_in**-0.5)
        if name in kept:
            value = value * kept[name]
        drawn[id(parameter)] = value.requires_grad_(name in wanted)
    return {n: drawn[id(p)] for n, p in model.named_parameters(remove_duplicate=False)}


def speeds(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    kept: Mapping[str, Tensor],
    names: Iterable[str],
    draws: int,
    seed: int,
    one_row: bool = False,
) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """For every draw, d out / dt of all outputs, flat, and the weights that it depends on."""
    model = deepcopy(model).double().eval()
    inputs = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*_flat_weights.*")
        exported = torch.export.export(model, inputs, strict=False)
    names = list(names)
    for number in range(draws):
        generator = torch.Generator().manual_seed(1000 * seed + number)
        weights = draw_weights(model, kept, names, generator)
        start = tuple(
            generic(x.shape, generator).requires_grad_() if x.is_floating_point() else x
            for x in inputs
        )
        straight = Straight(exported, generator, one_row)
        out = torch.cat([y.flatten() for y in straight.outputs(weights, start)])
        moving = [x for x in (*start, *straight.one_hot) if x.requires_grad]
        # two backward passes make a forward one: pull u back to the input, then differentiate by u
        u = torch.ones_like(out, requires_grad=True)
        pulled = torch.autograd.grad(out, moving, u, create_graph=True, materialize_grads=True)
        along = sum((g * generic(g.shape, generator)).sum() for g in pulled)
        assert isinstance(along, Tensor)
        (speed,) = torch.autograd.grad(along, u, create_graph=True, materialize_grads=True)
        yield speed, {name: weights[name] for name in names}


def live_by_autograd(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    kept: Mapping[str, Tensor],
    names: Iterable[str],
    *,
    draws: int = 3,
    seed: int = 0,
    one_row: bool = False,
) -> dict[str, Tensor]:
    """Masks of the live connections among `names`; parameters not named are biases.

    `kept` maps names to bool tensors; a name it lacks is kept whole. A tied parameter goes by
    the first of its names, as in `named_parameters()`. `one_row`: tokens are drawn for each draw;
    else all rows of an embedding are there at once. The model is not changed, and the values of
    its parameters do not matter.

    >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> kept = {"0.weight": torch.tensor([[True], [False]])}
    >>> live = live_by_autograd(model, (torch.ones(1, 1),), kept, ["0.weight", "2.weight"])
    >>> live["2.weight"]
    tensor([[ True, False]])
    """
    names = list(names)
    found: dict[str, Tensor] = {}
    if not names:
        return found
    for speed, weights in speeds(model, inputs, kept, names, draws, seed, one_row):
        generator = torch.Generator().manual_seed(seed)
        total = (speed * generic(speed.shape, generator)).sum()
        if not total.requires_grad:  # the outputs do not depend on the input at all
            total = total + sum(0 * w.sum() for w in weights.values())
        slopes = torch.autograd.grad(total, list(weights.values()), materialize_grads=True)
        top = max(float(slope.abs().max()) for slope in slopes if slope.numel())
        top = max(top, 1e-3)
        for (name, weight), slope in zip(weights.items(), slopes, strict=True):
            mask = kept.get(name, torch.ones(weight.shape, dtype=torch.bool))
            alive = (slope.abs() > 1e-12 * top) & mask
            found[name] = found[name] | alive if name in found else alive
    return found


def outputs_reached_by_autograd(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    kept: Mapping[str, Tensor],
    names: Iterable[str] = (),
    *,
    draws: int = 3,
    seed: int = 0,
) -> int:
    """How many output units move when the input does.

    >>> model = nn.Linear(2, 3)
    >>> kept = {"weight": torch.tensor([[True, False], [False, False], [True, True]])}
    >>> outputs_reached_by_autograd(model, (torch.ones(1, 2),), kept)
    2
    """
    moves = [speed.abs() > 1e-12 for speed, _ in speeds(model, inputs, kept, names, draws, seed)]
    return int(torch.stack(moves).any(0).sum())
