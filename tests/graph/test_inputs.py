"""Whatever is passed in: the right answer, or an error that says what to do."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune as torch_prune

import trellis
from tests.oracle.autograd import live_by_autograd
from tests.zoo import ZOO
from trellis import audit, prune, trace
from trellis.errors import TrellisError


def dense(**options: Any) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5, **options), nn.ReLU(), nn.Linear(5, 3, **options))


# -- one sample, or all of it --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet18", "gcn", "gpt2", "several", "lstm_bf"])
def test_a_batch_is_cut_to_one_sample(name: str) -> None:
    if name == "lstm_bf":
        model: nn.Module = nn.LSTM(3, 4, batch_first=True).eval()
        inputs: tuple[Tensor, ...] = (torch.randn(1, 5, 3),)
        outputs = 5 * 4  # the last states, (layers, batch, units), have another first dimension
        assert audit(model, inputs).outputs == outputs + 4 + 4
        return
    model, inputs = ZOO[name]()
    one = audit(model, inputs)
    many = tuple(torch.cat([x, torch.randn_like(x) if x.is_floating_point() else x, x])
                 for x in inputs)  # fmt: skip
    assert audit(model, many).to_dict() == one.to_dict()


@pytest.mark.parametrize("name", ["gcn_conv_buffer", "gat_conv_buffer", "gcn_conv"])
def test_nodes_are_no_batch(name: str) -> None:
    model, inputs = ZOO[name]()
    assert audit(model, inputs).outputs == 5 * 3


class SequenceFirst(nn.Module):
    """x [time, batch, 4]: each step sees those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.cumsum(self.first(x), 0))


def test_a_sequence_is_no_batch_though_its_first_step_stands_alone() -> None:
    assert audit(SequenceFirst(), torch.randn(6, 1, 4)).outputs == 6 * 2
    assert audit(nn.LSTM(4, 3), torch.randn(6, 1, 4)).outputs == 6 * 3 + 3 + 3


def test_a_batch_that_shares_statistics_is_kept_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False))
    assert audit(model, torch.randn(5, 4)).outputs == 15


# -- what cannot be used -------------------------------------------------------------------------


class Meta(nn.Module):
    def __new__(cls) -> Any:
        with torch.device("meta"):
            return dense()


class HalfMeta(nn.Module):
    """The first layer has values, the second none yet."""

    def __new__(cls) -> Any:
        model = dense()
        model[2] = nn.Linear(5, 3, device="meta")
        return model


class Scalar(nn.Module):
    """Returns a number, not a tensor."""

    def forward(self, x: Tensor) -> int:
        return 3


class Constant(nn.Module):
    """Returns a buffer, whatever the input is."""

    value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("value", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.value * 2


NONSENSE: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "missing": (dense, None, "example_inputs is missing"),
    "mapping": (dense, {"x": torch.zeros(1, 4)}, r"forward\(input\)"),
    "wrong_shape": (dense, torch.zeros(1, 7), r"torch.export cannot trace .*float32 1x7"),
    "wrong_rank": (lambda: ZOO["lenet"]()[0], torch.zeros(28, 28, 1, 1, 1), "cannot trace"),
    "too_many": (dense, (torch.zeros(1, 4), torch.zeros(1, 4)), "too many positional"),
    "wrong_dtype": (lambda: ZOO["text_classifier"]()[0], torch.zeros(1, 7), "cannot trace"),
    "empty": (dense, torch.zeros(0, 4), "an example input is empty: .*float32 0x4"),
    "no_inputs": (dense, (), r"forward\(input\): missing"),
    "string": (dense, "zeros", r"expected a torch.Tensor, got 'zeros';"),
    "meta": (Meta, torch.zeros(1, 4), "meta device"),
    "half_meta": (HalfMeta, torch.zeros(1, 4), "'2.weight' .*is on the meta device"),
    "lazy": (lambda: nn.LazyLinear(3), torch.zeros(1, 4), "LazyLinear|lazy|uninitialized"),
    "no_module": (lambda: "model", torch.zeros(1, 4), "expected a torch.nn.Module.*'model'"),
    "function": (lambda: torch.relu, torch.zeros(1, 4), "expected a torch.nn.Module"),
    "class": (lambda: nn.Linear, torch.zeros(1, 4), "expected a torch.nn.Module"),
    "scalar": (Scalar, torch.zeros(1, 4), "returns nothing that depends"),
    "constant": (Constant, torch.zeros(1, 4), "returns nothing that depends"),
}


