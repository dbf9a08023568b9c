"""Prune while Lightning trains, and load the result without Trellis."""

import sys

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trellis.integrations.lightning import PruningCallback


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


x = torch.randn(512, 16)
data = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=32)
pruning = PruningCallback(sparsity=0.9)
trainer = pl.Trainer(max_epochs=4, callbacks=[pruning], default_root_dir=sys.argv[1])
trainer.fit(Classifier(), data)

checkpoint = trainer.checkpoint_callback.best_model_path
plain = Classifier.load_from_checkpoint(checkpoint)  # nothing of Trellis is in the file
kept = sum(int((p != 0).sum()) for p in plain.parameters() if p.ndim > 1)
print(f"{kept} of {pruning.pruner.total} connections kept")
