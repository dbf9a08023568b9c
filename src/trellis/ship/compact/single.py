"""Operations that return more than is used of them, as the plain ones they stand for.

Where a model computes in place, `torch.export` rewrites it, and norms and pools come out of that
in forms that also return statistics and indices, for a backward pass that nobody runs here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .calls import Call
from .program import Op
from .reading import Network

Plain = Callable[[Call], tuple[str, tuple[Any, ...]]]


def _batch_norm(call: Call) -> tuple[str, tuple[Any, ...]]:
    names = ("input", "weight", "bias", "running_mean", "running_var")
    return "aten.batch_norm.default", (
        *(call[name] for name in names), False, call["momentum"], call["eps"], False
    )  # fmt: skip


def _layer_norm(call: Call) -> tuple[str, tuple[Any, ...]]:
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    return "aten.layer_norm.default", (*(call[name] for name in names), False)


def _group_norm(call: Call) -> tuple[str, tuple[Any, ...]]:
    names = ("input", "group", "weight", "bias", "eps")
    return "aten.group_norm.default", (*(call[name] for name in names), False)


def _rms_norm(call: Call) -> tuple[str, tuple[Any, ...]]:
    names = ("input", "normalized_shape", "weight", "eps")
    return "aten.rms_norm.default", tuple(call[name] for name in names)


def _max_pool(call: Call) -> tuple[str, tuple[Any, ...]]:
    name = call.op.target.split(".")[1].removesuffix("_with_indices")
    return f"aten.{name}.default", tuple(call.arguments.values())


_PLAIN: dict[str, Plain] = {
    "_native_batch_norm_legit_no_training": _batch_norm,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_fused_rms_norm": _rms_norm,
    "max_pool2d_with_indices": _max_pool,
    "max_pool3d_with_indices": _max_pool,
}


def with_single_results(network: Network) -> None:
    """Rewrite operations of which only the first result is read."""
    readers = network.readers()
    ops: list[Op] = []
    plain: dict[str, Op] = {}  # by the name of the operation that returns several
    for op in network.ops:
        source = op.args[0].name if op.target == "operator.getitem" else ""
        if source in plain:
            target, args = _PLAIN[plain[source].target.split(".")[1]](Call(plain[source]))
            ops.append(Op(op.name, target, args))
            network.places[op.name] = network.places.get(source, "")
            continue
        known = len(op.target.split(".")) == 3 and op.target.split(".")[1] in _PLAIN
        used = readers.get(op.name, [])
        if known and len(used) == 1 and used[0].args[1:] == (0,):
            plain[op.name] = op
            continue
        ops.append(op)
    network.ops = ops
