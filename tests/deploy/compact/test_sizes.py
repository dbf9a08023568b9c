"""It really gets smaller: the networks that the claim is about."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import trellis
from tests.deploy.compact.agreement import apart, doubled, drawn, outputs
from tests.zoo import ZOO
from tests.zoo.resnet import resnet18
from tests.zoo.seeded import settle
from trellis.masks import plain_tensors
from trellis.skeleton import GCN


def test_the_papers_network_at_99_9_percent() -> None:
    gcn = GCN()
    x = torch.zeros(1, 21, 96)
    masks = trellis.prune(gcn, x, sparsity=0.999, scope="global")
    small = trellis.compact(gcn, x)
    fresh = drawn((x,), 8)
    assert apart(outputs(gcn, fresh), outputs(small, fresh)) < 1e-5
    assert small.report.after.kept == masks.kept == 2139
    assert small.report.after.bytes < 0.02 * small.report.before.bytes
    assert small.report.after.dense < 0.05 * small.report.before.dense
    dense = plain_tensors(small)["dense.weight"]
    assert dense.any(0).all()  # of 43,008 units those that some class reads


def test_inner_widths_of_a_residual_network_shrink() -> None:
    """ResNet-18's blocks: what the sums need stays, what is inside a block goes."""
    model, inputs = resnet18(size=32, classes=10, width=8)
    model, inputs = doubled(settle(model), inputs)
    trellis.prune(model, inputs, sparsity=0.99, method="synflow")
    small = trellis.compact(model, inputs)
    fresh = drawn(inputs, 2)
    assert apart(outputs(model, fresh), outputs(small, fresh)) < 1e-9
    assert small.report.after.connections < 0.05 * small.report.before.connections
    assert not any("norm" in op.target for op in small.program.ops)
    before, after = plain_tensors(model), plain_tensors(small)
    inner = [n for n in after if n.endswith(".conv1.weight")]
    widths = [(len(before[n]), len(after[n])) for n in inner]
    assert len(inner) > 3 and all(a >= b for a, b in widths)
    assert sum(b for _, b in widths) < 0.5 * sum(a for a, _ in widths)


class Attention(nn.Module):
    """Four heads by hand, of which one is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 48), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(2, (4, 4)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=2))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return out


def test_a_dead_head_goes_and_the_scale_stays() -> None:
    model = Attention().double()
    with torch.no_grad():
        model.out.weight[:, 4:8] = 0
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    small = trellis.compact(model, x)
    assert plain_tensors(small)["qkv.weight"].shape == (36, 8)
    assert apart(outputs(model, (x,)), outputs(small, (x,))) < 1e-12


def test_dead_features_of_queries_go_and_the_scale_stays() -> None:
    """Softmax is taken of q·k/√4, though only three features are left."""
    model = Attention().double()
    with torch.no_grad():
        for part in (0, 16):  # queries and keys
            for tensor in (model.qkv.weight, model.qkv.bias):
                tensor[part + 1 : part + 16 : 4] = 0
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    small = trellis.compact(model, x)
    (attention,) = [op for op in small.program.ops if "attention" in op.target]
    assert attention.kwargs["scale"] == 0.5
    assert apart(outputs(model, (x,)), outputs(small, (x,))) < 1e-12


class InPlace(nn.Module):
    """As torchvision writes it: ReLU in place, a sum in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 3, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += x
        out: Tensor = self.relu(y)
        return out


def test_operations_in_place() -> None:
    model, inputs = doubled(InPlace().eval(), (torch.zeros(1, 3, 6, 6),))
    with torch.no_grad():
        for norm in (model.norm1, model.norm2):
            norm.running_mean.normal_()  # type: ignore[union-attr, operator]
            norm.bias.normal_()  # type: ignore[union-attr, operator]
    trellis.prune(model, inputs, sparsity=0.9)
    small = trellis.compact(model, inputs)
    fresh = drawn(inputs, 3)
    assert apart(outputs(model, fresh), outputs(small, fresh)) < 1e-9
    assert small.report.after.connections < small.report.before.connections
    assert not any("norm" in op.target for op in small.program.ops)


def test_a_traced_trellis_will_do() -> None:
    model, inputs = ZOO["mlp"]()
    trellis.prune(model, inputs, sparsity=0.9)
    again = trellis.compact(trellis.trace(model, inputs))
    assert str(again) == str(trellis.compact(model, inputs))


def test_compacting_twice_changes_nothing() -> None:
    model, inputs = doubled(*ZOO["resnet18"]())
    trellis.prune(model, inputs, sparsity=0.97)
    once = trellis.compact(model, inputs)
    twice = trellis.compact(once, inputs)
    assert twice.report.after == twice.report.before == once.report.after
