"""What each tool leaves dead: its result, zeros baked in, under `trellis.audit`."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator
from dataclasses import dataclass

from models import build, connections, example_inputs
from peers import PEERS, CannotPrune, bake

import trellis

SPARSITIES = (0.9, 0.98, 0.99, 0.999)


@dataclass(frozen=True)
class Left:
    """What a tool left of a network at one sparsity, or why it left nothing to look at."""

    network: str
    peer: str
    sparsity: float
    budget: int = 0  # connections asked for
    kept: int = 0
    live: int = 0
    outputs: int = 0
    outputs_reached: int = 0
    refusal: str = ""
    device: str = "cpu"  # where the tool ran

    @property
    def key(self) -> tuple[str, str, float]:
        return self.network, self.peer, self.sparsity

    def __str__(self) -> str:
        """A cell of the table; a count of connections off by over 5 % is said.

        >>> print(Left("mlp", "x", 0.99, 100, 100, 21, 45, 8))
        79 % dead, 8 of 45
        """
        if self.refusal:
            return "cannot"
        if not self.kept:
            return "keeps nothing"
        dead = 100 * (1 - self.live / self.kept)
        share = "0 %" if dead == 0 else f"{dead:.2g} %" if dead < 10 else f"{dead:.0f} %"
        cell = f"{share} dead, {self.outputs_reached:,} of {self.outputs:,}"
        off = self.kept / max(self.budget, 1)
        return cell if abs(off - 1) <= 0.05 else f"{cell} (keeps {off:.2g} of the budget)"


def left_by(peer: str, network: str, device: str = "cpu") -> Iterator[Left]:
    """Prune fresh copies of `network` by a peer at each sparsity, on a device, and audit what is
    left, on the CPU."""
    dense, inputs = build(network), example_inputs(network)
    given = tuple(x.to(device) for x in inputs)
    total = sum(weight.numel() for weight in connections(dense).values())
    for sparsity in SPARSITIES:
        gc.collect()
        try:
            model = PEERS[peer].prune(copy.deepcopy(dense).to(device), given, sparsity)
        except CannotPrune as error:
            yield Left(network, peer, sparsity, refusal=str(error), device=device)
            continue
        model = bake(model).cpu()
        audit = trellis.audit(model, inputs)
        # A smaller model has fewer connections; another reading of what one is would show here.
        if audit.total != sum(weight.numel() for weight in connections(model).values()):
            raise RuntimeError(f"{network}: the audit and the peers count different weights")
        yield Left(
            network,
            peer,
            sparsity,
            round(total * (1 - sparsity)),
            audit.kept,
            audit.live,
            audit.outputs,
            audit.outputs_reached,
            device=device,
        )
