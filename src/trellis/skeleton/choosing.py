"""Gradual pruning of many GCNs at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from ..errors import TrellisError
from ..train.shrinking import Chooses, OneByOne, Stacked
from .gcn import GCN
from .selection import ALL, BEST, NAMES, Parts, Semiring, by_layer, consistent

# What ranks connections; None: their magnitude. All are closed, so that all that is kept is live.
PATHS: dict[str, Semiring | None] = {"viterbi": BEST, "synflow": ALL, "magnitude": None}
BY_LAYER = "magnitude by layer"  # as the paper prunes, and nothing is promised
CHAINS = "chains"  # as the paper prunes, with its promise: seconds for each network
METHODS = (*PATHS, BY_LAYER, CHAINS)


class Together:
    """A stack of one-block GCNs, in a few passes over memory. The rare network that needs more
    than that to meet its budget is seen to by itself.

    >>> gcn = GCN(nodes=4, channels=6, classes=3, heads=2, filters=5)
    >>> Together(gcn, "viterbi").least
    9
    """

    def __init__(self, model: GCN, method: str = "viterbi") -> None:
        self.model, self.method = model, method
        weights = dict(model.named_parameters())
        self.sizes = {name: weights[name].numel() for name in NAMES}
        self.least = 0 if method == BY_LAYER else 3 * model.sizes["classes"]

    @cached_property
    def alone(self) -> OneByOne:
        sizes = self.model.sizes
        example = torch.zeros(1, sizes["nodes"], sizes["channels"])
        return OneByOne(self.model, example, method=self.method)

    @torch.no_grad()
    def __call__(self, worth: Stacked, kept: Stacked, budgets: Sequence[int]) -> dict[str, Tensor]:
        able = Parts.of({name: (worth[name] * kept[name]).float() for name in self.sizes})
        if self.method == BY_LAYER:
            return by_layer(able, budgets).named()
        before = Parts.of(kept)
        wanted = torch.tensor(budgets, device=able.dense.device)
        chosen, sound = consistent(able, PATHS[self.method], wanted)
        all_of_them = before.flat().sum(1) <= wanted
        masks = {
            name: torch.where(all_of_them.view(-1, *[1] * (mask.dim() - 1)), kept[name], mask)
            for name, mask in chosen.named().items()
        }
        for i in (~(sound | all_of_them)).nonzero().flatten().tolist():
            for name, mask in self.alone.one(i, worth, kept, budgets[i]).items():
                masks[name][i] = mask.to(masks[name].device)
        return masks


def chooser(model: GCN, method: str = "viterbi") -> Chooses:
    """The fastest way to prune a stack of networks like ``model``."""
    if method not in METHODS:
        raise TrellisError(f"method={method!r} is unknown: {', '.join(METHODS)}")
    block = model.blocks[0]
    names = {name for name, _ in model.named_parameters()}
    if method != CHAINS and len(model.blocks) == 1 and block.edges is None and set(NAMES) <= names:
        return Together(model, method)
    sizes = model.sizes
    example = torch.zeros(1, sizes["nodes"], sizes["channels"])
    if method == BY_LAYER:
        return OneByOne(model, example, method="magnitude", scope="layer", consistent=False)
    return OneByOne(model, example, method=method)
