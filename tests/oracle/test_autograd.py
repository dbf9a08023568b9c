"""The automatic oracle against answers worked out by hand, and against the scalar definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.zoo import ZOO

from .autograd import live_by_autograd, outputs_reached_by_autograd
from .brute import backward, forward, live, outputs_reached
from .network import Network, as_masks, as_set, random_mask
from .networks import KINDS, networks, random_network
from .scalar import Connection


def check(network: Network, seed: int) -> None:
    """Both oracles say the same about one random mask."""
    masks = random_mask(seed, network.weights())
    kept = as_set(masks)
    found = live_by_autograd(network.model, network.inputs, masks, masks, draws=1)
    assert as_set(found) == live(network.graph, kept)
    reached = outputs_reached_by_autograd(network.model, network.inputs, masks, draws=1)
    assert reached == len(outputs_reached(network.graph, kept))


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_scalar_definition(kind: str) -> None:
    for seed in range(6):
        check(random_network(seed, kind), seed)


@given(networks(), st.integers(0, 1000))
@settings(deadline=None, max_examples=30)
def test_equals_the_scalar_definition_on_random_networks(network: Network, seed: int) -> None:
    check(network, seed)


def test_equals_the_scalar_definition_where_a_constant_opens_a_gate() -> None:
    """A bias unit, a connection, a gate: live though no input passes through; rare, so sought."""
    tried = 0
    for seed in range(100):
        for kind in ("glu", "squeeze_excite"):
            network = random_network(seed, kind)
            kept = as_set(random_mask(seed, network.weights()))
            if carrying(network, kept) != live(network.graph, kept):
                check(network, seed)
                tried += 1
    assert tried >= 8


def carrying(network: Network, kept: set[Connection]) -> set[Connection]:
    """The kept connections whose tail depends on the input and whose head changes an output."""
    depends, nonzero = forward(network.graph, kept)
    changes, _ = backward(network.graph, kept, depends, nonzero)
    return {
        c
        for tail, c, head in network.graph.uses()
        if c is not None and c in kept and depends[tail] and changes[head]
    }


def mask(*rows: tuple[int, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def test_a_dead_end_and_a_dead_start() -> None:
    """x0 -> h0 -> y lives; x1 -> h1 leads nowhere; nothing leads to h2 but its bias."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    kept = {"0.weight": mask((1, 0), (0, 1), (0, 0)), "2.weight": mask((1, 0, 1))}
    found = live_by_autograd(model, (torch.ones(1, 2),), kept, kept)
    assert found["0.weight"].equal(mask((1, 0), (0, 0), (0, 0)))
    assert found["2.weight"].equal(mask((1, 0, 0)))


class Gate(nn.Module):
    """a(x) * b(x), with or without a bias in b."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.a = nn.Linear(1, 1, bias=False)
        self.b = nn.Linear(1, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) * self.b(x)


@pytest.mark.parametrize("bias", [False, True])
def test_a_gate_is_shut_unless_a_bias_opens_it(bias: bool) -> None:
    kept = {"a.weight": mask((1,)), "b.weight": mask((0,))}
    found = live_by_autograd(Gate(bias), (torch.ones(1, 1),), kept, kept)
    assert bool(found["a.weight"]) is bias
    assert not bool(found["b.weight"])


class ConstantGate(nn.Module):
    """x * (w 1): w carries no input, but without it x goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w(torch.ones_like(x))


def test_a_constant_gate_is_live() -> None:
    found = live_by_autograd(ConstantGate(), (torch.ones(1, 1),), {}, ["w.weight"])
    assert bool(found["w.weight"])


def test_a_tap_that_only_sees_padding_is_dead() -> None:
    """One pixel, 3x3 kernel, padding 1: the middle tap alone is ever used."""
    model = nn.Conv2d(1, 1, 3, padding=1)
    found = live_by_autograd(model, (torch.ones(1, 1, 1, 1),), {}, ["weight"])
    assert as_set(found) == {("weight", 4)}


def test_every_row_of_an_embedding_has_its_use() -> None:
    model, inputs = ZOO["text_classifier"]()
    kept = {"head.weight": torch.ones(3, 8, dtype=torch.bool)}
    kept["head.weight"][:, 2] = False
    found = live_by_autograd(model, inputs, kept, ["embedding.weight", "head.weight"])
    assert found["embedding.weight"].all(0).tolist() == [c != 2 for c in range(8)]
    assert not found["embedding.weight"][:, 2].any()


def test_a_tied_weight_lives_by_any_of_its_uses() -> None:
    """Encoder w, decoder w transposed: a row alone is a path in and a path out."""
    model, inputs = ZOO["tied_autoencoder"]()
    kept = {"encoder.weight": torch.zeros(5, 8, dtype=torch.bool)}
    kept["encoder.weight"][1, 3] = True
    found = live_by_autograd(model, inputs, kept, kept)
    assert found["encoder.weight"].equal(kept["encoder.weight"])
    assert outputs_reached_by_autograd(model, inputs, kept) == 1


def test_queries_need_keys_and_values_but_values_need_neither() -> None:
    model, inputs = ZOO["causal_attention"]()
    kept = {"qkv.weight": torch.ones(24, 8, dtype=torch.bool)}
    kept["qkv.weight"][8:16] = False  # no keys
    found = live_by_autograd(model, inputs, kept, ["qkv.weight"])["qkv.weight"]
    assert not found[:8].any()
    assert found[16:].all()
    kept["qkv.weight"][8:] = False  # no values either
    assert not live_by_autograd(model, inputs, kept, ["qkv.weight"])["qkv.weight"].any()


def test_layer_norm_mixes_and_rms_norm_keeps_zeros() -> None:
    """Two hidden units, the second cut off from the input and the first from the output."""
    for norm, alive in ((nn.LayerNorm(2), True), (nn.RMSNorm(2), False)):
        model = nn.Sequential(nn.Linear(1, 2, bias=False), norm, nn.Linear(2, 1, bias=False))
        kept = {"0.weight": mask((1,), (0,)), "2.weight": mask((0, 1))}
        found = live_by_autograd(model, (torch.ones(1, 1),), kept, kept)
        assert bool(found["0.weight"][0]) is alive
        assert bool(found["2.weight"][0, 1]) is alive


def test_a_bidirectional_lstm_equals_its_cells_by_hand() -> None:
    """Cut the forward direction's way out: its connections die, the backward direction lives."""
    model, inputs = ZOO["lstm_stacked"]()
    kept = {"head.weight": torch.ones(3, 10, dtype=torch.bool)}
    kept["head.weight"][:, :5] = False
    names = [n for n, p in model.named_parameters() if p.ndim == 2]
    found = live_by_autograd(model, inputs, kept, names)
    assert not found["cell.weight_ih_l1"].any()
    assert found["cell.weight_ih_l1_reverse"].any()


@pytest.mark.parametrize("name", ZOO)
def test_knows_every_architecture_and_draws_agree(name: str) -> None:
    model, inputs = ZOO[name]()
    weights = {n: p for n, p in model.named_parameters() if p.ndim > 1}
    kept = random_mask(7, weights, density=0.5)
    one = live_by_autograd(model, inputs, kept, kept, draws=1, seed=1)
    two = live_by_autograd(model, inputs, kept, kept, draws=1, seed=2)
    assert as_set(one) == as_set(two)
    assert as_set(one) <= as_set(kept)
    alive = as_masks(as_set(one), weights)
    assert as_set(live_by_autograd(model, inputs, alive, alive, draws=1)) == as_set(one)
