"""Straight lines have the dependences of the curves they replace.

On smooth networks the real derivatives can be taken too. A curve can only add to them, so that what
is live by straight lines must be live by the real model, and the same outputs must move.
"""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.zoo import ZOO

from .autograd import draw_weights, generic, live_by_autograd, outputs_reached_by_autograd
from .network import random_mask

SMOOTH = (
    "causal_attention cross_attention multihead_attention vit vit_eager lstm "
    "lstm_stacked gru gru_stacked rnn rnn_by_hand gru_by_hand rms_norm convnext_block swiglu glu "
    "product"
)


def real_derivatives(
    model: nn.Module, inputs: tuple[Tensor, ...], kept: dict[str, Tensor], seed: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """d out / dt, flat, and d2 (a sum of out) / (dw dt), of the model as it is."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double()
    weights = draw_weights(model, kept, kept, generator)
    start = tuple(generic(x.shape, generator).requires_grad_() for x in inputs)
    with sdpa_kernel(SDPBackend.MATH):
        result = functional_call(model, weights, start)
    outs = (result,) if isinstance(result, Tensor) else result
    out = torch.cat([y.flatten() for y in outs])
    u = torch.ones_like(out, requires_grad=True)
    pulled = torch.autograd.grad(out, start, u, create_graph=True, materialize_grads=True)
    along = torch.stack([(g * generic(g.shape, generator)).sum() for g in pulled]).sum()
    (speed,) = torch.autograd.grad(along, u, create_graph=True, materialize_grads=True)
    total = (speed * generic(speed.shape, generator)).sum()
    leaves = [weights[name] for name in kept]
    slopes = torch.autograd.grad(total, leaves, materialize_grads=True)
    return speed.detach(), dict(zip(kept, slopes, strict=True))


@pytest.mark.parametrize("density", [0.15, 0.5])
@pytest.mark.parametrize("name", SMOOTH.split())
def test_what_is_live_moves_the_real_model(name: str, density: float) -> None:
    model, inputs = ZOO[name]()
    weights = {n: p for n, p in model.named_parameters() if p.ndim > 1}
    kept = random_mask(3, weights, density)
    draws = [real_derivatives(model, inputs, kept, seed) for seed in range(3)]
    alive = live_by_autograd(model, inputs, kept, kept)
    moved = torch.stack([speed != 0 for speed, _ in draws]).any(0)
    assert outputs_reached_by_autograd(model, inputs, kept) == int(moved.sum())
    for n in kept:
        real = torch.stack([slopes[n] != 0 for _, slopes in draws]).any(0)
        assert not (alive[n] & ~real).any(), n
