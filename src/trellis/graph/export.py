"""Export a model as a graph of operations, of which each has a rule."""

from __future__ import annotations

import builtins
import copy
import functools
import io
import logging
import math
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any, TextIO, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import _symbolic_trace
from torch.nn.utils.rnn import PackedSequence

from ..errors import TrellisError
from ..masks.masked import entangle, plain
from ..masks.slots import TRACING, Entangled
from .inputs import Inputs, describe, specs, unnamed

# The registry of rules: which function writes which operation as steps.


Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)
RULES: dict[str, Rule] = {}
MOVES: set[str] = set()  # operations that only move data; of a weight, they move the positions
STRAIGHT: set[str] = set()  # linear in each signal, or written so that `Sums` can follow
LOOKUPS: set[str] = set()  # operations that read integer inputs as tokens, not as structure
KEEPS: set[str] = set()  # elementwise functions that map zero to zero; positions stay


def key(op: Any) -> str:
    """Return the name of an operation without its overload, such as ``aten::add``.

    >>> key(torch.ops.aten.add.Tensor), key(torch.ops.aten.add)
    ('aten::add', 'aten::add')
    """
    if isinstance(op, torch._ops.OpOverload):
        return str(op._schema.name)
    if isinstance(op, torch._ops.OpOverloadPacket):
        return str(op._qualified_op_name)
    name = getattr(op, "__name__", None)
    if name is None:
        raise TrellisError(
            f"rule: expected an operation, got {op!r:.80}; pass one such as "
            "torch.ops.my_library.my_op"
        )
    return str(name)


def rule(*ops: Any) -> Callable[[R], R]:
    """Teach the tracer one or more operations.

    Use it as a decorator on a function ``(build, *args, **kwargs)``. The function gets a builder
    and the arguments of the operation: activations are signals, parameters are weights, everything
    else is as in the call. It returns the resulting signal, or a tuple of signals. The builder's
    methods connect signals: ``build.contract`` multiplies with a weight, ``build.join`` adds,
    ``build.reduce`` sums over dimensions. A rule for a known operation replaces the old one.

    Args:
        *ops: Operations, such as ``torch.ops.my_library.my_op``, with or without an overload.

    Returns:
        A decorator that registers the function and returns it unchanged.

    Raises:
        TrellisError: An argument is not an operation.

    Example:
        >>> import trellis
        >>> @torch.library.custom_op("doctest_lib::double", mutates_args=())
        ... def double(x: torch.Tensor) -> torch.Tensor:
        ...     return 2 * x
        >>> @trellis.rule(torch.ops.doctest_lib.double)
        ... def double_rule(build, x):
        ...     return x          # each output unit reads the input unit at the same place
    """

    def register(function: R) -> R:
        for op in ops:
            RULES[key(op)] = function
        return function

    return register


def aten(names: str) -> list[str]:
    """Return the full names of PyTorch's operations, given as one string of bare names."""
    return [f"aten::{name}" for name in names.split()]


def rules_for(names: Iterable[str]) -> Callable[[R], R]:
    """Register a rule by full names; used for PyTorch's own operations."""

    def register(function: R) -> R:
        for name in names:
            RULES[name] = function
        return function

    return register


# The export, by `torch.export`.


# Where in a model something failed, while its Python ran.


# Trellis, torch, and the packages that torch computes shapes with; all other code is a model.
_MACHINERY = {"torch", "sympy", "mpmath", *sys.stdlib_module_names}
_TRACER = __name__.rpartition(".")[0]


def first_line(error: BaseException) -> str:
    """Return the first sentences of an error's message, on one line.

    A message that is broken over lines is joined until the end of a sentence; a long one is cut
    between sentences, or between words.

    >>> first_line(ValueError("too large: 3\\n\\nand more")), first_line(ValueError())
    ('too large: 3', 'ValueError()')
    >>> first_line(ValueError("expected a list or\\na tuple.\\nStack trace"))
    'expected a list or a tuple.'
    """
    lines = [line.strip() for line in str(error).strip().split("\n\n")[0].splitlines()]
    text = ""
    for line in lines:
        text = f"{text} {line}".strip()
        if text.endswith((".", "!", "?", ":", ";", ")")) or len(text) > 300:
            break
    if not text:
        return repr(error)
    if len(text) <= 300:
        return text
    end = text.rfind(". ", 0, 300)
    return text[: end + 1] if end > 100 else f"{text[: text.rfind(' ', 0, 300)]} …"


