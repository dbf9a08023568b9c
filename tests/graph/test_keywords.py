"""Keyword inputs: the same network as by position, in every function that takes example inputs."""

from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import trellis
from trellis import Inputs, TrellisError

IDS = torch.tensor([[3, 1, 4, 1, 5]])
SEEN = torch.ones_like(IDS)
NAMED = {"attention_mask": SEEN, "input_ids": IDS}  # not in the order of forward()


def bert() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=12, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=8,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).eval()


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=12, n_embd=8, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


class TwoInputs(nn.Module):
    """x and y [batch, 3] -> [batch, 2]; scale [batch, 2] by keyword only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 4), nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, y: Tensor, *, scale: Tensor | None = None) -> Tensor:
        found = self.head(torch.relu(self.first(x)) + self.second(y))
        return found if scale is None else found * scale


PLACED = {bert: (IDS, SEEN), gpt2: (IDS, None, SEEN)}


@pytest.mark.parametrize("make", PLACED)
def test_a_dictionary_is_the_tuple(make: Any) -> None:
    by_name, by_place = trellis.audit(make(), NAMED), trellis.audit(make(), PLACED[make])
    assert by_name.to_dict() == by_place.to_dict()
    one = trellis.prune(make(), NAMED, sparsity=0.5)
    assert one == trellis.prune(make(), PLACED[make], sparsity=0.5)
    assert one == trellis.prune(make(), UserDict(NAMED), sparsity=0.5)
    assert one == trellis.prune(make(), Inputs(IDS, attention_mask=SEEN), sparsity=0.5)
    shape = {"dtype": "int64", "shape": [1, 5]}
    named = [shape | {"name": "input_ids"}, shape | {"name": "attention_mask"}]
    assert one.provenance["inputs"] == named


def test_a_decoder_is_traced_without_its_cache() -> None:
    model: Any = gpt2()
    config = model.config
    assert config.use_cache is True
    assert trellis.audit(model, {"input_ids": IDS}).outputs == 5 * 12
    assert model.config is config and config.use_cache is True
    assert model(IDS).past_key_values is not None


@pytest.mark.parametrize("make", PLACED)
def test_a_compacted_model_is_called_by_keyword(make: Any, tmp_path: Path) -> None:
    model = make()
    trellis.prune(model, NAMED, sparsity=0.6)
    small = trellis.compact(model, NAMED)
    expected = model(**NAMED).logits
    assert torch.allclose(small(**NAMED)["logits"], expected, atol=1e-5)
    assert torch.allclose(small(IDS, SEEN)["logits"], expected, atol=1e-5)
    trellis.save(small, tmp_path)
    loaded: Any = trellis.load(tmp_path)
    assert torch.equal(loaded(**NAMED)["logits"], small(**NAMED)["logits"])
    with pytest.raises(TrellisError, match=r"'mask'; .* input_ids, attention_mask"):
        small(input_ids=IDS, mask=SEEN)
    assert trellis.audit(small, NAMED).live == trellis.audit(small, (IDS, SEEN)).live
    net = trellis.trace(model, NAMED)  # knows its own inputs
    assert trellis.compact(net).report.after == small.report.after


def test_onnx_takes_keywords(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    written = trellis.export_onnx(bert(), NAMED, tmp_path / "model.onnx")
    assert written.batched and written.difference < 1e-5
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(written.path.read_bytes())
    assert [each.name for each in session.get_inputs()] == ["input_ids", "attention_mask"]


def test_tables_take_keywords_in_the_order_of_forward(tmp_path: Path) -> None:
    model = TwoInputs()
    x, y = torch.randn(1, 3), torch.randn(1, 3)
    trellis.export_c(model, {"y": y, "x": x}, tmp_path)
    runtime = trellis.Runtime(next(tmp_path.glob("*.trellis")))
    found = runtime.predict(x.numpy(), y.numpy())
    np.testing.assert_allclose(np.ravel(found), model(x, y).detach().ravel(), atol=1e-5)


def test_a_batch_of_keywords_is_cut_to_one_sample() -> None:
    x, y, scale = torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 2)
    one = trellis.audit(TwoInputs(), Inputs(x[:1], y=y[:1], scale=scale[:1]))
    assert trellis.audit(TwoInputs(), Inputs(x, y=y, scale=scale)).to_dict() == one.to_dict()
    assert one.outputs == 2
    named = {"y": y, "x": x, "scale": None}  # what is missing has no batch
    assert trellis.audit(TwoInputs(), named).outputs == 2


class Gated(nn.Module):
    """Token by token: one row of the embedding must reach both sides of the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(3, 4)
        self.left, self.right = nn.Linear(4, 2, bias=False), nn.Linear(4, 2, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.rows(tokens)
        return self.left(x) * self.right(x)


def test_tokens_are_tried_by_keyword_as_by_position() -> None:
    torch.manual_seed(0)
    model = Gated()
    with torch.no_grad():
        model.rows.weight.copy_(torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
        model.left.weight[:, 2:] = 0
        model.right.weight[:, 1] = 0
    tokens = torch.zeros(1, 1, dtype=torch.int64)
    by_name, by_place = trellis.audit(model, {"tokens": tokens}), trellis.audit(model, tokens)
    assert by_name.to_dict() == by_place.to_dict()
    assert 0 < by_name.live < by_name.kept


def test_a_pruner_takes_keywords() -> None:
    inputs = {"y": torch.zeros(1, 3), "x": torch.zeros(1, 3)}
    model = TwoInputs()
    schedule = trellis.Schedule("linear", begin=0, end=2)
    pruner = trellis.Pruner(model, inputs, sparsity=0.5, schedule=schedule)
    for _ in range(3):
        pruner.step()
    assert trellis.audit(model, inputs).kept == 16


# -- inputs that do not fit ----------------------------------------------------------------------

X = torch.zeros(1, 3)
WRONG: dict[str, tuple[Any, str]] = {
    "keys": ({"a": X, "y": X}, r"forward\(x, y, scale\)"),
    "key_type": ({3: X}, "got the key 3"),
    "too_many": ((X, X, X), r"forward\(x, y, scale\): too many positional"),
    "twice": (Inputs(X, X, x=X), r"forward\(x, y, scale\): multiple values"),
    "numpy": (np.zeros((1, 3)), r"numpy.ndarray of shape \(1, 3\); use torch.from_numpy"),
    "numpy_inside": ((X, np.zeros((1, 3))), r"numpy.ndarray of shape \(1, 3\)"),
    "shape": ((1, 3), r"pass torch.zeros\(1, 3\)"),
    "torch_size": (X.shape, r"pass torch.zeros\(1, 3\)"),
    "module": (nn.Linear(3, 2), "got the module Linear; pass the model first"),
    "loader": (
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X)),
        "DataLoader; pass the inputs of one batch",
    ),
    "meta": ((X.to("meta"), X), "meta device .* give one on cpu"),
    "text": (("x", "y"), r"expected a torch.Tensor, got 'x', 'y'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_inputs_that_do_not_fit_are_an_error_in_words(name: str) -> None:
    inputs, words = WRONG[name]
    for verb in (trellis.trace, trellis.compact, lambda m, x: trellis.export_c(m, x, "no")):
        with pytest.raises(TrellisError, match=words) as caught:
            verb(TwoInputs(), inputs)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("make", PLACED)
def test_a_mask_that_hides_every_position_is_an_error(make: Any) -> None:
    hidden = torch.zeros_like(SEEN)
    for inputs in (NAMED | {"attention_mask": hidden}, (*PLACED[make][:-1], hidden)):
        with pytest.raises(TrellisError, match=r"attention_mask hides .* torch.ones\(1, 5"):
            trellis.trace(make(), inputs)
    part = SEEN.clone()
    part[:, 3:] = 0
    assert trellis.audit(make(), NAMED | {"attention_mask": part}).live


def test_a_padding_mask_of_torch_that_hides_every_position_is_an_error() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    x = torch.zeros(1, 3, 4)
    hidden = torch.ones(1, 3, dtype=torch.bool)
    with pytest.raises(TrellisError, match="src_key_padding_mask hides"):
        trellis.trace(layer, {"src": x, "src_key_padding_mask": hidden})
    assert trellis.trace(layer, {"src": x, "src_key_padding_mask": ~hidden}).total


class Open(nn.Module):
    """Takes any keyword, and ignores it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x: Tensor, **rest: Any) -> Tensor:
        return self.fc(x)


def test_an_input_that_the_model_ignores_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"ignores the input 'y': .* forward\(x, \*\*rest\)"):
        assert trellis.audit(Open(), {"x": X, "y": torch.zeros(2)}).total == 6
