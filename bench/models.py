"""The networks of the benchmark, built from a fixed seed and in evaluation mode.

Nothing is downloaded. The MLP and the GCN are trained briefly on synthetic clusters, so that
their magnitudes are those of a trained network; the large ones hold their initial weights.

>>> model = build("gcn")
>>> sum(weight.numel() for weight in connections(model).values())
2139024
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from resnet import ResNet50
from torch import Tensor, nn
from torch.nn import functional as F

# Parameters that are only added to a signal, or looked up by a constant: biases, not connections.
ADDED = ("wpe.", "position_embeddings", "cls_token")


class MLP(nn.Module):
    """A multi-layer perceptron with ReLU, without biases: (batch, first) -> (batch, last).

    >>> [tuple(p.shape) for p in MLP(3, 4, 2).parameters()]
    [(4, 3), (2, 4)]
    """

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(tail, head, bias=False) for tail, head in pairwise(widths)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        logits: Tensor = self.layers[-1](x)
        return logits


def trained(model: nn.Module, shape: tuple[int, ...], classes: int, steps: int) -> nn.Module:
    """Fit `model` to noisy Gaussian clusters for a few steps of Adam, inputs of `shape`."""
    centres = torch.randn(classes, *shape)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        labels = torch.randint(classes, (128,))
        inputs = centres[labels] + torch.randn(128, *shape)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    return model


class Logits(nn.Module):
    """A `transformers` model that returns its logits as a plain tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x).logits
        return logits


def gcn() -> nn.Module:
    """The GCN of the paper, 2.1 M weights, briefly trained."""
    from trellis.skeleton import GCN

    return trained(GCN(), (21, 96), 45, 20)


def vit_b16() -> nn.Module:
    """ViT-B/16 as `transformers` configures it, 86 M weights."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(num_labels=1000)  # type: ignore[call-arg]
    return Logits(ViTForImageClassification(config))


def gpt2() -> nn.Module:
    """GPT-2 small as `transformers` configures it, 124 M weights, embedding and head tied."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(use_cache=False)
    return Logits(GPT2LMHeadModel(config))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Network:
    """How a network is printed, made and fed (batch 1)."""

    title: str
    make: Callable[[], nn.Module]
    feed: Callable[[], tuple[Tensor, ...]]


NETWORKS = {
    "mlp": Network(
        "MLP 63-128-128-128-45",
        lambda: trained(MLP(63, 128, 128, 128, 45), (63,), 45, 500),
        lambda: (torch.randn(1, 63),),
    ),
    "gcn": Network(
        "GCN of the paper",
        gcn,
        lambda: (torch.randn(1, 21, 96),),
    ),
    "stack": Network(
        "19 linear layers",
        lambda: MLP(*[1752] * 19, 1000),
        lambda: (torch.randn(1, 1752),),
    ),
    "resnet50": Network("ResNet-50", ResNet50, lambda: (torch.randn(1, 3, 224, 224),)),
    "vit": Network("ViT-B/16", vit_b16, lambda: (torch.randn(1, 3, 224, 224),)),
    "gpt2": Network("GPT-2 small", gpt2, lambda: (torch.randint(50257, (1, 128)),)),
}


def build(name: str) -> nn.Module:
    """The network called `name`, the same weights at every call."""
    torch.manual_seed(0)
    return NETWORKS[name].make().eval()


def example_inputs(name: str) -> tuple[Tensor, ...]:
    """What the network called `name` reads, at batch 1."""
    torch.manual_seed(1)
    return NETWORKS[name].feed()


def connections(model: nn.Module) -> dict[str, nn.Parameter]:
    """The prunable weights by name, a tied one once: what every tool is asked to prune."""
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.dim() >= 2 and not any(word in name for word in ADDED)
    }