def place(error: BaseException, model: nn.Module) -> str:
    """Return the innermost module of ``model`` that was running, and the last line outside torch.

    Either is left out if it is unknown: a `Sequential` of torch's layers has no line of its own.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 3))
    >>> try:
    ...     _ = model(torch.zeros(1, 2))
    ... except RuntimeError as error:
    ...     place(error, model).split(", File")[0]
    " in module '1' (Linear)"
    """
    names = {id(module): name for name, module in model.named_modules()}
    module, line = "", ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        found = frame.f_locals.get("self")
        if isinstance(found, nn.Module) and id(found) in names:
            name, kind = names[id(found)], type(found).__name__
            module = f" in module {name!r} ({kind})" if name else f" in the model ({kind})"
        code = frame.f_code
        generated = code.co_filename == "<string>"  # by torch, as it traces
        if not generated and _of_a_model(str(frame.f_globals.get("__name__", ""))):
            line = f', File "{code.co_filename}", line {number}, in {code.co_name}'
    return module + line


def _of_a_model(name: str) -> bool:
    """Return whether code of the Python module of this name may belong to a model."""
    return name.partition(".")[0] not in _MACHINERY and not f"{name}.".startswith(f"{_TRACER}.")


Result = TypeVar("Result")


def on_plain(model: nn.Module, work: Callable[[nn.Module], Result]) -> Result:
    """Call ``work`` with the model in eval mode, without masks, parametrizations and caches.

    ``work`` gets a copy of the model's structure, so that other threads can run the model at the
    same time. If the copy cannot replace the model, ``work`` gets the model itself.
    """
    try:
        with plain(model) as seen, without_cache(seen), dense_experts(seen):
            return work(seen)
    except Entangled:
        entangle(model)
    with plain(model) as seen, without_cache(seen), dense_experts(seen):
        return work(seen)


@contextmanager
def without_cache(model: nn.Module) -> Iterator[None]:
    """Let language models of Hugging Face return no key-value cache meanwhile.

    By default (``config.use_cache``) decoders return the cache beside the logits. It is not an
    output of the network, and `torch.export` cannot return it. Each module gets a changed copy of
    its configuration, since the configuration itself is shared with other models.
    """
    changed: dict[int, Any] = {}
    before: list[tuple[nn.Module, Any]] = []
    try:
        for module in model.modules():
            config = module.__dict__.get("config")
            if getattr(config, "use_cache", None) is not True:
                continue
            if id(config) not in changed:
                changed[id(config)] = copy.copy(config)
                changed[id(config)].use_cache = False
            before.append((module, config))
            module.__dict__["config"] = changed[id(config)]
        yield
    finally:
        for module, config in before:
            module.__dict__["config"] = config


# The experts of a mixture, as Hugging Face's `use_experts_implementation` describes them.
_OF_EXPERTS = ("num_experts", "down_proj", "has_gate", "has_bias", "is_transposed", "_apply_gate")


@contextmanager
def dense_experts(model: nn.Module) -> Iterator[None]:
    """Let mixtures of experts of Hugging Face compute every expert for every token meanwhile.

    Which experts a token is sent to depends on values, and a graph has no such branches. The
    experts that are not chosen get the weight 0, so the result is the same.
    """
    changed = []
    try:
        for module in model.modules():
            if all(hasattr(module, name) for name in _OF_EXPERTS):
                module.__dict__["forward"] = functools.partial(_every_expert, module)
                changed.append(module)
        yield
    finally:
        for module in changed:
            module.__dict__.pop("forward", None)


