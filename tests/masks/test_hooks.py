"""What hangs on a parameter's gradient stays there when a mask comes, changes and goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import prune

import trellis
from tests.masks.models import TinyGPT, mlp, random_masks
from trellis import Masks


def on_tensor(parameter: nn.Parameter, heard: list[str]) -> Any:
    return parameter.register_hook(lambda grad: heard.append("tensor"))


def after_accumulation(parameter: nn.Parameter, heard: list[str]) -> Any:
    return parameter.register_post_accumulate_grad_hook(lambda p: heard.append("accumulated"))


def on_node(parameter: nn.Parameter, heard: list[str]) -> Any:
    """As `DistributedDataParallel` does it: the node lives while somebody holds it."""
    used: Any = parameter.expand_as(parameter).grad_fn
    node = used.next_functions[0][0]
    node.register_hook(lambda *grads: heard.append("node"))
    return node


Listener = Callable[[nn.Parameter, list[str]], Any]
EVERY = pytest.mark.parametrize("listen", [on_tensor, after_accumulation, on_node])


def plain() -> tuple[nn.Module, Tensor]:
    return mlp(), torch.randn(6, 4)


def pruned_by_torch() -> tuple[nn.Module, Tensor]:
    model = mlp()
    prune.l1_unstructured(model[0], "weight", amount=3)
    return model, torch.randn(6, 4)


def with_tied_weights() -> tuple[nn.Module, Tensor]:
    return TinyGPT(), torch.arange(7)


@EVERY
@pytest.mark.parametrize("make", [plain, pruned_by_torch, with_tied_weights])
def test_gradients_are_heard_through_masks(
    listen: Listener, make: Callable[[], tuple[nn.Module, Tensor]]
) -> None:
    model, x = make()
    heard: list[str] = []
    held = [listen(parameter, heard) for parameter in model.parameters()]

    def backward() -> int:
        heard.clear()
        model(x).square().sum().backward()
        return len(heard)

    first, second = random_masks(model, seed=1), random_masks(model, seed=2)
    for change in (first.apply, second.apply, second.bake):
        change(model)
        assert backward() == len(held)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one."""
    meeting = tmp_path / "meeting"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("wrapper", [True, False])
def test_a_model_in_data_parallel_training_is_pruned_and_trains_on(
    alone: None, wrapper: bool
) -> None:
    """Given as the wrapper or as the model inside. One that no longer hears of a gradient waits
    for it, and says so at the second step."""
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    parallel = DistributedDataParallel(model)
    masks = trellis.prune(parallel if wrapper else model, torch.zeros(1, 8), sparsity=0.5)
    assert list(masks) == ["0.weight", "2.weight"]
    assert trellis.masks_of(model) == masks
    for _ in range(3):
        parallel(torch.randn(4, 8)).square().sum().backward()
    audit = trellis.audit(parallel if wrapper else model, torch.zeros(1, 8))
    assert audit.live == audit.kept == masks.kept


def test_a_frozen_parameter_stays_frozen() -> None:
    layer = nn.Linear(3, 2).requires_grad_(False)
    Masks({"weight": torch.rand(2, 3) < 0.5}).apply(layer)
    assert not any(parameter.requires_grad for parameter in layer.parameters())
