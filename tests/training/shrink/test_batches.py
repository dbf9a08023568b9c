"""Batches of every kind, losses, scores and options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import trellis
from trellis import TrellisError
from trellis.masks import Mask

from .tasks import batches, data, net, same, shrunk


def live(found: trellis.Shrunk, share: float = 0.1) -> None:
    """The budget is exact, every weight is live, and every layer keeps some."""
    assert found.masks.kept == found.masks.budget == int(found.masks.total * share)
    assert found.audit.kept == found.audit.live == found.masks.kept
    assert found.audit.outputs_reached == found.audit.outputs
    assert all(layer.live for layer in found.audit.layers)
    assert found.history[-1]["kept"] == found.masks.kept
    rows = found.history
    assert [r["step"] for r in rows] == sorted({r["step"] for r in rows})
    assert [*dict.fromkeys(r["phase"] for r in rows)] in (
        ["dense", "prune", "tune"], ["prune", "tune"]
    )  # fmt: skip


class Two(nn.Module):
    """Takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.last = nn.Linear(4, 12), nn.Linear(4, 12), nn.Linear(12, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        found: Tensor = self.last((self.one(left) + self.other(right)).relu())
        return found


class WithLoss(Two):
    """Returns its own loss, as models of Hugging Face do."""

    def forward(self, left: Tensor, right: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(left, right)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits} if loss is not None else {"logits": logits}


def whole(model: nn.Module, batch: Any) -> Tensor:
    return (model(batch) - batch[:, :2]).square().mean()


def hinge(output: Tensor, target: Tensor) -> Tensor:
    return F.multi_margin_loss(output, target)


def mean_error(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).abs().mean()


x, y = data()
PARTS = [(a[:, :4], a[:, 4:], b) for a, b in batches()]
CASES: dict[str, Any] = {
    "tuples": (net, batches(), {}),
    "loader": (net, DataLoader(TensorDataset(x, y), 16, shuffle=True), {}),
    "nested": (Two, [((a, b), c) for a, b, c in PARTS], {}),
    "flat": (Two, PARTS, {}),
    "inner dict": (Two, [({"left": a, "right": b}, c) for a, b, c in PARTS], {}),
    "dict": (Two, [{"left": a, "right": b, "labels": c} for a, b, c in PARTS], {}),
    "own loss": (WithLoss, [{"left": a, "right": b, "labels": c} for a, b, c in PARTS], {}),
    "tensors": (net, [a for a, _ in batches()], {"loss": whole}),
    "hinge": (net, batches(), {"loss": hinge}),
    "module": (net, batches(), {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}),
    "values": (net, [(a, a[:, :2]) for a, _ in batches()], {}),
    "mean error": (net, [(a, a[:, :2]) for a, _ in batches()], {"loss": mean_error}),
    "bf16": (net, batches(), {"precision": "bf16", "clip": 1.0}),
    "trained": (net, batches(), {"trained": True}),
    "random": (net, batches(), {"method": "random"}),
}


@pytest.mark.parametrize("case", CASES)
def test_batches_and_losses_of_every_kind(case: str) -> None:
    make, loader, options = CASES[case]
    torch.manual_seed(0)
    model = make()
    found = shrunk(model, loader, validation=loader, **options)
    assert found.model is model
    live(found)
    assert found.score is not None
    if case in ("values", "mean error", "tensors"):
        assert found.score < 0  # the negative loss
    else:
        assert 0 <= found.score <= 1


def test_the_score_is_the_accuracy() -> None:
    model = net()
    found = shrunk(model, validation=batches(), steps=60)
    model.eval()
    with torch.no_grad():
        right = sum(int((model(a).argmax(1) == b).sum()) for a, b in batches())
    assert found.score == right / 96
    assert shrunk(net(), score=lambda model, _: 0.25).score is None  # nothing to measure on
    scored = shrunk(net(), validation=[], score=lambda model, _: 0.25)
    assert scored.score == 0.25


class Tokens(nn.Module):
    """Logits for every position, classes last."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(7, 12), nn.Linear(12, 7)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.last(self.embedding(tokens).relu())
        return found


def test_tokens_with_ignored_targets() -> None:
    tokens = torch.arange(60).reshape(10, 6) % 7
    targets = (tokens + 1) % 7
    targets[:, 0] = -100
    torch.manual_seed(0)
    found = shrunk(
        Tokens(), [(tokens, targets)], sparsity=0.5, steps=90, validation=[(tokens, targets)]
    )
    assert found.score is not None and found.score > 0.5
    assert found.audit.live_fraction == 1


def test_a_loss_of_the_model_is_used_as_it_is() -> None:
    """The model's own loss and the same loss as a function train the same network."""
    told = [{"left": a, "right": b, "labels": c} for a, b, c in PARTS]
    torch.manual_seed(0)
    one = WithLoss()
    torch.manual_seed(0)
    other = WithLoss()
    shrunk(one, told, distill=0.5)
    shrunk(other, told, loss=lambda model, batch: model(**batch)["loss"], distill=0.0)
    shrunk(third := _again(), told, distill=0.0)
    same(other, third)
    assert not torch.equal(one.last.weight, other.last.weight)  # distilled


def _again() -> nn.Module:
    torch.manual_seed(0)
    return WithLoss()


def test_inputs_to_trace_with_may_be_given() -> None:
    """A function of model and batch may take batches of any form."""

    def loss(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch["data"][0]), batch["data"][1])

    told = [{"data": each} for each in batches()]
    found = shrunk(net(), told, loss=loss, example_inputs=torch.zeros(1, 8), validation=told)
    live(found)


