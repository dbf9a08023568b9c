"""Unusual but ordinary modules: they work, or one error of ours says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from torch.optim.swa_utils import AveragedModel

import trellis
from trellis.errors import TrellisError

X = torch.ones(1, 4)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))


class Packs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.tensor([x.shape[1]] * x.shape[0])
        packed, _ = self.layer(pack_padded_sequence(x, lengths, batch_first=True))
        return pad_packed_sequence(packed, batch_first=True)[0]


class SparseWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4).to_sparse())

    def forward(self, x: Tensor) -> Tensor:
        return torch.sparse.mm(self.weight, x.T).T


class PartlyCompiled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.compile(mlp(), backend="eager"), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.first(x))
        return result


def quantised() -> nn.Module:
    layer = torch.ao.nn.quantized.dynamic.Linear(4, 3)
    return nn.Sequential(layer, nn.ReLU())


REFUSED: dict[str, tuple[Callable[[], nn.Module], Any, str]] = {
    "scripted": (lambda: torch.jit.script(mlp()), X, "before torch.jit.script"),
    "traced": (lambda: torch.jit.trace(mlp().eval(), X), X, "before torch.jit.script"),
    "partly scripted": (
        lambda: nn.Sequential(torch.jit.script(nn.Linear(4, 3)), nn.Linear(3, 2)),
        X, "TorchScript module 'Linear' at '0'",
    ),
    "quantised": (quantised, X, "'0' of Sequential is quantised"),
    "sparse": (SparseWeight, X, "to_dense"),
    "packed inside": (Packs, torch.ones(1, 5, 4), "on the padded tensor"),
    "packed input": (lambda: nn.LSTM(4, 3), pack_sequence([torch.ones(5, 4)]), "PackedSequence"),
    "packed inputs": (lambda: nn.LSTM(4, 3), (pack_sequence([torch.ones(5, 4)]),), "PackedSequ"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_is_one_error(name: str) -> None:
    make, inputs, said = REFUSED[name]
    for work in (trellis.trace, trellis.audit, trellis.compact):
        with pytest.raises(TrellisError, match=said):
            work(make(), inputs)
    with pytest.raises(TrellisError, match=said):
        trellis.prune(make(), inputs, sparsity=0.5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "total"),
    [
        (lambda: AveragedModel(mlp()), 42),
        (lambda: AveragedModel(mlp(), use_buffers=True), 42),
        (lambda: torch.compile(mlp(), backend="eager"), 42),
        (lambda: nn.DataParallel(mlp()), 42),
        (lambda: torch.fx.symbolic_trace(mlp()), 42),
        (PartlyCompiled, 48),
    ],
)
def test_wrapped_models_work(make: Callable[[], nn.Module], total: int) -> None:
    model = make().eval()
    masks = trellis.prune(model, X, sparsity=0.5)
    audit = trellis.audit(model, X)
    assert (audit.total, audit.kept, audit.live) == (total, masks.kept, masks.kept)
    small = trellis.compact(model, X)
    with torch.no_grad():
        torch.testing.assert_close(small(X), model(X))
