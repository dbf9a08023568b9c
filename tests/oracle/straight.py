"""Running an exported model with straight lines in place of its curves."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._pytree import tree_leaves

from . import unrolled  # noqa: F401  registers the fused recurrent modules
from .lines import LINES

# Sums, products and wires: polynomials already.
POLYNOMIAL = (
    "linear matmul mm bmm addmm baddbmm einsum conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d batch_norm add sub rsub mul neg sum mean cumsum "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d "
    "avg_pool3d upsample_nearest1d upsample_nearest2d upsample_bilinear2d upsample_linear1d "
    "fft_fft _fft_c2c real"
)
WIRES = (
    "pixel_shuffle cat stack chunk split split_with_sizes unbind select slice index index_select "
    "gather narrow embedding scatter_add scatter_reduce masked_fill where pad roll flip repeat "
    "expand expand_as reshape view flatten unflatten permute transpose t squeeze unsqueeze "
    "contiguous clone alias detach dropout to _to_copy sym_size "
    "new_zeros new_ones zeros_like ones_like"
)
AS_IT_IS = frozenset(POLYNOMIAL.split() + WIRES.split())


class Straight(fx.Interpreter):
    """Runs the graph; whatever depends on a leaf goes by `LINES` or is a polynomial already.

    `one_hot` holds, once run, the leaf that each lookup of an input in an embedding became.
    """

    def __init__(
        self,
        exported: torch.export.ExportedProgram,
        generator: torch.Generator,
        one_row: bool = False,
    ) -> None:
        super().__init__(exported.graph_module, garbage_collect_values=False)
        self.exported = exported
        self.generator = generator
        self.one_row = one_row
        self.one_hot: list[Tensor] = []
        self.from_input: set[fx.Node] = set()

    def outputs(self, parameters: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> list[Tensor]:
        """The model's floating-point outputs."""
        given = iter(inputs)
        values: list[Any] = []
        users: set[str] = set()
        for spec in self.exported.graph_signature.input_specs:
            target = spec.target or ""
            if spec.kind == InputKind.USER_INPUT:
                values.append(next(given))
                users.add(spec.arg.name)
            elif spec.kind == InputKind.PARAMETER:
                values.append(parameters[target])
            else:
                state = self.exported.state_dict
                values.append(state[target] if target in state else self.exported.constants[target])
        self.from_input = {node for node in self.module.graph.nodes if node.name in users}  # type: ignore[union-attr]
        produced = self.run(*values)
        specs = self.exported.graph_signature.output_specs
        return [
            value
            for value, spec in zip(produced, specs, strict=True)
            if spec.kind == OutputKind.USER_OUTPUT
            and isinstance(value, Tensor)
            and value.is_floating_point()
        ]

    def run_node(self, n: fx.Node) -> Any:
        if n.target is torch.ops.aten.embedding.default and n.args[1] in self.from_input:
            (weight, ids, *_), _ = self.fetch_args_kwargs_from_env(n)
            return self.lookup(weight, ids)
        value = super().run_node(n)
        # whole numbers that come from the input: still the input, by whatever reshape
        whole = isinstance(value, Tensor) and not value.is_floating_point()
        if whole and any(source in self.from_input for source in n.all_input_nodes):
            self.from_input.add(n)
        return value

    def lookup(self, weight: Tensor, ids: Tensor) -> Tensor:
        """A product with a one-hot input: one row, drawn at random, or dense, so that every row
        has its use."""
        if self.one_row:
            rows = torch.randint(0, weight.shape[0], ids.shape, generator=self.generator)
            leaf = torch.rand((*ids.shape, 1), generator=self.generator, dtype=weight.dtype) + 0.5
            self.one_hot.append(leaf.requires_grad_())
            return leaf * weight[rows]
        shape = (*ids.shape, weight.shape[0])
        leaf = torch.rand(shape, generator=self.generator, dtype=weight.dtype) + 0.5
        self.one_hot.append(leaf.requires_grad_())
        return leaf @ weight

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(getattr(target, "overloadpacket", None), "__name__", "").removesuffix("_")
        touched = any(
            isinstance(a, Tensor) and a.requires_grad for a in tree_leaves((args, kwargs))
        )
        if not touched or name in AS_IT_IS or target.__module__ == "_operator":
            return level(super().call_function(target, args, kwargs))
        if name not in LINES:
            raise NotImplementedError(f"{target}: say in tests/oracle what it becomes")
        return level(LINES[name](*args, **kwargs))


def level(value: Any) -> Any:
    """The same, if it is very large or small over a constant power of two: a dozen layers of
    products of products leave the range of floats, and a constant changes no dependence."""
    if not (isinstance(value, Tensor) and value.requires_grad and value.numel()):
        return value
    size = value.detach().abs()
    never = size > 2.0**300  # what a mask adds to say so, and no number
    top = size.masked_fill_(never, 0).max()
    if top == 0 or 2**-20 < top < 2**20:
        return value
    even = value * 2.0 ** -float(torch.frexp(top).exponent)
    return torch.where(never, value.detach(), even) if bool(never.any()) else even