def _every_expert(experts: Any, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """Tokens x (T, K), the numbers of the chosen experts and their weights (T, k), to (T, K)."""
    count = experts.num_experts
    one_hot = chosen[..., None] == torch.arange(count, device=x.device)
    share = (weights[..., None] * one_hot).sum(1)  # (T, experts)

    def through(h: Tensor, name: str) -> Tensor:
        weight = getattr(experts, name)  # (experts, N, K), or (experts, K, N)
        into = "ekn" if experts.is_transposed else "enk"
        h = torch.einsum(f"{'etk' if h.ndim == 3 else 'tk'},{into}->etn", h, weight)
        return h + getattr(experts, f"{name}_bias")[:, None] if experts.has_bias else h

    h = through(x, "gate_up_proj" if experts.has_gate else "up_proj")
    flat = h.reshape(-1, h.shape[-1])
    flat = experts._apply_gate(flat) if experts.has_gate else experts.act_fn(flat)
    h = through(flat.reshape(count, -1, flat.shape[-1]), "down_proj")
    if getattr(experts, "has_post_expert_norm", False):
        h = experts.post_expert_norm(h.reshape(-1, h.shape[-1])).reshape(h.shape)
    return (h * share.t()[..., None]).sum(0).to(x.dtype)


def export(
    model: nn.Module, inputs: Inputs, dynamic_shapes: Any = None, *, of: nn.Module
) -> ExportedProgram:
    """Export a plain model in eval mode, as `on_plain` gives it; ``of`` is the original model.

    The fused fast path of attention is disabled, because it hides which weights are used where.
    ``dynamic_shapes`` is passed to `torch.export`: which sizes of the inputs stay open.

    Raises:
        Entangled: ``model`` is a copy, and its forward() reaches around it to ``of``.
    """
    stray, note = unnamed(model, inputs)
    try:
        # Tensors made in torch.inference_mode can be traced in that mode only.
        inference = any(tensor.is_inference() for tensor in model.parameters())
        mode = torch.inference_mode() if inference else torch.enable_grad()
        with alone(of), _quiet(), mode:
            program = torch.export.export(
                model, inputs.args, inputs.kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
        _inline(program.graph_module)
    except TrellisError:
        raise
    except Exception as error:
        if model is not of and _only_copy_fails(model, inputs, of):
            raise Entangled from error
        raise TrellisError(
            f"torch.export cannot trace {type(model).__name__} with inputs {describe(inputs)}: "
            f"{type(error).__name__}{place(error, model)}: {_reason(error)}{note and f'; {note}'}"
        ) from error
    if model is not of and _strays(program, of):
        raise Entangled
    if stray:
        read = {node.name for node in program.graph.nodes if node.users}
        named = [told.get("name") for told in specs(inputs)]
        found = zip(named, program.graph_signature.user_inputs, strict=True)
        if ignored := [name for name, at in found if name in stray and at not in read]:
            warnings.warn(f"the model ignores the input {ignored[0]!r}: {note}", stacklevel=2)
    return program


# What torch wraps around a graph within the graph: a part of forward() under torch.no_grad() or
# torch.autocast (rotary embeddings have both). Inside, the operations are ordinary ones.
_WRAPPED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}  # arguments before the graph


def _inline(module: fx.GraphModule) -> None:
    """Put the operations of wrapped graphs in their place, those within them too."""
    graph = module.graph
    for node in list(graph.nodes):
        place = _WRAPPED.get(getattr(node.target, "__name__", ""))
        if node.op != "call_function" or place is None:
            continue
        inner = getattr(module, node.args[place].target)
        _inline(inner)
        holes = [n for n in inner.graph.nodes if n.op == "placeholder"]
        given = dict(zip(holes, node.args[place + 1 :], strict=True))
        for constant in [n for n in inner.graph.nodes if n.op == "get_attr"]:
            name = f"{node.args[place].target}_{constant.target}"
            setattr(module, name, getattr(inner, constant.target))
            constant.target = name
        with graph.inserting_before(node):
            results = graph.graph_copy(inner.graph, given)
        for user in list(node.users):
            assert isinstance(results, tuple | list)
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        held = node.args[place]
        graph.erase_node(node)
        if not held.users:
            graph.erase_node(held)


def _only_copy_fails(copied: nn.Module, inputs: Inputs, model: nn.Module) -> bool:
    """Return whether the copy fails to run and the model itself may run.

    The model is run only if all of it is in eval mode: in training mode a run would change its
    statistics.
    """
    in_training = any(module.training for module in model.modules())
    return not _runs(copied, inputs) and (in_training or _runs(model, inputs))


def _runs(model: nn.Module, inputs: Inputs) -> bool:
    said = redirect_stdout(_Said(sys.stdout)), redirect_stderr(_Said(sys.stderr))
    try:
        with TRACING, said[0], said[1], torch.no_grad():
            model(*inputs.args, **inputs.kwargs)
        return True
    except Exception:
        return False


def _strays(program: ExportedProgram, model: nn.Module) -> bool:
    """Return whether constants of the graph are tensors of the model, which the copy reached."""
    constants = [
        program.constants.get(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.CONSTANT_TENSOR and spec.target is not None
    ]
    found = {_storage(t) for t in constants if isinstance(t, Tensor)} - {0}
    if not found:
        return False
    return any(_storage(t) in found for t in (*model.parameters(), *model.buffers()))


def _storage(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse tensors have none
        return 0


@contextmanager
def alone(model: nn.Module) -> Iterator[None]:
    """Let only this thread trace, without effect on the models that other threads run.

    While torch traces, it patches `nn.Module` and built-in functions, sets global flags and
    disables fast kernels. Here these patches take effect in this thread only.
    """
    mine = threading.get_ident()

    def here(new: Callable[..., Any], others: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(new)
        def chosen(*args: Any, **kwargs: Any) -> Any:
            return (new if threading.get_ident() == mine else others)(*args, **kwargs)

        return chosen

    class Patcher(_symbolic_trace._Patcher):
        """As torch's, for this thread."""

        def patch(self, frame_dict: Any, name: str, new_fn: Any, deduplicate: bool = True) -> None:
            others = frame_dict.get(name, getattr(builtins, name, None))
            super().patch(frame_dict, name, here(new_fn, others), deduplicate)

        def patch_method(self, cls: type, name: str, new_fn: Any, deduplicate: bool = True) -> None:
            super().patch_method(cls, name, here(new_fn, getattr(cls, name)), deduplicate)

    @contextmanager
    def builtin_functions() -> Iterator[None]:
        usual = max, min, math.pow
        with overriding():
            builtins.max, builtins.min = here(max, usual[0]), here(min, usual[1])
            math.pow = here(math.pow, usual[2])
            yield

    with TRACING, ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def patch(module: Any, name: str, new: Any) -> None:
            if hasattr(module, name):  # private names of torch, which may change
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, new)

        from torch.export import _trace  # takes seconds to import: not before it is needed

        patch(_symbolic_trace, "_Patcher", Patcher)
        overriding = getattr(_trace, "_override_builtin_ops", nullcontext)
        patch(_trace, "_override_builtin_ops", builtin_functions)
        for name in ("is_compiling", "is_exporting"):
            if usual := getattr(torch.compiler, name, None):
                patch(torch.compiler, name, here(usual, lambda: False))
        usual = torch.backends.mha.get_fastpath_enabled
        patch(torch.backends.mha, "get_fastpath_enabled", here(lambda: False, usual))
        if all(p.device.type == "cpu" for p in model.parameters()):
            # Needed for operations that choose a kernel while traced, which none does on the CPU.
            patch(_trace, "_ignore_backend_decomps", nullcontext)
        yield


def _reason(error: Exception) -> str:
    """Return the first sentence of torch's message, and what to do if that is known."""
    reason = first_line(error)
    if "data-dependent" in reason:
        reason = reason.partition(" (unhinted")[0]
        reason += ". The model branches on the values of a tensor, and a trellis describes one "
        reason += "branch only; branch on shapes, or use torch.where"
    if any(
        isinstance(value, PackedSequence)
        for frame, _ in traceback.walk_tb(error.__traceback__)
        for value in frame.f_locals.values()
    ):
        reason += (
            ". The model packs sequences, and a trellis describes sequences of one length; run the "
        )
        reason += "recurrent layer on the padded tensor while the model is traced"
    return reason + (
        ". If the model returns a cache, set model.config.use_cache = False"
        if "Cache" in str(error)
        else ""
    )


class _Said(io.StringIO):
    """Collect what one thread writes; pass on what other threads write to ``others``."""

    def __init__(self, others: TextIO) -> None:
        super().__init__()
        self.mine, self.others = threading.get_ident(), others

    def write(self, text: str) -> int:
        mine = threading.get_ident() == self.mine
        return super().write(text) if mine else self.others.write(text)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what torch prints about a failing export; our error says it in one sentence.

    Torch logs the traceback of an input that does not fit, and prints the partial graph.
    """
    names = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
    loggers = [log for log in map(logging.getLogger, names) if not log.disabled]
    for logger in loggers:
        logger.disabled = True
    said, graph = _Said(sys.stderr), ""
    try:
        with redirect_stderr(said):
            yield
    except Exception as error:
        graph = str(getattr(error, "partial_fx_graph", ""))
        raise
    finally:
        for logger in loggers:
            logger.disabled = False
        rest = said.getvalue().replace(f"{graph}\n", "") if graph else said.getvalue()
        sys.stderr.write(rest)  # what the model itself printed


def mutates(program: ExportedProgram) -> bool:
    """Return whether the graph changes tensors in place, so that it must be decomposed first."""
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in program.graph.nodes
    )


def decompose(program: ExportedProgram, of: nn.Module) -> ExportedProgram:
    """Decompose in-place and composite operations, except those that have a rule."""
    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if key(op) in RULES:
            table.pop(op)
    try:
        with alone(of):
            rewritten: ExportedProgram = program.run_decompositions(table)
            return rewritten
    except Exception as error:
        raise TrellisError(
            "torch.export cannot rewrite the in-place operations of the model: "
            f"{type(error).__name__}: {first_line(error)}. If forward() changes the model's own "
            "weights (an embedding with max_norm), make a new tensor instead, or change them "
            "outside forward()"
        ) from error
