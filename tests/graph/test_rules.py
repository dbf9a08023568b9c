"""Each rule leads from the units that the operation itself depends on, and from no others."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import trellis
from trellis.errors import TrellisError
from trellis.graph.builder import Builder
from trellis.graph.export import RULES
from trellis.graph.rules.elementwise import NOT_ZERO_AT_ZERO, ZERO_AT_ZERO
from trellis.graph.steps import Bias, Signal

from .dependency import Op, as_module, backwards, by_derivatives, forwards, traced
from .operations import EXTREMES, OPERATIONS


def check(name: str, draws: int) -> None:
    function, shapes = (OPERATIONS | EXTREMES)[name]
    model = as_module(function)
    net = traced(model, shapes)
    expected = by_derivatives(model, shapes, draws)
    found = backwards(net)
    assert found.shape == expected.shape
    assert torch.equal(found, expected), torch.nonzero(found != expected)[:8].tolist()
    if not net.gated:
        assert torch.equal(forwards(net), expected)


@pytest.mark.parametrize("name", OPERATIONS)
def test_leads_where_the_derivative_is_not_zero(name: str) -> None:
    check(name, draws=1)


@pytest.mark.parametrize("name", EXTREMES)
def test_leads_wherever_the_winner_may_be(name: str) -> None:
    check(name, draws=300)


def test_a_causal_flag_is_a_mask_below_the_diagonal() -> None:
    shapes = [(1, 3, 2)] * 3
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    flag = traced(
        Op(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), shapes
    )
    given = traced(Op(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask)), shapes)
    far_down = traced(
        Op(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, (~mask).double() * -1e9)), shapes
    )
    assert torch.equal(backwards(flag), backwards(given))
    assert torch.equal(backwards(flag), backwards(far_down))
    values = backwards(flag)[:, 12:].reshape(3, 2, 3, 2).any(3).any(1)
    assert torch.equal(values, mask)


def test_what_an_index_does_not_cover_is_not_read() -> None:
    """torch itself has no derivative for a source larger than its index."""
    index, shapes = torch.tensor([[2, 0, 2]]), [(1, 5), (1, 4)]
    larger = traced(Op(lambda x, y: x.scatter_add(1, index, y)), shapes)
    cut = traced(Op(lambda x, y: x.scatter_add(1, index, y[:, :3])), shapes)
    assert torch.equal(backwards(larger), backwards(cut))


def test_every_token_of_a_table_leads_to_every_channel() -> None:
    model = nn.Embedding(5, 3)
    report = trellis.audit(model, torch.tensor([[1, 2]]))
    assert (report.live, report.outputs, report.outputs_reached) == (15, 6, 6)


def at_zero(name: str) -> Tensor | None:
    """The value at zero of the function that goes by this name, if it is one of a single number."""
    function = getattr(torch, name, None) or getattr(F, name, None) or getattr(Tensor, name, None)
    try:
        value = function(torch.zeros(1, 2)) if function is not None else None
    except (TypeError, NotImplementedError):
        return None
    return value if value is not None and value.is_floating_point() else None


UNARY = [name.removeprefix("aten::") for name in ZERO_AT_ZERO + NOT_ZERO_AT_ZERO]


@pytest.mark.parametrize("name", [name for name in UNARY if at_zero(name) is not None])
def test_zero_stays_zero_exactly_where_the_rule_says(name: str) -> None:
    build = Builder()
    out: Any = RULES[f"aten::{name}"](build, build.input((1, 2)))
    constant = any(isinstance(step, Bias) for step in build.steps)
    assert isinstance(out, Signal)
    value = at_zero(name)
    assert value is not None
    assert constant == bool((value != 0).any())


@pytest.mark.parametrize(
    ("bounds", "constant"),
    [((-1.0, 1.0), False), ((0.0, None), False), ((0.5, None), True), ((None, -0.5), True),
     ((None, 0.0), False), ((0.5, 1.0), True)],
)  # fmt: skip
def test_a_clamp_is_a_constant_where_its_bounds_exclude_zero(
    bounds: tuple[float | None, float | None], constant: bool
) -> None:
    build = Builder()
    RULES["aten::clamp"](build, build.input((1, 2)), *bounds)
    assert any(isinstance(step, Bias) for step in build.steps) is constant
    assert bool((torch.zeros(2).clamp(*bounds) != 0).any()) is constant


# -- what has no rule ----------------------------------------------------------------------------


@torch.library.custom_op("trellis_tests::swap", mutates_args=())
def swap(x: Tensor) -> Tensor:
    """The halves of the last dimension, exchanged."""
    return x.roll(x.shape[-1] // 2, -1).clone()


@swap.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Swap(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return swap(x)  # the line that the error names


LINE = next(
    number
    for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)
    if line.endswith("# the line that the error names")
)


def swapping() -> nn.Module:
    """Two inputs, swapped, and a head that reads the first place only."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Sequential(Swap()), nn.Linear(2, 1))
    with torch.no_grad():
        model.get_parameter("2.weight")[0, 1] = 0
    return model


