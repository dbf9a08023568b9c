"""Processes that train one sharded model: run by `test_pruner_sharded.py`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import trellis
from trellis.errors import TrellisError

from .gradual import IN, OUT, batch, example, gradual

STEPS = range(8)


class Tied(nn.Module):
    """Widths that two and four processes cannot share evenly, and a weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(IN, 23), nn.Linear(23, 23)
        self.again = nn.Linear(23, 23)
        self.again.weight = self.second.weight
        self.last = nn.Linear(23, OUT)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(F.relu(self.second(F.relu(self.first(x)))))
        found: Tensor = self.last(F.relu(x))
        return found


def network() -> Tied:
    torch.manual_seed(0)
    return Tied()


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def shard(model: Tied) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.first, mesh=mesh)
    fully_shard(model, mesh=mesh)


def pruned(options: dict[str, Any] | None = None) -> tuple[Tied, trellis.Pruner]:
    model = network()
    net = trellis.trace(model, example())
    shard(model)
    return model, sharded(net, **options or {})


def sharded(net: Any, **options: Any) -> trellis.Pruner:
    schedule = trellis.Schedule("geometric", end=8, every=2)
    return trellis.Pruner(net, schedule=schedule, **{"sparsity": 0.9} | options)


def whole(model: nn.Module) -> dict[str, Tensor]:
    state = {n: p.full_tensor() for n, p in model.state_dict().items()}
    return {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}


def states(model: nn.Module, optimizer: Any, pruner: trellis.Pruner) -> dict[str, Any]:
    return {
        "model": get_model_state_dict(model),
        "optimizer": get_optimizer_state_dict(model, optimizer),
        "pruner": pruner.state_dict(),
    }


def learn(model: nn.Module, optimizer: Any, pruner: trellis.Pruner, steps: range) -> None:
    """The masks of every update are those that one process chooses by the same weights."""
    for step in steps:
        x, y = batch(step, size=4, seed=dist.get_rank())
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for name, mask in pruner.masks.items():
            gradient: Any = dict(model.named_parameters())[name].grad
            assert not gradient.full_tensor()[~mask].any()
        optimizer.step()
        before, weights, known = pruner.masks, whole(model), pruner.state_dict()["inside"]
        inside = {name: mask.full_tensor() for name, mask in known.items()}
        renewal = pruner.step()
        now, after = pruner.masks, whole(model)
        assert all(not after[name][~mask].any() for name, mask in now.items())
        if renewal is None:
            continue
        assert renewal.kept == now.kept == pruner.kept == pruner.plan.budget(pruner.steps)
        alone = network()
        own = gradual(alone)
        masks = {name: mask.clone() for name, mask in before.items()}
        alone.load_state_dict(weights)
        state = own.state_dict() | {
            "steps": step, "budget": before.kept, "masks": masks, "inside": inside,
        }  # fmt: skip
        state.pop("digest")
        own.load_state_dict(state)
        own.step()
        assert own.masks == now
        assert trellis.audit(alone, example()).live_fraction == 1.0


def train(folder: Path) -> None:
    """Eight steps at once, and eight with a checkpoint in the middle; both end alike."""
    model, pruner = pruned()
    optimizer = adam(model)
    learn(model, optimizer, pruner, STEPS[:5])
    state = states(model, optimizer, pruner)
    save(state, checkpoint_id=folder / "checkpoint")
    middle = pruner.masks
    if dist.get_rank() == 0:
        save_file(dict(middle), folder / "middle")
    learn(model, optimizer, pruner, STEPS[5:])
    masks = {f"mask.{name}": mask for name, mask in pruner.masks.items()}
    found = masks | whole(model)
    if dist.get_rank() == 0:
        save_file({name: tensor.clone() for name, tensor in found.items()}, folder / "end")
    dist.barrier()
    resume(folder)


def holds_a_share(masks: dict[str, Any]) -> None:
    """The more processes there are, the less of the masks each of them holds."""
    whole = sum(mask.numel() for mask in masks.values())
    own = sum(mask.to_local().numel() for mask in masks.values())
    rows = sum(mask[0].numel() for mask in masks.values())  # rows are not divided
    assert own <= whole / dist.get_world_size() + rows


def resume(folder: Path, *, alike: bool = True) -> None:
    """Continue from the checkpoint; to the same end, if there are as many processes."""
    model, pruner = pruned()
    optimizer = adam(model)
    state = states(model, optimizer, pruner)
    holds_a_share(state["pruner"]["masks"])
    load(state, checkpoint_id=folder / "checkpoint")
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    pruner.load_state_dict(state["pruner"])
    assert pruner.steps == 5 and pruner.masks == load_file(folder / "middle")
    learn(model, optimizer, pruner, STEPS[5:])
    if not alike:
        return
    end = load_file(folder / "end")
    weights, masks = whole(model), pruner.masks
    assert all(torch.equal(weights[name], end[name]) for name in weights)
    assert all(torch.equal(mask, end[f"mask.{name}"]) for name, mask in masks.items())


def regrown() -> None:
    """Connections come back as they do in one process that sees all of the data."""
    model, pruner = pruned({"regrow": 0.3})
    alone = network()
    own = gradual(alone, regrow=0.3, group=dist.new_subgroups(1)[0])
    optimizers = adam(model), adam(alone)
    count = 0
    for step in STEPS:
        batches = [batch(step, 4, rank) for rank in range(dist.get_world_size())]
        x, y = (torch.cat(part) for part in zip(*batches, strict=True))
        for optimizer in optimizers:
            optimizer.zero_grad()
        mine, wanted = batches[dist.get_rank()]
        F.cross_entropy(model(mine), wanted).backward()
        F.cross_entropy(alone(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()
        renewal, expected = pruner.step(), own.step()
        assert str(renewal) == str(expected)
        count += renewal.regrown if renewal else 0
        assert pruner.masks == own.masks
    assert count > 0


def refused() -> None:
    """What cannot work is refused in all processes, and none waits for another."""
    try:
        pruned({"keep": 3})
    except TrellisError as error:
        assert "keep" in str(error), error
    else:
        raise AssertionError("a target without a network was taken")
    model = network()
    masks = trellis.prune(network(), example(), sparsity=0.5)
    shard(model)
    try:
        masks.apply(model)
    except TrellisError as error:
        assert "is sharded over processes" in str(error)
    else:
        raise AssertionError("a sharded model was masked")
    for call in (trellis.trace, trellis.audit):
        try:
            call(model, example())
        except TrellisError as error:
            assert "trace the model first" in str(error)
        else:
            raise AssertionError("a sharded model was traced")


def main() -> None:
    rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    if (folder / "checkpoint").exists():
        resume(folder, alike=False)
    else:
        refused()
        regrown()
        train(folder)
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
