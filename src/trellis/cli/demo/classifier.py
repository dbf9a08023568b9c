"""A small graph network over the joints of a hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trellis.cli.demo.gestures import CHANNELS, CLASSES, JOINTS


class Classifier(nn.Module):
    """Heads of learned attention between joints, each with a convolution of its own.

    h_k = relu(A_k · x · W_k), all heads concatenated, then a dense layer; no biases.
    x (n, joints, channels) to (n, classes).

    >>> Classifier()(torch.zeros(2, 21, 24)).shape
    torch.Size([2, 16])
    """

    def __init__(self, heads: int = 8, filters: int = 32) -> None:
        super().__init__()
        self.attention = nn.Parameter(torch.eye(JOINTS) + 0.1 * torch.randn(heads, JOINTS, JOINTS))
        self.convolution = nn.Parameter(torch.randn(heads, CHANNELS, filters) / CHANNELS**0.5)
        self.dense = nn.Linear(heads * JOINTS * filters, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.einsum("kuv,nvc->nkuc", self.attention, x)
        h = torch.relu(torch.einsum("nkuc,kcf->nkuf", h, self.convolution))
        logits: Tensor = self.dense(h.flatten(1))
        return logits
