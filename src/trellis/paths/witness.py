"""Find the connections of a best path as the gradient of its weight.

In an algebra where every maximum has one winner, the weight of the best path to a unit is the
product along that path alone. Its gradient is non-zero on exactly these connections; behind gates,
on the tree that makes the unit depend on the input. Callers may have disabled gradients, so code
that adds up messages to be marked enables them (`torch.enable_grad`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..graph.steps import Contract
from ..graph.trellis import Trellis
from .algebra import BestPath
from .kernels import CPU
from .propagate import Propagation, backward
from .scatter import draw


class Witness:
    """Find best paths under positive ``weights`` (float64, zero where nothing may be kept).

    Of several equally good paths, every device finds the same one: the first.
    """

    def __init__(
        self, net: Trellis, weights: Mapping[str, Tensor], device: torch.device = CPU
    ) -> None:
        self.net, self.device = net, device
        self.leaves = {
            name: w.detach().to(device, torch.float64).requires_grad_()
            for name, w in weights.items()
        }

        def drawn(step: Contract) -> Tensor:
            return draw(net, step.weight, self.leaves)

        self.drawn = drawn
        with torch.enable_grad():
            self.run = Propagation(net, BestPath(), drawn, device=device).forward()

    def outputs(self) -> list[Tensor]:
        """Return the weight of the best path to each output unit."""
        none = torch.zeros((), dtype=torch.float64, device=self.device)
        return [self.run.depends.get(s.id, none).expand(s.shape) for s in self.net.outputs]

    def mark(self, value: Tensor) -> dict[str, Tensor]:
        """Return the connections that determine ``value``, a sum of messages."""
        if not value.requires_grad:
            return {n: torch.zeros_like(w, dtype=torch.bool) for n, w in self.leaves.items()}
        names = list(self.leaves)
        grads = torch.autograd.grad(
            value, [self.leaves[n] for n in names], retain_graph=True, allow_unused=True
        )
        return {
            n: torch.zeros_like(self.leaves[n], dtype=torch.bool) if g is None else g != 0
            for n, g in zip(names, grads, strict=True)
        }

    @torch.enable_grad()
    def to_outputs(self, wanted: list[Tensor]) -> dict[str, Tensor]:
        """Return the best paths to the output units in ``wanted`` (bool, for each output)."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for value, mask in zip(self.outputs(), wanted, strict=True):
            total = total + torch.log(value[mask & (value > 0)]).sum()
        return self.mark(total)

    def through(self) -> list[tuple[Contract, Tensor]]:
        """Return, for each contraction, the best weight through each connection (B, N, K).

        The weight of the connection itself is left out.
        """
        with torch.enable_grad():
            backward(self.run)
            found = []
            for step in self.net.contractions:
                total: Tensor | None = None
                for tail, head in (
                    (self.run.depends, self.run.changes),
                    (self.run.nonzero, self.run.enables),
                ):
                    x, g = tail.get(step.x.id), head.get(step.out.id)
                    if x is None or g is None:
                        continue
                    x, g = (t.expand(step.x.shape[0], step.x.shape[1], -1) for t in (x, g))
                    part = (g[:, :, :, None] * x[:, :, None, :]).max(1).values
                    total = part if total is None else torch.where(total >= part, total, part)
                if total is not None:
                    found.append((step, total.expand(step.weight.shape)))
            return found