@pytest.fixture
def swap_rule() -> Iterator[None]:
    @trellis.rule(torch.ops.trellis_tests.swap)
    def rule(build: Builder, x: Signal) -> Signal:
        return build.gather(x, -1, torch.arange(x.shape[-1]).roll(x.shape[-1] // 2))

    yield
    del RULES["trellis_tests::swap"]


def test_an_unknown_operation_is_named_with_its_module_and_line() -> None:
    with pytest.raises(TrellisError) as caught:
        trellis.audit(swapping(), torch.zeros(1, 2))
    message = str(caught.value)
    assert "no rule for operation 'trellis_tests.swap" in message
    assert "in module '1.0' (Swap)" in message
    assert f'File "{__file__}", line {LINE}' in message
    assert "@trellis.rule(torch.ops.trellis_tests.swap)" in message


@pytest.mark.usefixtures("swap_rule")
def test_a_rule_teaches_it() -> None:
    report = trellis.audit(swapping(), torch.zeros(1, 2))
    assert report.live_masks["0.weight"].tolist() == [[False, False], [True, True]]


def test_a_rule_that_fails_is_named() -> None:
    @trellis.rule(torch.ops.trellis_tests.swap)
    def rule(build: Builder, x: Signal) -> Signal:
        raise KeyError("oh")

    try:
        with pytest.raises(TrellisError, match=r"the rule for 'trellis_tests.swap.*KeyError: 'oh'"):
            trellis.audit(swapping(), torch.zeros(1, 2))
    finally:
        del RULES["trellis_tests::swap"]


def test_a_rule_for_something_else_is_refused() -> None:
    with pytest.raises(TrellisError, match="expected an operation, got 3"):
        trellis.rule(3)(lambda build, x: x)


def decided(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


class Loop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(int(x.sum())):
            x = x + 1
        return x


class Outside(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.from_numpy(x.detach().numpy())


def inside(part: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), part))


def first(function: Any) -> str:
    """The first line of a function's body, as a traceback has it."""
    code = function.__code__
    return f'File "{code.co_filename}", line {code.co_firstlineno + 1}, in {code.co_name}'


IN_TORCH = f'File "{torch.nn.modules.rnn.__file__}", line '  # a model that is nobody's but torch's

# What is traced, the shapes it is given, words of the error, the module it names, and the line.
NOT_TRACED: dict[str, tuple[Any, list[tuple[int, ...]], str, str, str]] = {
    "prod": (lambda x: x.prod(-1), [(1, 3)], "'aten.prod", "the model (Op)", first(Op.forward)),
    "cdist": (
        torch.cdist, [(1, 2, 3), (1, 2, 3)], "cdist", "the model (Op)", first(Op.forward)),
    "diagonal": (
        lambda x: torch.einsum("bii->bi", x), [(1, 3, 3)],
        "'aten.einsum.default'.* label repeated", "the model (Op)", first(Op.forward)),
    "dynamic_kernel": (
        F.conv1d, [(1, 1, 4), (1, 1, 2)],
        "'aten.conv1d.default'.* its kernel a parameter", "the model (Op)", first(Op.forward)),
    "projected": (
        nn.LSTM(2, 3, proj_size=2), [(3, 1, 2)],
        "'aten.lstm.input'.*proj_size", "the model (LSTM)", IN_TORCH),
    "places_from_activations": (
        lambda x: x.gather(1, x.argmax(1, keepdim=True)), [(1, 3)],
        "'aten.gather.default'.* computed from activations", "the model (Op)", first(Op.forward)),
    "chosen_by_activations": (
        inside(Op(lambda x: x[x > 0])), [(1, 3)],
        "'aten.index.Tensor'.* computed from activations", "module '1.1' (Op)", first(Op.forward)),
    "decision": (
        decided, [(1, 3)],
        "torch.export cannot trace Op .*: Could not guard .* use torch.where",
        "the model (Op)", first(decided)),
    "loop": (
        inside(Loop()), [(1, 3)],
        "torch.export cannot trace Sequential .* use torch.where",
        "module '1.1' (Loop)", first(Loop.forward)),
    "outside_torch": (
        inside(Outside()), [(1, 3)],
        r"torch.export cannot trace Sequential .*numpy\(\)",
        "module '1.1' (Outside)", first(Outside.forward)),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_TRACED)
def test_what_is_not_traced_is_said_with_its_module_and_line(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    function, shapes, words, module, line = NOT_TRACED[name]
    with pytest.raises(TrellisError, match=words) as caught:
        traced(as_module(function), shapes)
    message = str(caught.value)
    assert f" in {module}, {line}" in message
    assert "\n" not in message and len(message) < 700
    assert capfd.readouterr() == ("", "")  # torch, left alone, prints the graph it has so far


class Talks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        print("hello", file=sys.stderr)
        return decided(x)


def test_what_the_model_prints_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TrellisError):
        trellis.trace(Talks(), torch.ones(1, 3))
    assert capsys.readouterr().err == "hello\n"
