"""Networks on which every form of a model must agree: random ones, and one that is trained.

A value builds ``(model, pruned and in eval mode, example input of one sample)``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import trellis
from tests.zoo import ZOO
from trellis.skeleton import GCN

Case = tuple[nn.Module, Tensor]


def pruned(model: nn.Module, x: Tensor, sparsity: float, method: str = "closed") -> Case:
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.3)
    trellis.prune(model, x, sparsity=sparsity, method=method)
    return model, x


def mlp() -> Case:
    layers = (nn.Linear(20, 40), nn.Sigmoid(), nn.Linear(40, 40), nn.BatchNorm1d(40), nn.GELU())
    return pruned(nn.Sequential(*layers, nn.Linear(40, 6)), torch.zeros(1, 20), 0.95)


def cnn() -> Case:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Sigmoid(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, stride=2, groups=2), nn.Hardswish(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 7), nn.Softmax(1),
    )  # fmt: skip
    return pruned(model, torch.zeros(1, 3, 14, 14), 0.9)


def gcn(sparsity: float = 0.9, method: str = "closed", **options: object) -> Case:
    sizes = {"nodes": 7, "channels": 12, "classes": 5, "heads": 3, "filters": 8} | options
    model = GCN(**sizes)  # type: ignore[arg-type]
    x = torch.zeros(1, model.sizes["nodes"], model.sizes["channels"])
    return pruned(model, x, sparsity, method)


def paper(sparsity: float) -> Case:
    """The paper's network, pruned by the criterion of `trellis shrink` for skeletons."""
    return gcn(sparsity, "viterbi", nodes=21, channels=96, classes=45, heads=16, filters=128)


def trained() -> Case:
    """Trained, pruned, and trained again under its masks, on classes that can be told apart."""
    model = GCN(6, 9, 4, heads=4, filters=10, bias=True)
    centres, labels = torch.randn(4, 6, 9), torch.arange(64) % 4
    for _ in range(2):
        optimiser = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(40):
            x = centres[labels] + 0.5 * torch.randn(64, 6, 9)
            optimiser.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            optimiser.step()
        trellis.prune(model, torch.zeros(1, 6, 9), sparsity=0.9)
    assert (model(centres).argmax(1) == torch.arange(4)).all()
    return model.eval(), torch.zeros(1, 6, 9)


def zoo(name: str, sparsity: float) -> Case:
    model, inputs = ZOO[name]()
    return pruned(model, inputs[0], sparsity)


NETWORKS: dict[str, Callable[[], Case]] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet18": lambda: zoo("resnet18", 0.9),
    "transformer": lambda: zoo("transformer_encoder", 0.9),
    "gcn": gcn,
    "gcn with biases, summed, in two blocks": lambda: gcn(bias=True, combine="sum", blocks=2),
    "gcn, one kernel for all heads": lambda: gcn(shared=True, bias=True),
    "gcn, trained": trained,
    "gcn of absolute values": lambda: gcn(activation="abs"),
    "the paper's gcn at 97 %": lambda: paper(0.97),  # in several slabs
    "the paper's gcn at 99.9 %": lambda: paper(0.999),
}
