"""Live means what the definitions say: on scalar graphs, and by derivatives of real models."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.autograd import live_by_autograd, outputs_reached_by_autograd
from tests.oracle.brute import backward, forward, live, outputs_reached
from tests.oracle.network import Network, as_masks, as_set, random_mask
from tests.oracle.networks import KINDS, WITHOUT_GATES, networks, random_network
from tests.zoo import ZOO
from trellis.graph.trellis import Trellis, trace
from trellis.masks import plain
from trellis.paths.audit import audit
from trellis.paths.kernels import Places
from trellis.paths.liveness import addable, dense, ends, liveness

from .traced import prune_exactly, prune_least, shapes, traced


def check(net: Trellis, network: Network, seed: int) -> None:
    masks = random_mask(seed, network.weights())
    kept = as_set(masks)
    found = liveness(net, masks)
    assert as_set(found.live) == live(network.graph, kept)
    assert found.outputs_reached == len(outputs_reached(network.graph, kept))
    singly = liveness(net, Places.of(masks))
    assert as_set(singly.live) == as_set(found.live) and singly.count == found.count
    assert all(map(torch.equal, singly.outputs, found.outputs))
    reached = torch.cat([mask.reshape(-1) for mask in found.outputs]).tolist()
    depends, _ = forward(network.graph, kept)
    assert reached == [depends[unit] for unit in network.graph.outputs]


@given(networks(), st.lists(st.integers(0, 10**6), min_size=1, max_size=4))
@settings(max_examples=60)
def test_equals_the_definition(network: Network, seeds: list[int]) -> None:
    net = trace(network.model, network.inputs)
    for seed in seeds:
        check(net, network, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_definition_under_many_masks(kind: str) -> None:
    for seed in range(3):
        network = random_network(seed, kind)
        net = trace(network.model, network.inputs)
        for mask in range(72):
            check(net, network, 100 * seed + mask)


@given(networks(WITHOUT_GATES), st.integers(0, 10**6))
@settings(max_examples=30)
def test_accessible_and_coaccessible_are_the_two_halves(network: Network, seed: int) -> None:
    masks = random_mask(seed, network.weights())
    kept = as_set(masks)
    depends, nonzero = forward(network.graph, kept)
    changes, _ = backward(network.graph, kept, depends, nonzero)
    uses = [(tail, c, head) for tail, c, head in network.graph.uses() if c in kept]
    net = trace(network.model, network.inputs)
    found = liveness(net, masks)
    accessible, coaccessible = (as_set(end) for end in ends(net, masks, found.run))
    assert accessible == {c for tail, c, _ in uses if depends[tail]}
    onward = {c for _, c, head in uses if changes[head]}
    if network.kind == "convolutional":
        # a tap that reads padding has a head there and no tail: its head may lead on all the same
        assert coaccessible >= onward
    else:
        assert coaccessible == onward


@given(networks(), st.integers(0, 10**6))
@settings(max_examples=30)
def test_addable_lives_when_it_alone_is_added(network: Network, seed: int) -> None:
    masks = random_mask(seed, network.weights())
    kept = as_set(masks)
    able = as_set(addable(trace(network.model, network.inputs), masks))
    for connection in sorted(network.graph.connections())[:20]:
        lives = connection in live(network.graph, kept | {connection})
        assert lives or connection not in able
        # where a connection has one use, or stands in no gate, nothing else can live alone
        if network.kind in ("mlp", "residual", "concatenating"):
            assert lives == (connection in able)


@given(networks())
@settings(max_examples=30)
def test_dense_is_what_lives_when_everything_is_kept(network: Network) -> None:
    everything = network.graph.connections()
    found = dense(trace(network.model, network.inputs))
    assert as_set(found) == live(network.graph, everything)


@pytest.mark.parametrize("name", ZOO)
def test_real_architectures_equal_their_derivatives(name: str) -> None:
    net, inputs = traced(name)
    for density in (0.05, 0.3, 0.8):
        kept = random_mask(int(100 * density), shapes(net), density)
        found = liveness(net, kept)
        with plain(net.model) as model:
            alive = live_by_autograd(model, inputs, kept, kept, draws=3)
        assert as_set(found.live) == as_set(alive)


# Large enough to reach all outputs and layers with a thousandth of their connections, or with a
# hundredth; in the others so few are not enough, and the error says how many are.
AT_999 = {
    "lenet",
    "lenet_without_bias",
    "resnet18",
    "resnet50",
    "vit",
    "vit_eager",
    "bert",
    "bert_eager",
}
AT_99 = AT_999 | {
    "unet", "gpt2", "gpt2_eager", "mobilenet", "mobilenet_block", "densenet_block",
    "multihead_attention", "transformer_encoder", "group_norm", "instance_norm",
    "instance_norm_remembered", "convnext_block",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "thousandths"), [(n, 10) for n in ZOO] + [(n, 1) for n in sorted(AT_999)]
)
def test_pruned_hard_all_that_is_kept_lives_by_its_derivatives(name: str, thousandths: int) -> None:
    model, inputs = ZOO[name]()
    dense_outputs = liveness(traced(name)[0], _everything(traced(name)[0])).outputs_reached
    net = trace(model, inputs)
    enough = name in (AT_999 if thousandths == 1 else AT_99)
    masks = (prune_exactly if enough else prune_least)(net, thousandths)
    report = audit(net)
    assert report.live_fraction == 1.0
    assert report.kept == masks.kept <= masks.budget
    assert report.outputs_reached == dense_outputs
    kept = dict(masks)
    with plain(model) as seen:
        alive = live_by_autograd(seen, inputs, kept, kept, draws=2)
        reached = outputs_reached_by_autograd(seen, inputs, kept, draws=1)
    assert as_set(alive) == as_set(kept)
    assert reached == dense_outputs


def _everything(net: Trellis) -> dict[str, torch.Tensor]:
    return as_masks({(n, i) for n, s in shapes(net).items() for i in range(s.numel())}, shapes(net))
