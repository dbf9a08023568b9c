"""Every reference architecture, pruned and compacted, computes what it computed."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import trellis
from tests.deploy.compact.agreement import apart, doubled, drawn, outputs
from tests.zoo import ZOO

# Integer inputs are structure there; recurrent layers say how many they keep. Nothing else may be
# left with dead connections.
STRUCTURED = {"gcn_conv", "gat_conv"}
LEFT = "dead connections between units that stay are kept"


@pytest.mark.parametrize("name", ZOO)
def test_the_same_function_in_less(name: str) -> None:
    model, inputs = doubled(*ZOO[name]())
    net = trellis.trace(model, inputs)
    trellis.prune(net, sparsity=0.85, method="magnitude")
    small = trellis.compact(model, inputs)
    fixed = any("only inputs of the example's shapes" in note for note in small.report.notes)
    fresh = drawn(inputs, None if fixed else 3)
    assert apart(outputs(model, fresh), outputs(small, fresh)) < 1e-9
    before, after = small.report.before, small.report.after
    assert after.connections <= before.connections
    assert ("all units stay" in str(small)) == (name in STRUCTURED)
    assert after.kept <= trellis.audit(net).live or name in STRUCTURED or LEFT in str(small)


@pytest.mark.parametrize(
    "name", ["mlp", "resnet18", "vit", "stgcn", "gcn_stacked", "densenet_block"]
)
def test_a_life_after(name: str, tmp_path: Path) -> None:
    """It copies, saves, loads, trains with zeros that stay zero, and exports."""
    model, inputs = ZOO[name]()
    trellis.prune(model, inputs, sparsity=0.7)
    small = trellis.compact(model, inputs)
    expected = outputs(small, inputs)
    trellis.save(small, tmp_path / "small")
    loaded = trellis.load(tmp_path / "small")
    assert isinstance(loaded, trellis.Compacted) and str(loaded) == str(small)
    assert all(map(torch.equal, expected, outputs(loaded, inputs)))
    assert trellis.masks_of(loaded) == trellis.masks_of(small)
    exported = torch.export.export(small, inputs, strict=False).module()
    assert apart(expected, outputs(exported, inputs)) < 1e-5
    copied = copy.deepcopy(small)
    optimizer = torch.optim.SGD(copied.parameters(), lr=0.1, weight_decay=0.1)
    torch.stack([y.square().sum() for y in _results(copied, inputs)]).sum().backward()
    optimizer.step()
    assert apart(expected, outputs(copied, inputs)) > 0
    assert all(map(torch.equal, expected, outputs(small, inputs)))
    masks = trellis.masks_of(copied)
    for tensor, mask in zip(_named(copied, masks), masks.values(), strict=True):
        assert not tensor[~mask].any()


def _results(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    found = model(*inputs)
    return [found] if isinstance(found, torch.Tensor) else list(found)


def _named(model: torch.nn.Module, names: trellis.Masks) -> list[torch.Tensor]:
    return [trellis.masks.plain_tensors(model)[name] for name in names]


@pytest.mark.parametrize("name", ["mlp", "resnet18", "vit"])
def test_nothing_is_taken_from_a_dense_network(name: str) -> None:
    model, inputs = doubled(*ZOO[name]())
    small = trellis.compact(model, inputs)
    assert small.report.after.connections == small.report.before.connections
    assert small.report.after.dense == small.report.before.dense
    fresh = drawn(inputs, 2)
    assert apart(outputs(model, fresh), outputs(small, fresh)) < 1e-12
