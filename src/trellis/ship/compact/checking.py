"""The last word: both networks are run and compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...errors import TrellisError
from ...finite import check_outputs
from ...masks import plain
from .module import Compacted
from .reading import Network

# How far outputs may differ, as a part of the largest: rounding, and no more.
NEAR = {torch.float64: 1e-8, torch.float32: 1e-3}


def check(network: Network, small: Compacted) -> None:
    """Run both: a compacted network that computes something else is never handed out."""
    given = pytree.tree_unflatten(network.probes, network.nesting)
    with plain(network.model) as model, torch.no_grad():
        expected = _tensors(model(*given))
        check_outputs(expected, "look for a division by zero or an overflow before compacting")
        found = _tensors(small(*given))
    for want, have in zip(expected, found, strict=True):
        if want.shape != have.shape:
            raise _fault(f"shapes {tuple(have.shape)}, not {tuple(want.shape)}")
        if not want.is_floating_point() or torch.equal(want, have):
            continue
        if not bool(want.isfinite().all()):
            same = want.isfinite() == have.isfinite()
            if not bool(same.all()):
                raise _fault("outputs are infinite in other places")
            want, have = want[want.isfinite()], have[have.isfinite()]
        far = float((want - have).abs().max()) if want.numel() else 0.0
        top = float(want.abs().max()) if want.numel() else 0.0
        if far > NEAR.get(want.dtype, 5e-2) * max(top, 1e-3):
            raise _fault(f"outputs differ by {far:.3g}, the largest is {top:.3g}")


def _fault(what: str) -> TrellisError:
    return TrellisError(
        f"compaction would change what this model computes ({what}), and was given up. This is a "
        "fault of Trellis: please report it with the model"
    )


def _tensors(result: Any) -> list[Tensor]:
    return [y.detach() for y in pytree.tree_leaves(result) if isinstance(y, Tensor)]
