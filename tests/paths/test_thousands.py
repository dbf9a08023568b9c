"""Live is what the definition says, on two thousand random networks, each with its own mask."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest
import torch
from torch import Tensor

from tests.oracle.brute import forward, live
from tests.oracle.gathered import Gathered
from tests.oracle.network import Network, as_set, random_mask
from tests.oracle.networks import KINDS, random_network
from tests.oracle.scalar import Connection
from trellis import Trellis, trace
from trellis.paths.kernels import Places
from trellis.paths.liveness import liveness

EACH = 225  # networks of a kind
TOGETHER = 25  # structures traced in one go


def structures(kind: str) -> list[list[int]]:
    """Seeds of networks that are alike but for their weights: what is traced is the same."""
    found: dict[str, list[int]] = defaultdict(list)
    for seed in range(EACH):
        network = random_network(seed, kind)
        shapes = [tuple(x.shape) for x in network.inputs]
        found[f"{network.model} {shapes} {network.graph.nodes}"].append(seed)
    return sorted(found.values(), key=len)  # so that those together have about as many


def rounds(seeds: list[list[int]]) -> Iterator[list[int]]:
    """The first of each, the second of each; the last again where there are no more."""
    for turn in range(max(map(len, seeds))):
        yield [mine[min(turn, len(mine) - 1)] for mine in seeds]


def defined(
    networks: list[Network], masks: list[dict[str, Tensor]]
) -> tuple[list[set[Connection]], list[bool]]:
    """The live connections of each network, and which output units an input reaches."""
    expected, reached = [], []
    for network, mask in zip(networks, masks, strict=True):
        kept = as_set(mask)
        expected.append(live(network.graph, kept))
        depends, _ = forward(network.graph, kept)
        reached += [depends[unit] for unit in network.graph.outputs]
    return expected, reached


def of(net: Trellis, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that the trellis knows: a weight that nothing is multiplied with holds none."""
    return {name: mask for name, mask in masks.items() if name in net.connections}


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_definition_on_thousands_of_networks(kind: str) -> None:
    tried, alive = set(), 0
    alike = structures(kind)
    for begin in range(0, len(alike), TOGETHER):
        seeds = alike[begin : begin + TOGETHER]
        networks: list[Network] = [random_network(mine[0], kind) for mine in seeds]
        model = Gathered(networks).eval()
        net = trace(model, model.inputs)
        for chosen in rounds(seeds):
            masks = [random_mask(s, n.weights()) for s, n in zip(chosen, networks, strict=True)]
            kept = of(net, model.together(masks))
            expected, reached = defined(networks, masks)
            for trellis in (net, net.lean):
                for how in (kept, Places.of(kept)):
                    found = liveness(trellis, how)
                    assert [as_set(mask) for mask in model.apart(found.live)] == expected
                    assert torch.cat([u.reshape(-1) for u in found.outputs]).tolist() == reached
            alive += sum(map(len, expected))
            tried |= set(chosen)
    assert len(tried) == EACH and alive > EACH
