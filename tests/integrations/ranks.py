"""Train with Lightning and with the Trainer in two processes; run by `torchrun`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn

from trellis.integrations import lightning, transformers
from trellis.training.pruner import Pruner

from .classifier import fit
from .texts import train


def write(path: Path, pruner: Pruner | None, model: nn.Module) -> None:
    assert pruner is not None and pruner.group is not None and pruner.group.size() == 2
    masks = {f"mask.{name}": mask for name, mask in pruner.masks.items()}
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(masks | weights, path)


def main() -> None:
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    torch.set_num_threads(1)
    trainer, callback = train(
        folder / "texts", transformers.PruningCallback(0.8, schedule="linear"), max_steps=6
    )
    write(folder / f"transformers-{rank}.safetensors", callback.pruner, trainer.model)
    classifier, pruning, _ = fit(
        folder, lightning.PruningCallback(0.9, regrow=0.3), devices=2, strategy="ddp", max_epochs=3
    )
    write(folder / f"lightning-{rank}.safetensors", pruning.pruner, classifier)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
