"""What the page shows of an audit: any network's layers, with what is live and dead in each."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..masks.slots import named_slots
from ..paths.audit import Audit, Layer
from ..skeleton import GCN

# The audit of a GCN, without tracing it.
#
# `trellis.audit` finds the same for any model; a GCN's form is known, and half a dozen products of
# zeros and ones tell what tracing takes seconds to find out.


def gcn_audit(model: GCN) -> Audit:
    """What `trellis.audit` says of it.

    >>> gcn = GCN(nodes=2, channels=3, classes=2, heads=1, filters=2)
    >>> with torch.no_grad():
    ...     _ = gcn.dense.weight[:, 1].zero_(), gcn.dense.weight[:, 3].zero_()
    >>> for layer in gcn_audit(gcn).layers:
    ...     print(layer.name, layer.total, layer.kept, layer.live)
    blocks.0.attention 4 4 4
    blocks.0.convolution 6 6 3
    dense.weight 8 4 4
    """
    slots = dict(named_slots(model))
    kept = {
        name: slot.value().detach() != 0 if slot.mask is None else slot.mask.bool()
        for name, slot in slots.items()
        if not name.endswith("bias")
    }
    found = _found(model, {name: mask.float() for name, mask in kept.items()})
    layers = tuple(
        Layer(name, tuple(mask.shape), mask.numel(), int(mask.sum()),
              *(int(part.sum()) for part in found[name]))
        for name, mask in kept.items()
    )  # fmt: skip
    return Audit(
        layers,
        outputs=model.sizes["classes"],
        outputs_reached=int(found["dense.weight"].live.any(1).sum()),
        live_masks={name: parts.live.bool() for name, parts in found.items() if name in kept},
        biased=len(slots) > len(kept),
    )


class _Parts(NamedTuple):
    """Of a layer's kept connections those that an input reaches, that lead to an output, and that
    do both in one place, as zeros and ones."""

    accessible: Tensor
    coaccessible: Tensor
    live: Tensor


def _found(model: GCN, kept: Mapping[str, Tensor]) -> dict[str, _Parts]:
    """``kept`` are zeros and ones. A message says whether anything gets through: a unit is reached
    (nodes, channels), or leads to a class (nodes, heads, filters)."""
    heads, filters = model.sizes["heads"], model.sizes["filters"]
    nodes, summed = model.sizes["nodes"], model.sizes["combine"] == "sum"
    edges = [_edges(model, b, kept) for b in range(len(model.blocks))]  # heads, nodes, nodes
    kernels = [
        kept[f"blocks.{b}.convolution"].expand(heads, -1, -1) for b in range(len(model.blocks))
    ]
    reached = [torch.ones(nodes, model.sizes["channels"])]
    for edge, kernel in zip(edges, kernels, strict=True):
        out = _any("kuv,vc,kcf->ukf", edge, reached[-1], kernel)
        reached.append(_any("ukf->uf", out) if summed else out.flatten(1))

    last = kept["dense.weight"]
    arrived = last * reached[-1].flatten()
    found = {"dense.weight": _Parts(arrived, last, arrived)}
    wanted = _any("of->f", kept["dense.weight"]).reshape(nodes, -1)
    for number in reversed(range(len(edges))):
        edge, kernel, before = edges[number], kernels[number], reached[number]
        out = wanted[:, None].expand(-1, heads, -1) if summed else (
            wanted.reshape(nodes, heads, filters))  # fmt: skip
        needed = _any("ukf,kcf->kuc", out, kernel)
        mixed = _any("kuv,vc->kuc", edge, before)
        if kernel.shape[1] <= kernel.shape[2]:  # joints are mixed first, as `Block` does it
            to_kernel, from_kernel = _any("kuc->kc", mixed), _any("ukf->kf", out)
            to_edge, from_edge = _any("vc->v", before)[None], _any("kuc->ku", needed)
        else:
            to_kernel = _any("vc->c", before)[None]
            from_kernel = _any("kuv,ukf->kf", edge, out)
            to_edge, from_edge = _any("vc,kcf->kv", before, kernel), _any("ukf->ku", out)
        used = _Parts(
            kernel * to_kernel[:, :, None],
            kernel * from_kernel[:, None],
            kernel * _any("kuc,ukf->kcf", mixed, out),
        )
        if len(kept[f"blocks.{number}.convolution"]) == 1:  # one for all heads
            used = _Parts(*(_any("kcf->cf", part)[None] for part in used))
        found[f"blocks.{number}.convolution"] = used
        found[f"blocks.{number}.attention"] = _Parts(
            edge * to_edge[:, None],
            edge * from_edge[:, :, None],
            edge * _any("vc,kuc->kuv", before, needed),
        )
        wanted = _any("kuc,kuv->vc", needed, edge)
    return found


def _edges(model: GCN, number: int, kept: Mapping[str, Tensor]) -> Tensor:
    """Where the attention of a block leads from joint to joint: an attention that is fixed is none
    of the connections, and yet is a wire where it is not zero."""
    name = f"blocks.{number}.attention"
    block: Any = model.blocks[number]
    found: Tensor = kept[name] if name in kept else (block.attention != 0).float()
    return found if block.edges is None else found * (block.edges != 0)


def _any(pattern: str, *operands: Tensor) -> Tensor:
    """Whether a sum of products is anything at all, as zeros and ones."""
    result: Tensor = torch.einsum(pattern, *operands)
    return (result > 0).float()


def audit_report(
    found: Audit, target: str, facts: Iterable[tuple[str, str]] = (), version: str = ""
) -> dict[str, Any]:
    """``target`` is what was audited, as it was named; ``facts`` are what else to say of it."""
    versions = f"trellis {version}, python {platform.python_version()}, torch {torch.__version__}"
    return found.to_dict() | {
        "format": 1,
        "kind": "audit",
        "title": "What is dead in this network",
        "target": target,
        "facts": [["Network", target], *map(list, facts), ["Versions", versions]],
    }
