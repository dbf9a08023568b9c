"""Batch norms in eval mode are a scale and a shift: both go into the layer before."""

from __future__ import annotations

import torch
from torch import Tensor

from ...trace.values import leaves
from .calls import Call
from .program import Op, Ref
from .reading import Network, Value

LAYERS = ("linear", "conv1d", "conv2d", "conv3d", "convolution",
          "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")  # fmt: skip


def fold_batch_norms(network: Network) -> list[str]:
    """Rewrite the network without batch norms. Returns those that stay as a scale and a shift."""
    stay = []
    for op in list(network.ops):
        if not op.target.startswith("aten.batch_norm."):
            continue
        call = Call(op)
        if call["running_mean"] is None or call["running_var"] is None or call["training"]:
            continue
        scale, shift = _affine(network, call)
        if not _into_layer(network, op, call, scale, shift):
            _apart(network, op, call, scale, shift)
            stay.append(network.places.get(op.name) or op.name)
    return stay


def _affine(network: Network, call: Call) -> tuple[Tensor, Tensor]:
    def tensor(name: str) -> Tensor | None:
        ref = call[name]
        return network.values[ref.name].tensor.double() if isinstance(ref, Ref) else None

    mean, variance = tensor("running_mean"), tensor("running_var")
    assert mean is not None and variance is not None
    scale = 1 / torch.sqrt(variance + call["eps"])
    weight, bias = tensor("weight"), tensor("bias")
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    return scale, shift


def _into_layer(network: Network, op: Op, call: Call, scale: Tensor, shift: Tensor) -> bool:
    """Fold into the layer whose result the norm alone reads, if its tensors are its own."""
    x = call["input"].name
    place = next((i for i, other in enumerate(network.ops) if other.name == x), None)
    if place is None:
        return False
    layer = network.ops[place]
    kind = layer.target.split(".")[1]
    readers = network.readers()
    if kind not in LAYERS or len(readers[x]) != 1 or _returned(network, x):
        return False
    own = Call(layer)
    w, b = own["weight"], own["bias"]
    for ref in (w, b):
        if isinstance(ref, Ref) and not _alone(network, readers, ref.name):
            return False
    if kind == "linear" and len(network.values[x].shape) != 2:
        return False
    weight = network.values[w.name]
    transposed = "transpose" in kind or bool(own.arguments.get("transposed", False))
    weight.tensor = _scaled(weight.tensor, scale, transposed, int(own.arguments.get("groups", 1)))
    if b is None:
        name = f"{op.name}_bias"
        home = network.parameters[w.name].rpartition(".")[0]
        network.parameters[name] = f"{home}.bias" if home else "bias"
        network.values[name] = Value(name, shift.to(weight.tensor), weight=True, computed=True)
        b = Ref(name)
    else:
        bias = network.values[b.name]
        bias.tensor = (bias.tensor.double() * scale + shift).to(bias.tensor)
    network.ops = [other for other in network.ops if other.name != x]
    place = next(i for i, other in enumerate(network.ops) if other.name == op.name)
    network.ops[place] = own.changed(op.name, bias=b)
    network.places[op.name] = network.places.get(x, "")
    del network.values[x]
    return True


def _scaled(weight: Tensor, scale: Tensor, transposed: bool, groups: int) -> Tensor:
    if not transposed:
        return (weight.double() * scale.reshape(-1, *[1] * (weight.ndim - 1))).to(weight)
    wide = weight.reshape(groups, -1, *weight.shape[1:])  # (groups, tails, heads, *taps)
    per = scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))
    return (wide.double() * per).reshape(weight.shape).to(weight)


def _apart(network: Network, op: Op, call: Call, scale: Tensor, shift: Tensor) -> None:
    """x · scale + shift, where nothing can take them in."""
    x, out = network.values[call["input"].name], network.values[op.name]
    shape = [-1] + [1] * (len(out.shape) - 2)
    readers = network.readers()
    names = []
    for part, tensor in (("weight", scale), ("bias", shift)):
        name = f"{op.name}_{part}"
        network.parameters[name] = _named(network, readers, op, call[part], part)
        value = Value(name, tensor.reshape(shape).to(x.tensor), weight=True, computed=True)
        network.values[name] = value
        names.append(name)
    middle = f"{op.name}_scaled"
    network.values[middle] = Value(
        middle, x.tensor * network.values[names[0]].tensor, out.open, x.depends, out.matters,
        out.live, driven=True, computed=True,
    )  # fmt: skip
    place = network.ops.index(op)
    network.ops[place : place + 1] = [
        Op(middle, "aten.mul.Tensor", (Ref(x.name), Ref(names[0]))),
        Op(op.name, "aten.add.Tensor", (Ref(middle), Ref(names[1]))),
    ]
    network.places[middle] = network.places.get(op.name, "")


def _named(network: Network, readers: dict[str, list[Op]], op: Op, given: object, part: str) -> str:
    """The name of the norm's own parameter, which then gives way, or a new one."""
    if isinstance(given, Ref) and _alone(network, readers, given.name):
        return network.parameters.pop(given.name)
    name = f"{network.places.get(op.name) or op.name}.{part}"
    return f"{name}_folded" if name in network.parameters.values() else name


def _alone(network: Network, readers: dict[str, list[Op]], name: str) -> bool:
    """Whether a value is a parameter that one operation reads, under one name."""
    parameter = network.parameters.get(name)
    if parameter is None or len(readers.get(name, [])) != 1:
        return False
    same = [n for n, p in network.parameters.items() if p == parameter]
    return sum(len(readers.get(n, [])) for n in same) == 1


def _returned(network: Network, name: str) -> bool:
    return any(isinstance(leaf, Ref) and leaf.name == name for leaf in leaves(network.result))