@pytest.mark.parametrize("verb", [audit, trace, lambda m, x: prune(m, x, sparsity=0.5)],
                         ids=["audit", "trace", "prune"])  # fmt: skip
@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_an_error_in_words(name: str, verb: Callable[..., Any]) -> None:
    build, inputs, words = NONSENSE[name]
    model = build()
    with pytest.raises(TrellisError, match=f"(?s){words}") as caught:
        verb(model, inputs)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700


def test_a_failing_trace_leaves_the_model_as_it_was() -> None:
    model = torch_prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.5)
    model.train()
    keys = list(model.state_dict())
    with pytest.raises(TrellisError):
        audit(model, torch.zeros(1, 9))
    assert model.training and list(model.state_dict()) == keys
    assert model(torch.ones(1, 4)).shape == (1, 3)


# -- what can be used, and is ---------------------------------------------------------------------


def expected() -> dict[str, Any]:
    torch.manual_seed(1)
    model = dense()
    with torch.no_grad():
        model.get_parameter("0.weight")[2:] = 0
    return audit(model, torch.zeros(1, 4)).to_dict()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_any_floating_type(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = dense()
    with torch.no_grad():
        model.get_parameter("0.weight")[2:] = 0
    model.to(dtype)
    assert audit(model, torch.zeros(1, 4)).to_dict() == expected()
    masks = prune(model, torch.zeros(1, 4), keep=6)
    assert masks.kept == 6 and audit(model, torch.zeros(1, 4)).live_fraction == 1.0
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model(torch.zeros(1, 4, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_weight_that_is_not_finite_is_an_error(bad: float) -> None:
    model = dense()
    with torch.no_grad():
        model.get_parameter("0.weight")[0, 1] = bad
    with pytest.raises(TrellisError, match=r"'0\.weight' holds 1 value that is not finite"):
        audit(model, torch.zeros(1, 4))


def test_a_model_in_training_mode_is_audited_as_in_eval_and_stays_in_training() -> None:
    model, inputs = ZOO["resnet18"]()
    calm = audit(model, inputs).to_dict()
    model.train()
    next(model.children()).eval()
    flags = [m.training for m in model.modules()]
    assert audit(model, inputs).to_dict() == calm
    assert [m.training for m in model.modules()] == flags
    prune(model, inputs, sparsity=0.9)
    assert model.training


def test_channels_last_weights_are_the_same_connections() -> None:
    plain, inputs = ZOO["lenet"]()
    moved, _ = ZOO["lenet"]()
    moved.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.no_grad():
        for model in (plain, moved):
            for parameter in model.parameters():
                parameter.mul_(parameter.abs() > 0.9 * parameter.abs().max())
    one, two = audit(plain, inputs), audit(moved, inputs)
    assert one.to_dict() == two.to_dict()
    assert all(torch.equal(one.live_masks[n], two.live_masks[n]) for n in one.live_masks)
    plain, _ = ZOO["lenet"]()
    moved, _ = ZOO["lenet"]()
    moved.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert prune(plain, inputs, sparsity=0.95) == prune(moved, inputs, sparsity=0.95)


def test_a_model_without_parameters_is_audited_and_not_pruned() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Flatten())
    assert audit(model, torch.zeros(1, 2, 2)).total == 0
    with pytest.raises(TrellisError, match="Sequential has no prunable weights"):
        prune(model, torch.zeros(1, 2, 2), sparsity=0.5)


class Disconnected(nn.Module):
    """The input is multiplied with zeros on its way."""

    gate: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)
        self.register_buffer("gate", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x) * self.gate)


