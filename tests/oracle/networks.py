"""Random small networks, each a torch model and the same network unit by unit.

`random_network(seed)` for thousands in a row, `networks()` for Hypothesis.

>>> network = random_network(3, kind="mlp")
>>> network.kind, len(network.inputs)
('mlp', 1)
"""

import random
from collections.abc import Callable

import torch
from hypothesis import assume
from hypothesis import strategies as st

from . import feedforward, gated, sharing
from .layers import Choose
from .network import Network

KINDS: dict[str, Callable[[Choose], Network]] = {
    "mlp": feedforward.mlp,
    "convolutional": feedforward.convolutional,
    "residual": feedforward.residual,
    "concatenating": feedforward.concatenating,
    "product": gated.product,
    "glu": gated.glu,
    "squeeze_excite": gated.squeeze_excite,
    "recurrent": sharing.recurrent,
    "gcn": sharing.gcn,
}
WITHOUT_GATES = ("mlp", "convolutional", "residual", "concatenating", "gcn")


def build(kind: str, choose: Choose, seed: int) -> Network:
    """One network of a kind, its weights drawn from `seed`, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = KINDS[kind](choose)
    network.model.eval()
    return network


def random_network(seed: int, kind: str | None = None, largest: int | None = None) -> Network:
    """The network of this number; with `largest`, the first one of at most so many connections."""
    chance = random.Random(seed)
    while True:
        chosen = kind or chance.choice(sorted(KINDS))
        network = build(chosen, chance.randint, seed)
        if largest is None or len(network.graph.connections()) <= largest:
            return network


@st.composite
def networks(
    draw: st.DrawFn, kinds: tuple[str, ...] = tuple(KINDS), largest: int | None = None
) -> Network:
    """A Hypothesis strategy; sizes and options shrink towards the smallest network of a kind."""
    kind = draw(st.sampled_from(kinds))
    seed = draw(st.integers(0, 1000))
    network = build(kind, lambda low, high: draw(st.integers(low, high)), seed)
    assume(largest is None or len(network.graph.connections()) <= largest)
    return network
