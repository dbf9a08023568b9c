"""Lookups in bags, and mixtures of experts, against what they are made of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trellis
from trellis.paths.liveness import liveness


class Bag(nn.Module):
    """The sum or mean of the rows of each bag, and a head; `plain` says it without a bag."""

    def __init__(self, plain: bool, mode: str) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4) if plain else nn.EmbeddingBag(7, 4, mode=mode)
        self.head = nn.Linear(4, 3)

    def forward(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.table(ids)
        return self.head(rows.mean(1) if isinstance(self.table, nn.Embedding) else rows)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_is_an_embedding_and_a_mean(mode: str) -> None:
    ids = torch.tensor([[1, 2, 2]])
    bag, plain = Bag(False, mode), Bag(True, mode)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        draw = {
            n: torch.rand(p.shape, generator=generator) < 0.4 for n, p in bag.named_parameters()
        }
        found = [
            liveness(net, {n: draw[n] for n in net.connections}).live
            for net in (trellis.trace(bag, ids), trellis.trace(plain, ids))
        ]
        assert found[0].keys() == found[1].keys() and len(found[0]) == 2
        assert all(torch.equal(found[0][n], found[1][n]) for n in found[0])


def test_bags_begin_where_the_offsets_say() -> None:
    """Two bags of a table; each output reads its own bag alone."""
    model = nn.EmbeddingBag(5, 2, mode="sum")
    ids = torch.tensor([0, 1, 2])
    net = trellis.trace(model, (ids, torch.tensor([0, 1])))
    assert net.output_units == 4 and net.total == 10
    small = trellis.compact(model, (ids, torch.tensor([0, 1])))
    again = torch.tensor([4, 3, 3]), torch.tensor([0, 1])
    assert torch.equal(small(*again), model(*again))


def experts(shared: bool) -> nn.Module:
    """A mixture of Hugging Face, three experts of which two are chosen."""
    transformers: Any = pytest.importorskip("transformers")
    sizes = {"hidden_size": 3, "intermediate_size": 2, "num_experts_per_tok": 2}
    if shared:
        from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock

        config = transformers.Qwen2MoeConfig(
            num_experts=3, moe_intermediate_size=2, shared_expert_intermediate_size=2, **sizes
        )
        block: nn.Module = Qwen2MoeSparseMoeBlock(config)
    else:
        from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

        config = transformers.MixtralConfig(num_local_experts=3, **sizes)
        block = MixtralSparseMoeBlock(config)
    config._experts_implementation = "eager"
    generator = torch.Generator().manual_seed(0)
    for parameter in block.parameters():  # made without values
        nn.init.normal_(parameter, generator=generator)
    return block.double().eval()


def lives_by_draws(model: nn.Module, kept: dict[str, Tensor], draws: int) -> dict[str, Tensor]:
    """Weights on which the speed of an output depends, in one of several draws of everything."""
    parameters = dict(model.named_parameters())
    found = {name: torch.zeros_like(mask) for name, mask in kept.items()}
    generator = torch.Generator().manual_seed(5)

    def drawn(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    for _ in range(draws):
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(drawn(tuple(parameter.shape)) * kept[name])
        x = drawn((1, 2, 3)).requires_grad_()
        u = torch.ones(1, 2, 3, dtype=torch.float64, requires_grad=True)
        (pulled,) = torch.autograd.grad(model(x), x, u, create_graph=True)
        (speed,) = torch.autograd.grad((pulled * drawn((1, 2, 3))).sum(), u, create_graph=True)
        if not speed.requires_grad:
            continue
        grads = torch.autograd.grad(
            (speed * drawn((1, 2, 3))).sum(), list(parameters.values()), materialize_grads=True
        )
        for name, grad in zip(parameters, grads, strict=True):
            found[name] |= (grad.abs() > 1e-12) & kept[name]
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_a_mixture_of_experts_lives_by_its_derivatives(shared: bool) -> None:
    model = experts(shared)
    net = trellis.trace(model, torch.zeros(1, 2, 3, dtype=torch.float64))
    assert set(net.connections) == set(dict(model.named_parameters()))
    generator = torch.Generator().manual_seed(1)
    for density in (0.3, 0.5, 0.7, 1.0):
        kept = {n: torch.rand(s, generator=generator) < density for n, s in net.connections.items()}
        found = liveness(net, kept).live
        expected = lives_by_draws(model, kept, 60)
        assert all(torch.equal(found[name], expected[name]) for name in kept)


def test_a_pruned_mixture_compacts_to_the_same_function() -> None:
    model = experts(False)
    x = torch.randn(1, 2, 3, dtype=torch.float64)
    trellis.prune(model, x, sparsity=0.4)
    audit = trellis.audit(model, x)
    assert audit.live == audit.kept
    small = trellis.compact(model, x)
    fresh = torch.randn(4, 2, 3, dtype=torch.float64)
    assert torch.allclose(small(fresh), model(fresh))
