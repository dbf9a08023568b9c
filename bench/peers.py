"""Other people's pruning tools, each called the way its own documentation does.

Every peer takes a model, its example inputs and the fraction to remove, and changes the model in
place to the form the tool leaves behind (masks, parametrizations, a wrapped or a smaller model).
`bake` then writes plain zeros, so that every result is audited alike. All peers are asked to prune
the same weights: `models.connections`. A peer that cannot do so raises `CannotPrune` and says why.

>>> from models import MLP, connections
>>> model = bake(torch_global(MLP(8, 8, 8), (), 0.75))
>>> sum(int(weight.count_nonzero()) for weight in connections(model).values())
32
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from models import connections
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils import prune as torch_prune

import trellis
from trellis.graph.trellis import current
from trellis.methods.budget import budget
from trellis.methods.synflow import synflow as synflow_ranking

Inputs = tuple[Tensor, ...]


class CannotPrune(Exception):
    """A peer that is not installed, or that cannot prune this network; the message says which."""


def needed(package: str, module: str) -> ModuleType:
    """Import `module` of `package`, or say which package is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CannotPrune(f"{package} is not installed: pip install {package}") from error


def owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that holds the parameter called `name`, and its name there."""
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf


def bake(model: nn.Module) -> nn.Module:
    """Write masks of `torch.nn.utils.prune` and parametrizations into plain weights, in place."""
    for module in list(model.modules()):
        for hook in list(module._forward_pre_hooks.values()):
            if isinstance(hook, torch_prune.BasePruningMethod):
                torch_prune.remove(module, hook._tensor_name)
        if parametrize.is_parametrized(module):
            for leaf in list(module.parametrizations):  # type: ignore[arg-type]
                parametrize.remove_parametrizations(module, leaf, leave_parametrized=True)
    return model


def torch_global(model: nn.Module, inputs: Inputs, sparsity: float) -> nn.Module:
    """`torch.nn.utils.prune.global_unstructured` with L1: the largest of all tensors together."""
    places = [owner(model, name) for name in connections(model)]
    torch_prune.global_unstructured(
        places, pruning_method=torch_prune.L1Unstructured, amount=sparsity
    )
    return model


def torch_layer(model: nn.Module, inputs: Inputs, sparsity: float) -> nn.Module:
    """`torch.nn.utils.prune.l1_unstructured`: the largest of each tensor."""
    for name in connections(model):
        module, leaf = owner(model, name)
        torch_prune.l1_unstructured(module, leaf, sparsity)
    return model


def at_least_half(model: nn.Module, names: list[str]) -> None:
    """Refuse where the tensors a tool can prune hold under half of the network's connections.

    Where they hold more, what the tool leaves dense shows as kept above the budget.
    """
    weights = connections(model)
    total = sum(weight.numel() for weight in weights.values())
    share = sum(weights[name].numel() for name in names) / total
    if share < 0.5:
        raise CannotPrune(f"prunes tensors that hold {share:.0%} of this network's weights")


def torchao_layer(model: nn.Module, inputs: Inputs, sparsity: float) -> nn.Module:
    """torchao's `WeightNormSparsifier` on 1 x 1 blocks: the largest of each matrix."""
    torchao = needed("torchao", "torchao.prototype.sparsity.sparsifier.weight_norm_sparsifier")
    matrices = [name for name, weight in connections(model).items() if weight.dim() == 2]
    at_least_half(model, matrices)
    sparsifier = torchao.WeightNormSparsifier(
        sparsity_level=sparsity, sparse_block_shape=(1, 1), zeros_per_block=1
    )
    sparsifier.prepare(model, [{"tensor_fqn": name} for name in matrices])
    sparsifier.step()
    sparsifier.squash_mask()
    return model


def nncf_mode(mode: str) -> Callable[[nn.Module, Inputs, float], nn.Module]:
    """`nncf.prune` in one of its two unstructured magnitude modes."""

    def prune(model: nn.Module, inputs: Inputs, sparsity: float) -> nn.Module:
        nncf = needed("nncf", "nncf")
        algorithm = needed("nncf", "nncf.torch.function_hook.pruning.magnitude.algo")
        weights = connections(model)
        others = [name for name, _ in model.named_parameters() if name not in weights]
        pruned = nncf.prune(
            copy.deepcopy(model),
            nncf.PruneMode[mode],
            ratio=sparsity,
            examples_inputs=inputs,
            ignored_scope=nncf.IgnoredScope(names=others, validate=False),
        )
        masks = algorithm.get_pruned_modules(pruned)
        at_least_half(model, list(masks))
        with torch.no_grad():
            for name, hook in masks.items():
                weights[name].mul_(hook.binary_mask)
        return model

    return prune


