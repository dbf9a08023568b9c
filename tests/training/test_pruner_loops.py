"""A pruner in the loops that people write: mixed precision, compiled, accumulated, averaged."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.optim.swa_utils import (
    AveragedModel,
    get_ema_multi_avg_fn,
    update_bn,
)

import trellis
from trellis.errors import TrellisError
from trellis.masks import Mask, Masks

from .gradual import (
    IN,
    adam,
    batch,
    example,
    gradual,
    guaranteed,
    learn,
    network,
    same,
    sgd,
    states,
)

REGROW = [0.0, 0.3]


@contextmanager
def portable_kernels() -> Iterator[None]:
    """Without oneDNN: some virtual machines advertise its instructions for short floats and
    then trap them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch speaks of other devices when the flag is set
        with torch.backends.mkldnn.flags(enabled=False):
            yield


@pytest.mark.parametrize("regrow", REGROW)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mixed_precision(dtype: torch.dtype, regrow: float) -> None:
    model = network()
    pruner = gradual(model, regrow=regrow)
    optimizer, scaler = adam(model), torch.amp.GradScaler("cpu")
    regrown = 0
    with portable_kernels():
        for step in range(8):
            x, y = batch(step)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                logits = model(x)
                assert logits.dtype == dtype
                loss = F.cross_entropy(logits.float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if renewal := pruner.step():
                guaranteed(pruner)
                regrown += renewal.regrown
    assert pruner.done and model[0].weight.dtype == torch.float32
    assert (regrown > 0) == (regrow > 0)


def test_gradients_that_overflowed_bring_nothing_back() -> None:
    model = network()
    pruner = gradual(model, regrow=0.5)
    learn(model, sgd(model), pruner, range(3))
    x, y = batch(3)
    (F.cross_entropy(model(x), y) * torch.inf).backward()
    renewal = pruner.step()
    assert renewal is not None and renewal.regrown == 0
    guaranteed(pruner)


@pytest.mark.parametrize("regrow", REGROW)
@pytest.mark.parametrize("order", ["compiled first", "pruner first"])
def test_compiled_code_sees_renewed_masks(order: str, regrow: float) -> None:
    plain, model = network(), network()
    other = gradual(plain, regrow=regrow)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled: Any
    if order == "compiled first":
        compiled = torch.compile(model, backend=counter)
        compiled(torch.zeros(16, IN))
        model.load_state_dict(plain_state(plain))
        pruner = gradual(compiled, regrow=regrow)
        assert pruner.model is model
    else:
        pruner = gradual(model, regrow=regrow)
        compiled = torch.compile(model, backend=counter)
    before = counter.frame_count
    learn(plain, sgd(plain), other)
    learn(compiled, sgd(model), pruner, watch=lambda _: guaranteed(pruner))
    # Once for all masks; once more with probes. No renewal compiles anything anew.
    assert counter.frame_count - before == (2 if regrow else 1)
    assert pruner.masks == other.masks
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor)
    x, _ = batch(99)
    torch.testing.assert_close(compiled(x), model(x))


def plain_state(model: nn.Module) -> dict[str, torch.Tensor]:
    return trellis.masks_of(model).plain_state_dict(model)


@pytest.mark.parametrize("regrow", REGROW)
def test_accumulated_gradients_are_those_of_the_whole_batch(regrow: float) -> None:
    """Also those of what is pruned: the same connections come back."""
    models = [network().double() for _ in range(2)]
    for model in models:
        model[1] = nn.Identity()  # statistics of a part are not those of the whole
    pruners = [gradual(model, regrow=regrow) for model in models]
    optimizers = [sgd(model) for model in models]
    for step in range(8):
        x, y = batch(step)
        x = x.double()
        for model, parts in zip(models, (1, 4), strict=True):
            for some, wanted in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (F.cross_entropy(model(some), wanted) / parts).backward()
        for optimizer, pruner in zip(optimizers, pruners, strict=True):
            optimizer.step()
            optimizer.zero_grad()
            pruner.step()
        assert pruners[0].masks == pruners[1].masks
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("regrow", REGROW)
def test_an_average_of_the_weights_carries_the_masks(regrow: float) -> None:
    model = network()
    pruner = gradual(model, end=6, regrow=regrow)
    optimizer = adam(model)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    values = {name: weight.detach().clone() for name, weight in weights(model).items()}
    for step in range(8):
        learn(model, optimizer, pruner, range(step, step + 1))
        average.update_parameters(model)
        assert trellis.masks_of(average.module) == pruner.masks
        for name, weight in weights(model).items():
            values[name] = weight if step == 0 else 0.8 * values[name] + 0.2 * weight
    audit = trellis.audit(average.module, example())
    assert (audit.kept, audit.live_fraction) == (pruner.kept, 1.0)
    for name, mask in pruner.masks.items():
        averaged = weights(average.module)[name]
        assert bool((averaged[~mask] == 0).all())
        if not regrow:  # with it, averages also remember what momentum did while it was pruned
            torch.testing.assert_close(averaged[mask], values[name][mask])


