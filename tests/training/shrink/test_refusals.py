"""Bad input gets one clear error, and nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from trellis import TrellisError

from .tasks import batches, data, net, shrunk

x, y = data()


def once() -> Iterator[tuple[Tensor, Tensor]]:
    yield from batches()


def late(target: int) -> list[tuple[Tensor, Tensor]]:
    """Batches whose last one has a target out of range."""
    found = batches(8)
    found[-1] = (found[-1][0], torch.full((8,), target))
    return found


NAN = [(a * float("nan"), b) for a, b in batches()]
CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "nothing": ([], {}, "yields nothing"),
    "once": (once(), {}, "only once"),
    "a map": (map(tuple, batches()), {}, "only once"),
    "a tensor": (x, {}, "iterable of batches"),
    "a number": (7, {}, "iterable of batches"),
    "no targets": ([x], {}, "without targets"),
    "other features": ([(x[:, :5], y)], {}, "does not accept"),
    "other targets": ([(x, y.float().view(-1, 1, 1))], {}, "do not fit"),
    "strings": ([(x, ["a"] * 96)], {}, "tensor"),
    "not finite": (NAN, {}, "loss of the first batches is nan"),
    "target too large": (late(2), {}, "targets from 0 to 1"),
    "target too small": (late(-3), {}, "targets from 0 to 1"),
    "in a data set": (
        DataLoader(TensorDataset(x, torch.cat([y[:-1], torch.tensor([5])])), 4), {}, "got 5"
    ),
    "a loss of many": (batches(), {"loss": nn.CrossEntropyLoss(reduction="none")}, "one number"),
    "a loss that fails": (batches(), {"loss": nn.MSELoss()}, "cannot be computed"),
    "an unknown option": (batches(), {"sparcity": 0.9}, "did you mean 'sparsity'"),
    "a rate": (batches(), {"lr": 0.1}, "give optimizer="),
    "an unknown saliency": (batches(), {"saliency": "tailor"}, "known: magnitude, .*taylor"),
    "a saliency of a trained model": (batches(), {"saliency": "wanda"}, "trellis.saliency"),
    "NaN in validation": (batches(), {"validation": NAN}, "validation holds NaN"),
    "a score of NaN": (
        batches(), {"validation": batches(), "score": lambda m, v: float("nan")}, "is NaN"
    ),
    "another model's optimizer": (
        batches(), {"optimizer": lambda _: torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)},
        "no parameter of the model",
    ),
    "a scheduler by name": (batches(), {"scheduler": "cosine"}, "expected scheduler"),
    "a class of losses": (batches(), {"loss": nn.CrossEntropyLoss}, "write CrossEntropyLoss"),
    "arrays": ([(x.numpy(), y)], {}, "torch.from_numpy"),
    "seconds in words": (batches(), {"checkpoint_every": "x"}, "checkpoint_every"),
    "trained in words": (batches(), {"trained": "yes"}, "expected trained"),
    "no gradient": (batches(), {"loss": lambda a, b: a.detach().mean()}, "no gradient"),
    "tiny": (batches(), {"keep": 3}, "keep"),
    "too much": (batches(), {"keep": 10**9}, "keep"),
    "both": (batches(), {"keep": 9, "sparsity": 0.9}, "give one of"),
    "no validation": (batches(), {"at_least": 0.9}, "validation"),
    "empty validation": (batches(), {"validation": []}, "validation yields nothing"),
    "validation without targets": (
        batches(), {"validation": [(x,)]}, "of validation .inputs, targets., got one without"
    ),
    "validation of other features": (
        batches(), {"validation": [(x[:, :5], y)]}, "score on validation cannot be computed"
    ),
    "an accuracy in per cent": (
        batches(), {"at_least": 90, "validation": batches()}, "accuracy, at most 1, got 90"
    ),
    "epochs": (batches(), {"epochs": -1, "steps": None}, "epochs"),
    "epochs and steps": (batches(), {"epochs": 1, "steps": 3}, "epochs or steps"),
    "split": (batches(), {"split": (1.0, 0.0, 0.0)}, "split"),
    "curve": (batches(), {"curve": "square"}, "curve"),
    "method": (batches(), {"method": "best"}, "best"),
    "device": (batches(), {"device": "nowhere"}, "device"),
    "precision": (batches(), {"precision": "fp8"}, "precision"),
    "half": (batches(), {"precision": "fp16"}, "GPU"),
    "optimizer": (batches(), {"optimizer": "adam"}, "optimizer"),
    "no optimizer": (batches(), {"optimizer": lambda groups: groups}, "Optimizer"),
    "clip": (batches(), {"clip": 0}, "clip"),
    "other bits": (batches(), {"quantize": "int4"}, "unknown quantize='int4'; known: 'int8'"),
    "bits": (batches(), {"quantize": 8}, "known: 'int8'"),
    "no fine-tuning": (batches(), {"quantize": "int8", "split": (0.5, 0.5, 0)}, "fine-tuning"),
    "no fine-tuning in a search": (
        batches(),
        {"quantize": "int8", "split": (0.5, 0.5, 0), "at_least": 0.5, "validation": batches()},
        "fine-tuning",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_input_changes_nothing(case: str, tmp_path: Path) -> None:
    loader, options, told = CASES[case]
    model = net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(TrellisError, match=told):
        shrunk(model, loader, out=tmp_path / "run", **options)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert model.training
    assert not list(tmp_path.glob("run/*"))


def test_a_model_without_values_is_an_error() -> None:
    with pytest.raises(TrellisError, match="on the meta device"):
        shrunk(net().to("meta"))


def test_a_training_that_diverges_is_an_error() -> None:
    def wild(groups: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, lr=1e30)

    with pytest.raises(TrellisError, match="diverged"):
        shrunk(net(), optimizer=wild, loss=nn.CrossEntropyLoss())


def test_a_loader_that_does_not_begin_again_is_an_error() -> None:
    class Worn:
        left = 3

        def __len__(self) -> int:
            return 6

        def __iter__(self) -> Iterator[Any]:
            self.left -= 1
            return iter(batches() if self.left >= 0 else ())

    with pytest.raises(TrellisError, match="begins again"):
        shrunk(net(), Worn())