def test_nothing_but_the_model_is_changed() -> None:
    torch.manual_seed(4)
    before = torch.get_rng_state()
    shrunk(net_without_seed := _seeded(), batches())
    assert torch.equal(torch.get_rng_state(), before)
    assert any(isinstance(module, Mask) for module in net_without_seed.modules())
    assert all(p.requires_grad for p in net_without_seed.parameters())


def _seeded() -> nn.Module:
    with torch.random.fork_rng():
        return net()


def test_validation_does_not_change_the_training() -> None:
    one, other = net(), net()
    loader = DataLoader(TensorDataset(x, y), 16, shuffle=True)
    shrunk(one, validation=loader)
    shrunk(other)
    same(one, other)


def test_search_finds_the_smallest_that_holds() -> None:
    def at_most(model: nn.Module, _: Any) -> float:
        kept = sum(int(m.mask.sum()) for m in model.modules() if isinstance(m, Mask))
        return 1.0 if kept == 0 or kept >= 100 else 0.5

    model = net()
    found = shrunk(model, steps=12, at_least=0.9, validation=[], score=at_most)
    assert found.met and found.score == 1.0
    assert (
        found.masks.kept
        == found.masks.budget
        == min(p.budget for p in found.search if p.score == 1.0)
    )
    assert any(p.score == 0.5 for p in found.search)
    assert found.audit.live == found.masks.kept
    assert trellis.masks_of(model) == found.masks
    missed = shrunk(net(), steps=12, at_least=2.0, validation=[], score=at_most)
    assert missed.met is False and missed.score == 1.0
    assert "no network that was tried holds at_least" in repr(missed)
    assert "at_least" not in repr(found)


def test_batch_norm_is_estimated_after_pruning() -> None:
    """Right after pruning, running statistics are those of the pruned network."""
    model = net()
    shrunk(model, batches(), sparsity=0.9, steps=30, split=(0.3, 0.7, 0.0), updates=1)
    norm = model.get_submodule("norm")
    first = model.get_submodule("first")
    assert isinstance(norm, nn.BatchNorm1d)
    with torch.no_grad():
        told = torch.stack([first(a).mean(0) for a, _ in batches()]).mean(0)
    assert torch.allclose(norm.running_mean, told, atol=1e-5)  # type: ignore[arg-type]


def test_a_trained_model_is_found_out() -> None:
    model = net()
    adam = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        for a, b in batches():
            adam.zero_grad()
            F.cross_entropy(model(a), b).backward()
            adam.step()
    found = shrunk(model, batches(), validation=batches())
    assert "dense" not in {row["phase"] for row in found.history}
    assert found.dense_score is not None and found.dense_score > 0.9
    assert "dense" in {row["phase"] for row in shrunk(net(), batches()).history}


def test_compiled_and_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled by a backend that runs the graph as it is, training gives the same network."""
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: usual(model, backend="eager"))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))
    images = [(torch.randn(8, 3, 4, 4), torch.arange(8) % 2)] * 2
    found = shrunk(model, images, compile=True, channels_last=True, sparsity=0.5, steps=6)
    assert found.audit.live_fraction == 1


def test_frozen_weights_are_neither_pruned_nor_counted() -> None:
    model = net()
    second: Any = model.get_submodule("second")
    second.weight.requires_grad_(False)
    before = second.weight.clone()
    found = shrunk(model)
    assert torch.equal(second.weight, before)
    assert "second.weight" not in found.masks
    assert found.audit.live_fraction == 1.0
    assert found.audit.total == found.masks.total == 24 * 8 + 2 * 16


def test_the_audit_leaves_out_what_is_ignored() -> None:
    found = shrunk(net(), ignore="second.*")
    assert found.audit.live_fraction == 1.0
    assert found.audit.kept == found.masks.kept


def test_masks_that_keep_less_than_is_asked_for_raise() -> None:
    model = net()
    with torch.no_grad():
        model.get_parameter("last.weight").fill_(0.1)
    trellis.prune(model, data()[0][:1], keep=60)
    with pytest.raises(TrellisError, match="masks that leave 60 live"):
        shrunk(model, keep=90)
    assert shrunk(model, keep=40).masks.kept == 40


def test_a_loss_of_model_and_batch_is_scored_by_accuracy() -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    found = shrunk(net(), loss=loss, validation=batches())
    right = (found.model.eval()(data()[0]).argmax(1) == data()[1]).double().mean()
    assert found.score == pytest.approx(float(right))


@pytest.mark.parametrize("training", [True, False])
def test_the_model_stays_in_its_mode(training: bool, tmp_path: Path) -> None:
    for _ in range(2):  # made, and read
        assert shrunk(net().train(training), out=tmp_path / "run").model.training is training


def test_an_edited_loss_is_another_run(tmp_path: Path) -> None:
    def losses(smoothing: float) -> Any:
        if smoothing:
            return lambda a, b: nn.functional.cross_entropy(a, b, label_smoothing=0.1)
        return lambda a, b: nn.functional.cross_entropy(a, b)

    shrunk(net(), loss=losses(0), out=tmp_path / "run")
    with pytest.raises(TrellisError, match="code"):
        shrunk(net(), loss=losses(0.1), out=tmp_path / "run")


def test_a_strangers_model_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    trellis.save(trellis.skeleton.GCN(nodes=2, channels=3, classes=2), tmp_path / "run" / "model")
    with pytest.raises(TrellisError, match="no run here has written"):
        shrunk(net(), out=tmp_path / "run")