@pytest.mark.parametrize("regrow", REGROW)
@pytest.mark.parametrize("averaging", [get_ema_multi_avg_fn(0.8), None])
@pytest.mark.parametrize("early", [False, True])
def test_averaged_buffers_do_not_undo_pruning(regrow: float, early: bool, averaging: Any) -> None:
    """``use_buffers=True`` averages all buffers, and would keep what was ever kept."""
    model = network()
    average = AveragedModel(model, multi_avg_fn=averaging, use_buffers=True) if early else None
    pruner = gradual(model, regrow=regrow)
    if average is None:
        average = AveragedModel(model, multi_avg_fn=averaging, use_buffers=True)
    else:
        pruner.share_masks(average)
    optimizer = adam(model)
    for step in range(8):
        learn(model, optimizer, pruner, range(step, step + 1))
        average.update_parameters(model)
        assert trellis.masks_of(average.module) == pruner.masks
    update_bn([batch(0)[0]], average)
    found = trellis.audit(average.module, example())
    assert (found.kept, found.live_fraction) == (pruner.kept, 1.0)
    fresh = network(seed=3)
    fresh.load_state_dict(average.module.state_dict())
    x, _ = batch(1)
    torch.testing.assert_close(fresh.eval()(x), average.module.eval()(x))
    alone = deepcopy(average.module)  # a snapshot, and no average
    masks = pruner.masks
    pruner.masks.apply(alone)
    for mask in pruner.model.modules():
        if isinstance(mask, Mask):
            mask.mask.fill_(True)
    assert trellis.masks_of(alone) == masks
    assert trellis.masks_of(average.module).kept == pruner.total


@pytest.mark.parametrize("bias", [True, False])
def test_an_average_from_before_the_masks_is_refused(bias: bool) -> None:
    """It would bring pruned weights back; with biases, torch would fail in words of its own."""
    sizes = ((5, 6), (6, 3))
    model = nn.Sequential(*(nn.Linear(*size, bias=bias) for size in sizes))
    average = AveragedModel(model)
    average.update_parameters(model)
    masks = trellis.prune(model, torch.zeros(1, 5), sparsity=0.5)
    with pytest.raises(TrellisError, match="share_masks"):
        average.update_parameters(model)
    masks.bake(model)
    average.update_parameters(model)


def test_an_average_written_through_state_dicts_keeps_the_masks() -> None:
    """As YOLO and timm average: by writing into the tensors of a copy's state dict."""
    model = network()
    pruner = gradual(model)
    average = deepcopy(model).requires_grad_(False)
    pruner.share_masks(average)
    optimizer = adam(model)
    for step in range(8):
        learn(model, optimizer, pruner, range(step, step + 1))
        now = model.state_dict()
        for name, tensor in average.state_dict().items():
            if tensor.is_floating_point():
                tensor.mul_(0.5).add_(now[name], alpha=0.5)
    assert trellis.masks_of(average) == pruner.masks
    near = sum(float((a - b).abs().sum()) for a, b in zip(
        average.state_dict().values(), model.state_dict().values(), strict=True))  # fmt: skip
    far = sum(float((a - b).abs().sum()) for a, b in zip(
        network().state_dict().values(), model.state_dict().values(), strict=True))  # fmt: skip
    assert near < far / 2


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """As the model computes with them."""
    return {
        f"{name}.weight": module.weight.detach()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }


@pytest.mark.parametrize("regrow", REGROW)
@pytest.mark.parametrize("steps", [2, 3])
def test_a_copy_of_the_model_is_its_own(steps: int, regrow: float) -> None:
    model = network()
    pruner = gradual(model, regrow=regrow)
    optimizer = sgd(model)
    learn(model, optimizer, pruner, range(steps))
    copied = deepcopy(model)
    state, masks = states(copied), pruner.masks
    learn(model, optimizer, pruner, range(steps, 8))
    assert same(states(copied), state)
    assert trellis.masks_of(copied) == masks != pruner.masks
    copied(batch(0)[0]).sum().backward()
    guaranteed(pruner)


@pytest.mark.parametrize("regrow", REGROW)
def test_a_copy_of_model_and_pruner_goes_on_alike(regrow: float) -> None:
    model = network()
    pruner, optimizer = gradual(model, regrow=regrow), sgd(model)
    learn(model, optimizer, pruner, range(3))
    copied, other, again = deepcopy((model, pruner, optimizer))
    assert other.model is copied
    learn(model, optimizer, pruner, range(3, 8))
    assert other.steps == 3 and not other.done
    learn(copied, again, other, range(3, 8))
    assert same(states(model), states(copied)) and pruner.masks == other.masks
    guaranteed(other)
    alone = deepcopy(pruner)
    assert alone.model is not model and alone.masks == pruner.masks


def test_masks_of_a_trained_model_fit_a_fresh_one() -> None:
    model = network()
    pruner = gradual(model)
    learn(model, sgd(model), pruner)
    fresh = network(seed=1)
    fresh.load_state_dict(pruner.masks.plain_state_dict(model))
    x, _ = batch(99)
    assert torch.equal(fresh.eval()(x), model.eval()(x))
    assert trellis.audit(fresh, example()).live_fraction == 1.0


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_model_may_change_its_type_and_device_on_the_way(device: str, steps: int) -> None:
    model = network()
    pruner = gradual(model, regrow=0.3)
    learn(model, sgd(model), pruner, range(steps))
    model.to(device, torch.float64)
    optimizer = sgd(model)
    for step in range(steps, 8):
        x, y = batch(step)
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device, torch.float64)), y.to(device)).backward()
        optimizer.step()
        if renewal := pruner.step():
            guaranteed(pruner)
            assert renewal.regrown > 0 or renewal.step in (2, 8)
    assert isinstance(pruner.masks, Masks)