def torch_pruning(model: nn.Module, inputs: Inputs, sparsity: float) -> nn.Module:
    """Torch-Pruning's `MagnitudePruner`: whole channels, at the ratio that keeps as many weights.

    The tool takes a ratio of channels, so the ratio is found by bisection, on copies; the nearest
    is returned. It leaves every layer at least one channel, hence no budget below that.
    """
    tp = needed("torch-pruning", "torch_pruning")
    total = sum(weight.numel() for weight in connections(model).values())
    budget = total * (1 - sparsity)

    def at(ratio: float) -> tuple[int, nn.Module]:
        smaller = copy.deepcopy(model)
        last = [module for module in smaller.modules() if isinstance(module, nn.Linear)][-1]
        # As the tool's own example for Hugging Face's ViT: heads stay, and get narrower alike.
        attentions: list[Any] = [m for m in smaller.modules() if hasattr(m, "q_proj")]
        heads = {
            getattr(attention, name): attention.num_attention_heads
            for attention in attentions
            for name in ("q_proj", "k_proj", "v_proj")
        }
        pruner = tp.pruner.MagnitudePruner(
            smaller,
            inputs,
            importance=tp.importance.MagnitudeImportance(p=1),
            pruning_ratio=ratio,
            ignored_layers=[last],
            num_heads=heads,
        )
        try:
            pruner.step()
            for attention in attentions:
                query = attention.q_proj
                attention.head_dim = query.out_features // pruner.num_heads[query]
            smaller(*inputs)
        except (RuntimeError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CannotPrune(f"breaks the network: {reason}") from error
        return sum(weight.numel() for weight in connections(smaller).values()), smaller

    # Above this ratio a narrow layer would lose its last channel, which the tool silently refuses.
    narrowest = min(weight.shape[0] for weight in list(connections(model).values())[:-1])
    low, high = 0.0, 1 - 1 / narrowest
    tried = [at(high)]
    if tried[0][0] == total:
        raise CannotPrune("finds no channel to remove")
    while tried[-1][0] != budget and len(tried) < 7 and tried[0][0] < budget:
        ratio = (low + high) / 2
        tried.append(at(ratio))
        low, high = (ratio, high) if tried[-1][0] > budget else (low, ratio)
    return min(tried, key=lambda found: abs(found[0] - budget))[1]


def by_trellis(method: str) -> Callable[[nn.Module, Inputs, float], nn.Module]:
    """`trellis.prune` with all else at its default: SynFlow is ours to run, viterbi is ours."""

    def prune(model: nn.Module, inputs: Inputs, sparsity: float) -> nn.Module:
        try:
            trellis.prune(model, inputs, sparsity=sparsity, method=method).bake(model)
        except trellis.TrellisError as error:
            raise CannotPrune(str(error)) from error
        return model

    return prune


def synflow(model: nn.Module, inputs: Inputs, sparsity: float) -> nn.Module:
    """`trellis.prune(method="synflow")`. On a GPU its hundred rounds run there: `prune` itself
    goes back to the CPU for them, where sums round alike for everybody but take minutes."""
    if next(model.parameters()).device.type == "cpu":
        return by_trellis("synflow")(model, inputs, sparsity)
    net = trellis.trace(model, inputs)
    weights = {name: weight.abs() for name, weight in current(net).weights.items()}
    count = budget(net.total, sparsity)
    work = next(iter(weights.values())).device
    kept = synflow_ranking(net, weights, None, count, work).top(count)
    trellis.Masks(kept, budget=count).bake(model)
    return model


@dataclass(frozen=True)
class Peer:
    """A tool as the tables name it."""

    title: str
    prune: Callable[[nn.Module, Inputs, float], nn.Module]


PEERS = {
    "torch-global": Peer("torch.nn.utils.prune, global L1", torch_global),
    "torch-layer": Peer("torch.nn.utils.prune, per layer", torch_layer),
    "torchao": Peer("torchao, per layer", torchao_layer),
    "nncf-global": Peer("NNCF, global", nncf_mode("UNSTRUCTURED_MAGNITUDE_GLOBAL")),
    "nncf-layer": Peer("NNCF, per layer", nncf_mode("UNSTRUCTURED_MAGNITUDE_LOCAL")),
    "torch-pruning": Peer("Torch-Pruning, channels", torch_pruning),
    "synflow": Peer("SynFlow, run by trellis", synflow),
    "viterbi": Peer("trellis, viterbi", by_trellis("viterbi")),
}
