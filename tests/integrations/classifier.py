"""A LightningModule as its users write one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from trellis.integrations.lightning import PruningCallback

QUIET: dict[str, Any] = {
    "logger": False, "log_every_n_steps": 1, "enable_progress_bar": False, "devices": 1,
    "enable_model_summary": False, "accelerator": "cpu", "enable_checkpointing": False,
}  # fmt: skip


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.net(x)
        return found

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def data() -> DataLoader[Any]:
    x = torch.randn(512, 16, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=32)


def fit(
    folder: Path, callback: PruningCallback, *others: Any, seed: int = 0,
    checkpoint: Path | None = None, **options: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    torch.manual_seed(seed)
    model = Classifier()
    usual = QUIET | {"enable_checkpointing": bool(others)} | options
    trainer = pl.Trainer(callbacks=[callback, *others], default_root_dir=folder, **usual)
    trainer.fit(model, data(), ckpt_path=checkpoint, weights_only=True)
    return model, callback, trainer
