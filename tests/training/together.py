"""Two processes that train one model on different data: run by `test_pruner_ranks.py`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trellis.errors import TrellisError

from .gradual import batch, gradual, guaranteed, network, sgd

REGROW = 0.3


def train(rank: int, wrapped: bool) -> dict[str, Tensor]:
    """Eight steps; then this process's state, and how many connections came back."""
    model = network(seed=rank if wrapped else 0)  # wrapping makes the first one's everyone's
    model[1] = nn.Identity()
    if wrapped:
        parallel = DistributedDataParallel(model)
        pruner = gradual(parallel, regrow=REGROW)
        assert pruner.model is model
    else:
        pruner = gradual(model, regrow=REGROW, group=dist.group.WORLD)
        parallel = DistributedDataParallel(model)
    optimizer = sgd(model)
    regrown = []
    for step in range(8):
        x, y = batch(step, size=4, seed=rank)
        optimizer.zero_grad()
        F.cross_entropy(parallel(x), y).backward()
        optimizer.step()
        if renewal := pruner.step():
            guaranteed(pruner)
            regrown.append(renewal.regrown)
    masks = {f"mask.{name}": mask for name, mask in pruner.masks.items()}
    return {"regrown": torch.tensor(regrown)} | masks | model.state_dict()


def refused() -> None:
    """One that would choose by its own gradients alone, and does not know of the others."""
    try:
        gradual(network(), regrow=REGROW)
    except TrellisError as error:
        assert "gradients of all processes, and there are 2" in str(
            error
        ) and "DistributedDataParallel" in str(error)
    else:
        raise AssertionError("a bare model was taken")
    gradual(network())  # without regrowth all choose the same
    alone, _ = dist.new_subgroups(1)
    gradual(network(), regrow=REGROW, group=alone)


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    refused()
    for wrapped in (True, False):
        found = {name: tensor.clone() for name, tensor in train(rank, wrapped).items()}
        save_file(found, folder / f"{rank}-{wrapped}.safetensors")
    gc.collect()  # what is wrapped forms a ring, and holds the group: with it, the end is an abort
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
