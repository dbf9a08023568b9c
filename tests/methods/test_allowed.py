"""What pruning starts from: masks, zeros, and weights that are recomputed before each call."""

import pytest
import torch
from torch import nn
from torch.nn.utils import prune as torch_prune

import trellis

X = torch.randn(1, 16)


def pruned_elsewhere() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32, bias=False), nn.ReLU(), nn.Linear(32, 8, bias=False))
    for layer in (model[0], model[2]):
        torch_prune.l1_unstructured(layer, "weight", amount=0.95)
        torch_prune.remove(layer, "weight")
    return model


@pytest.mark.parametrize("method", ["viterbi", "magnitude", "synflow", "random"])
def test_zeros_stay_zero_and_the_guarantee_outlasts_baking(method: str) -> None:
    model = pruned_elsewhere()
    before = trellis.audit(model, X)
    masks = trellis.prune(model, X, sparsity=0.95, method=method, consistent=True)
    masks.bake(model)
    after = trellis.audit(model, X)
    assert after.kept == after.live == masks.kept == before.live
    assert after.outputs_reached == before.outputs_reached


def test_a_parameter_of_zeros_has_not_been_trained_yet() -> None:
    model = nn.Sequential(nn.Linear(16, 8, bias=False), nn.Linear(8, 4, bias=False))
    nn.init.zeros_(model.get_parameter("1.weight"))
    masks = trellis.prune(model, X, sparsity=0.9)
    assert masks.kept == masks.budget
    assert trellis.audit(model, X).outputs_reached == 4


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_norms_by_hooks_are_refused(norm: str) -> None:
    inner = getattr(torch.nn.utils, norm)(nn.Linear(16, 8))
    with pytest.raises(trellis.TrellisError, match=rf"'0' has torch.nn.utils.{norm}.*parametriz"):
        trellis.prune(nn.Sequential(inner, nn.Linear(8, 4)), X, sparsity=0.5)


def test_counts_per_tensor_must_agree_with_the_budget() -> None:
    model = pruned_elsewhere()
    with pytest.raises(trellis.TrellisError, match="scope asks for 10 connections in all"):
        trellis.prune(model, X, sparsity=0.9, method="magnitude", scope={"0.weight": 10})
