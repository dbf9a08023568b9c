"""Example inputs and models: how users give them, and how the tracer prepares them.

Users give a tensor, a tuple of positional inputs, a dictionary of keyword inputs, or `Inputs` for
both. Inside, they are always `Inputs`, with keyword inputs in the order of the model's forward().
A model may come inside wrappers, which `unwrapped` removes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from ..errors import TrellisError
from ..limits import check_bytes
from ..masks.slots import is_sharded, named_plain_modules


class Inputs:
    """Hold the positional and keyword inputs of one call of a model.

    Every function of Trellis that takes ``example_inputs`` accepts a tensor, a tuple of positional
    inputs or a dictionary of keyword inputs. `Inputs` is for models that need both at once.

    Args:
        *args: Positional inputs, as the model is called.
        **kwargs: Keyword inputs, as the model is called.

    Attributes:
        args: The positional inputs, a tuple.
        kwargs: The keyword inputs, a dictionary.

    Example:
        >>> import trellis
        >>> class Scaled(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = nn.Linear(3, 2)
        ...     def forward(self, x, *, scale):
        ...         return self.fc(x) * scale
        >>> inputs = trellis.Inputs(torch.zeros(1, 3), scale=torch.ones(1, 2))
        >>> inputs
        Inputs(float32 1x3, scale=float32 1x2)
        >>> trellis.audit(Scaled(), inputs).total
        6
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __init__(self, /, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs

    def __repr__(self) -> str:
        return f"Inputs{describe(self)}"


def values(inputs: Inputs) -> list[Any]:
    """List the positional, then the keyword inputs."""
    return [*inputs.args, *inputs.kwargs.values()]


def leaves(inputs: Inputs) -> list[Any]:
    """List every tensor and constant of the inputs, those inside lists and dictionaries too.

    The order is that of the inputs of an exported program.
    """
    return pytree.tree_leaves((inputs.args, inputs.kwargs))


def mapped(inputs: Inputs, change: Callable[[Any], Any]) -> Inputs:
    """Apply a function to every leaf and keep the structure."""
    args, kwargs = pytree.tree_map(change, (inputs.args, inputs.kwargs))
    return Inputs(*args, **kwargs)


def of_tensors(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """Apply a function to every tensor and keep everything else."""
    return mapped(inputs, lambda x: change(x) if isinstance(x, Tensor) else x)


def tensors(inputs: Inputs) -> list[Tensor] | None:
    """List the tensors among the inputs.

    None if any input is a container or a number, whose meaning for a batch is not known. Flags,
    names and missing inputs (``None``) have no batch dimension and are left out.
    """
    found = [x for x in values(inputs) if not (x is None or isinstance(x, bool | str))]
    return found if all(isinstance(x, Tensor) for x in found) else None


def describe(inputs: Inputs) -> str:
    """Describe the shapes and types of inputs, for messages.

    >>> describe(Inputs(torch.zeros(1, 3), mask=torch.zeros(2, dtype=torch.int64)))
    '(float32 1x3, mask=int64 2)'
    """
    named = [f"{name}={_described(x)}" for name, x in inputs.kwargs.items()]
    return f"({', '.join([*map(_described, inputs.args), *named])})"


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        shape = "x".join(map(str, value.shape)) or "scalar"
        return f"{str(value.dtype).removeprefix('torch.')} {shape}"
    if isinstance(value, list | tuple):
        parts = ", ".join(map(_described, value))
        return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_described(v)}" for key, v in value.items()) + "}"
    return f"{value!r:.40}"


def specs(inputs: Inputs) -> list[dict[str, Any]]:
    """Describe every leaf for a file: ``dtype`` and ``shape``, and ``name`` if it is a keyword.

    >>> specs(Inputs(torch.zeros(1, 3), scale=torch.zeros(1)))
    [{'dtype': 'float32', 'shape': [1, 3]}, {'dtype': 'float32', 'shape': [1], 'name': 'scale'}]
    """
    found = [spec(x) for x in pytree.tree_leaves(inputs.args)]
    for name, value in inputs.kwargs.items():
        found += [spec(x) | {"name": name} for x in pytree.tree_leaves(value)]
    return found


def spec(value: Any) -> dict[str, Any]:
    """Describe one leaf: the ``dtype`` and ``shape`` of a tensor, else its ``value``."""
    if isinstance(value, Tensor):
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    return {"value": repr(value)}


def from_specs(told: Sequence[Mapping[str, Any]]) -> Inputs:
    """Return inputs of the types and shapes that `specs` described.

    Floats are drawn from a normal distribution, the same at every call; integers are 0. An
    attention mask is 1 everywhere, since zeros would hide every position.

    >>> from_specs([{"dtype": "float32", "shape": [1, 3]}, {"value": "None", "name": "mask"}])
    Inputs(float32 1x3, mask=None)
    """
    generator = torch.Generator().manual_seed(0)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for each in told:
        value = _made(each, generator)
        if "name" not in each:
            args.append(value)
        elif each["name"] in kwargs:
            raise _not_plain(each)
        else:
            kwargs[each["name"]] = value
    return Inputs(*args, **kwargs)


def _made(told: Mapping[str, Any], generator: torch.Generator) -> Any:
    if told.get("value") in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[told["value"]]
    kind, shape = getattr(torch, str(told.get("dtype")), None), told.get("shape")
    given = shape if isinstance(shape, list) else [None]
    sizes = [n for n in given if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
    if not isinstance(kind, torch.dtype) or len(sizes) < len(given):
        raise _not_plain(told)
    check_bytes(8 * math.prod(sizes), "an input", "pass example_inputs")
    if kind.is_floating_point:
        return torch.randn(sizes, generator=generator).to(kind)
    return torch.full(sizes, kind == torch.bool or told.get("name") == "attention_mask", dtype=kind)


def _not_plain(told: Mapping[str, Any]) -> TrellisError:
    return TrellisError(
        f"inputs cannot be made from their description {dict(told)!r:.80}; pass example_inputs"
    )


# From what a user gives to inputs that fit the model.


def as_inputs(model: nn.Module, example_inputs: Any) -> Inputs:
    """Return example inputs as `Inputs` that fit forward(), on the model's device and in its dtype.

    Raises:
        TrellisError: The inputs are not tensors, do not fit forward(), are empty, or hide every
            position from attention.
    """
    inputs = _collected(example_inputs)
    found = (inputs.args, inputs.kwargs)
    for leaf in pytree.tree_leaves(found, is_leaf=lambda x: isinstance(x, PackedSequence)):
        _refuse_leaf(leaf)
    inputs = _in_order(model, inputs)
    if not any(isinstance(x, Tensor) for x in leaves(inputs)):
        got = ", ".join(f"{x!r:.60}" for x in leaves(inputs)) or "no inputs"
        raise TrellisError(
            f"example_inputs: expected a torch.Tensor, got {got}; pass what forward() takes, such "
            "as torch.zeros(1, 3, 224, 224)"
        )
    refuse_meta(model)
    if any(isinstance(x, Tensor) and x.numel() == 0 for x in leaves(inputs)):
        raise TrellisError(
            f"an example input is empty: {describe(inputs)}; give one sample at least"
        )
    # A tensor made in torch.inference_mode can be used in that mode only; a copy in every mode.
    inputs = of_tensors(inputs, lambda x: x.clone() if x.is_inference() else x)
    devices = {p.device for p in model.parameters()}
    if len(devices) == 1:
        device = devices.pop()
        if any(isinstance(x, Tensor) and x.is_meta for x in leaves(inputs)):
            raise TrellisError(
                f"an example input is on the meta device and has no values: {describe(inputs)}; "
                f"give one on {device}, where the model is"
            )
        inputs = of_tensors(inputs, lambda x: x.to(device))
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    if len(kinds) == 1:
        dtype = kinds.pop()
        inputs = of_tensors(inputs, lambda x: x.to(dtype) if x.is_floating_point() else x)
    _refuse_all_hidden(model, inputs)
    return inputs


def refuse_meta(model: nn.Module) -> None:
    """Raise if a parameter has no values."""
    absent = next((name for name, p in model.named_parameters() if p.is_meta), None)
    if absent is not None:
        raise TrellisError(
            f"{absent!r} of {type(model).__name__} is on the meta device and has no values; load "
            "the weights first"
        )


def _collected(example_inputs: Any) -> Inputs:
    if example_inputs is None:
        raise TrellisError(
            "example_inputs is missing: pass what the model is called with, such as "
            "torch.zeros(1, 3, 224, 224), a tuple of positional inputs or a dict of keyword inputs"
        )
    if isinstance(example_inputs, Inputs):
        return Inputs(*example_inputs.args, **example_inputs.kwargs)
    if isinstance(example_inputs, Mapping):
        if wrong := [key for key in example_inputs if not isinstance(key, str)]:
            raise TrellisError(
                f"example_inputs: expected a dict from names of forward() to inputs, got the key "
                f"{wrong[0]!r:.60}"
            )
        return Inputs(**example_inputs)
    if isinstance(example_inputs, tuple | list) and not isinstance(example_inputs, PackedSequence):
        sizes = list(example_inputs)
        if sizes and all(isinstance(n, int) and not isinstance(n, bool) for n in sizes):
            shape = ", ".join(map(str, sizes))
            raise TrellisError(
                f"example_inputs: expected a tensor, got the shape ({shape}); pass "
                f"torch.zeros({shape})"
            )
        return Inputs(*example_inputs)
    return Inputs(example_inputs)


def _refuse_leaf(value: Any) -> None:
    """Raise for values that users give in place of a tensor."""
    if isinstance(value, PackedSequence):
        raise TrellisError(
            "example_inputs: expected sequences of one length, got a PackedSequence; pass the "
            "padded tensor to a model that takes it"
        )
    if isinstance(value, np.ndarray | np.generic):
        raise TrellisError(
            f"example_inputs: expected a torch.Tensor, got numpy.{type(value).__name__} of shape "
            f"{tuple(value.shape)}; use torch.from_numpy(array)"
        )
    if isinstance(value, nn.Module):
        raise TrellisError(
            f"example_inputs: expected a torch.Tensor, got the module {type(value).__name__}; pass "
            "the model first, then the inputs that it is called with"
        )
    if isinstance(value, torch.utils.data.DataLoader | torch.utils.data.Dataset):
        raise TrellisError(
            f"example_inputs: expected a torch.Tensor, got a {type(value).__name__}; pass the "
            "inputs of one batch"
        )


def _in_order(model: nn.Module, inputs: Inputs) -> Inputs:
    """Put keyword inputs in the order of forward(); raise if the inputs do not fit it."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):  # forward() is not written in Python
        return inputs
    try:
        signature.bind(*inputs.args, **inputs.kwargs)
    except TypeError as error:
        raise TrellisError(
            f"example_inputs {describe(inputs)} do not fit {type(model).__name__}.forward("
            f"{', '.join(_names(signature))}): {error}"
        ) from None
    given = inputs.kwargs
    ordered = [name for name in signature.parameters if name in given]
    ordered += [name for name in given if name not in signature.parameters]
    return Inputs(*inputs.args, **{name: given[name] for name in ordered})


def _names(signature: inspect.Signature) -> list[str]:
    """List the parameters of forward() as they are written, without types and defaults.

    >>> _names(inspect.signature(lambda x, /, y=1, *more, mask=None, **rest: 0))
    ['x', 'y', '*more', 'mask', '**rest']
    """
    return [
        ("**" if p.kind is p.VAR_KEYWORD else "*" if p.kind is p.VAR_POSITIONAL else "") + p.name
        for p in signature.parameters.values()
    ]


def unnamed(model: nn.Module, inputs: Inputs) -> tuple[list[str], str]:
    """Return the keyword inputs that forward() takes as ``**kwargs`` only, and a note on them.

    A misspelt name is accepted there without an error. The note is "" if there are no such inputs.
    """
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return [], ""
    names = _names(signature)
    stray = [name for name in inputs.kwargs if name not in names]
    if not stray or all(name.startswith("*") for name in names):  # forward() hands everything on
        return [], ""
    return stray, f"{stray[0]!r} is not a named parameter of forward({', '.join(names)})"


# Parameters of forward() that say which positions attention may see: the value that hides one.
_HIDES = {"attention_mask": False, "key_padding_mask": True, "src_key_padding_mask": True}


def _refuse_all_hidden(model: nn.Module, inputs: Inputs) -> None:
    """Raise if a padding mask hides every position of a sample: no path leads through it."""
    try:
        given = inspect.signature(model.forward).bind(*inputs.args, **inputs.kwargs).arguments
    except (TypeError, ValueError):
        given = inputs.kwargs
    for name, hidden in _HIDES.items():
        mask = given.get(name, inputs.kwargs.get(name))
        if not isinstance(mask, Tensor) or mask.is_floating_point() or not 0 < mask.ndim <= 2:
            continue
        if bool(((mask != 0) == hidden).all(-1).any()):
            fill = "zeros" if hidden else "ones"
            raise TrellisError(
                f"{name} hides every position of a sample: it is {int(hidden)} throughout; pass "
                f"torch.{fill}({', '.join(map(str, mask.shape))}, dtype={mask.dtype}) to show all "
                "positions"
            )


# From a batch to one sample.


def one_sample(model: nn.Module, inputs: Inputs) -> Inputs:
    """Cut a batch to one sample, if the first dimension is a batch.

    It is a batch if every input and every output has it, and if the first and the last sample
    alone give the same outputs as within the batch. Otherwise the inputs are returned unchanged.
    """
    given = tensors(inputs)
    sizes = {x.shape[0] if x.ndim else 0 for x in given or ()}
    if given is None or len(sizes) != 1 or (batch := sizes.pop()) < 2:
        return inputs
    probes = _generic(inputs)
    try:
        whole, first, last = (
            _outputs(model, part)
            for part in (probes, _sample(probes, 0), _sample(probes, batch - 1))
        )
    except Exception:
        return inputs
    same = len(whole) == len(first) and all(
        w.ndim
        and w.shape[0] == batch
        and f.shape[0] == 1
        and w.shape[1:] == f.shape[1:]
        and torch.allclose(w[:1], f, 1e-3, 1e-5)
        and torch.allclose(w[-1:], t, 1e-3, 1e-5)
        for w, f, t in zip(whole, first, last, strict=True)
    )
    return _sample(inputs, 0) if same else inputs


def _generic(inputs: Inputs) -> Inputs:
    """Replace floating-point inputs by random ones: zeros would make all samples look alike."""
    generator = torch.Generator().manual_seed(0)

    def drawn(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        return torch.randn(x.shape, generator=generator, device="cpu").to(x)

    return of_tensors(inputs, drawn)


def _outputs(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """Run the model on copies of its buffers, so that its own buffers do not change."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.no_grad():
        result = torch.func.functional_call(model, buffers, inputs.args, inputs.kwargs)
    return [y for y in pytree.tree_leaves(result) if isinstance(y, Tensor)]


def _sample(inputs: Inputs, place: int) -> Inputs:
    return of_tensors(inputs, lambda x: x[place : place + 1])


# The model itself: out of its wrappers, and with all its weights in this process.


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside `torch.compile` and data-parallel wrappers; its names are used."""
    while True:
        inner: object = getattr(model, "_orig_mod", None)  # where torch.compile keeps it
        if isinstance(model, DataParallel | DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            _refuse_opaque(model)
            return model
        model = inner


def _refuse_opaque(model: nn.Module) -> None:
    """Raise if a module hides its weights from Python or does not store them as dense tensors."""
    name = type(model).__name__
    for place, module in named_plain_modules(model):  # raises for TorchScript
        where = f"{place!r} of {name}" if place else name
        kind = type(module)
        packed = kind.__module__.startswith("torch.ao.nn.") and ".quantized." in kind.__module__
        if packed and not kind.__name__.endswith("Functional"):
            raise TrellisError(
                f"{where} is quantised ({kind.__module__}.{kind.__name__}); expected "
                "floating-point weights; prune and compact the model first, then quantise it"
            )
    refuse_hidden(model)
    for place, parameter in model.named_parameters():
        if not is_lazy(parameter) and parameter.layout is not torch.strided:
            raise TrellisError(
                f"parameter {place!r} of {name} is stored as {parameter.layout}; expected an "
                "ordinary tensor; convert it with to_dense(), and mask what should stay zero"
            )


def refuse_hidden(model: nn.Module) -> None:
    """Raise for parameters that this process does not hold whole."""
    instead = (
        "trace the model first (net = trellis.trace(model, inputs)), then shard it with "
        "torch.distributed.fsdp.fully_shard, and train it with trellis.Pruner(net, ...)"
    )
    for place, module in model.named_modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            raise TrellisError(
                f"{place or type(module).__name__!r} is wrapped in FullyShardedDataParallel "
                f"(FSDP1), which hides its parameters; {instead}"
            )
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise TrellisError(
                f"{name!r} is sharded over processes ({type(parameter).__name__}, as by "
                f"fully_shard), and paths need the whole network; {instead}"
            )
        if hasattr(parameter, "ds_id"):  # DeepSpeed's mark; the tensor itself is empty
            raise TrellisError(
                f"{name!r} is partitioned by DeepSpeed ZeRO-3, which hides it; use ZeRO stage 2, "
                f"or {instead}"
            )