def test_a_disconnected_model_is_audited_and_not_pruned() -> None:
    report = audit(Disconnected(), torch.zeros(1, 4))
    assert (report.kept, report.live, report.outputs_reached) == (18, 0, 0)
    with pytest.raises(TrellisError, match="disconnected"):
        prune(Disconnected(), torch.zeros(1, 4), sparsity=0.5)


class Unmoved(nn.Module):
    """One output reads the input, the other a parameter alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)
        self.free = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(x), self.free * 2


def test_an_output_that_no_input_moves_is_not_reached() -> None:
    report = audit(Unmoved(), torch.zeros(1, 4))
    assert (report.outputs, report.outputs_reached) == (5, 2)
    assert [layer.name for layer in report.layers] == ["head.weight"]
    model = Unmoved()
    masks = prune(model, torch.zeros(1, 4), keep=3)
    pruned = audit(model, torch.zeros(1, 4))
    assert masks.kept == pruned.kept == pruned.live == 3
    assert pruned.outputs_reached == 2


class LearnedBias(nn.Module):
    """What is added to the signal is computed from parameters alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.inner = nn.Linear(4, 2), nn.Linear(3, 2)
        self.code = nn.Parameter(torch.ones(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) + self.inner(self.code)


def test_paths_begin_at_inputs_and_not_at_parameters() -> None:
    report = audit(LearnedBias(), torch.zeros(1, 4))
    names = [n for n, _ in LearnedBias().named_parameters() if n in report.live_masks]
    alive = live_by_autograd(LearnedBias(), (torch.zeros(1, 4),), {}, names)
    assert all(torch.equal(report.live_masks[n], alive[n]) for n in names)
    assert report.live == 8


def test_frozen_parameters_are_pruned_and_stay_frozen() -> None:
    model = dense().requires_grad_(False)
    masks = prune(model, torch.zeros(1, 4), keep=6)
    assert masks.kept == 6
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("frozen", [False, True])
def test_attention_has_no_fast_path_here(frozen: bool) -> None:
    """In eval mode without gradients torch runs a fused kernel that hides the weights."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True).eval().requires_grad_(not frozen)
    x = (torch.randn(1, 3, 8),) * 3
    with torch.no_grad():
        report = audit(model, x)
    assert [layer.name for layer in report.layers] == ["in_proj_weight", "out_proj.weight"]
    assert report.live == report.total == 4 * 64
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    layer.requires_grad_(not frozen)
    with torch.no_grad():
        assert audit(layer, torch.randn(1, 3, 8)).live_fraction == 1.0


def test_a_model_pruned_by_torch_is_pruned_further() -> None:
    model, inputs = ZOO["mlp"]()
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    for layer in linear:
        torch_prune.l1_unstructured(layer, "weight", amount=0.5)
    before = {n: m.clone() for n, m in trellis.masks_of(model).items()}
    masks = prune(model, inputs, sparsity=0.9)
    assert masks.kept == masks.budget == 52
    assert all(bool((masks[n] <= before[n]).all()) for n in masks)
    assert audit(model, inputs).live_fraction == 1.0


def test_a_trace_reads_the_weights_as_they_are_now() -> None:
    model = dense()
    net = trace(model, torch.zeros(1, 4))
    assert audit(net).kept == 35
    with torch.no_grad():
        model.get_parameter("0.weight").zero_()
    assert audit(net).kept == 15 and audit(net).live == 0
    model[0] = nn.Linear(4, 6)
    with pytest.raises(TrellisError, match="trace the model again"):
        audit(net)


def test_inputs_of_another_type_follow_the_model() -> None:
    assert audit(dense().double(), torch.zeros(1, 4)).kept == 35
    assert audit(dense(), torch.zeros(1, 4, dtype=torch.float64)).kept == 35
