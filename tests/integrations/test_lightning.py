"""The callback in Lightning: killed and resumed, averaged, in mixed precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from trellis.errors import TrellisError

pl: Any = pytest.importorskip("pytorch_lightning")
from tests.integrations.classifier import QUIET, Classifier, data, fit  # noqa: E402
from trellis.integrations.lightning import PruningCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def same(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().items(), b.state_dict().items(), strict=True)
    return all(x == y and torch.equal(t, u) for (x, t), (y, u) in pairs)


@pytest.mark.parametrize("regrow", [0.0, 0.3])
def test_resumed_in_the_middle_it_ends_with_the_same_bits(regrow: float, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "accumulate_grad_batches": 2,
        "max_epochs": 4,
        "precision": "bf16-mixed",
    }
    model, callback, trainer = fit(
        tmp_path / "whole", PruningCallback(0.9, regrow=regrow), **options
    )
    assert callback.pruner.steps == trainer.global_step == 32  # 16 batches an epoch, two a step
    assert callback.pruner.plan.schedule == trellis.Schedule("cubic", begin=3, end=22)
    assert callback.pruner.kept == 128 and callback.pruner.masks == trellis.masks_of(model)
    logged = trainer.logged_metrics
    assert logged["trellis/kept"] == logged["trellis/live"] == 128
    assert abs(float(logged["trellis/sparsity"]) - 0.9) < 1e-6

    class Killed(pl.Callback):  # type: ignore[misc]
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 18:
                raise ZeroDivisionError

    saving = pl.callbacks.ModelCheckpoint(tmp_path, filename="half", every_n_epochs=2)
    with pytest.raises(ZeroDivisionError):
        fit(tmp_path, PruningCallback(0.9, regrow=regrow), saving, Killed(), **options)
    again, resumed, _ = fit(
        tmp_path, PruningCallback(0.9, regrow=regrow), seed=5,
        checkpoint=tmp_path / "half.ckpt", **options,
    )  # fmt: skip
    assert resumed.pruner.masks == callback.pruner.masks and same(again, model)
    # A checkpoint is plain: Lightning and PyTorch load it without Trellis.
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    plain = Classifier.load_from_checkpoint(tmp_path / "last.ckpt")
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"]
    assert list(state) == list(plain.state_dict()) == [n for n, _ in plain.named_parameters()]
    x = torch.randn(5, 16)
    assert torch.equal(plain(x), model(x))
    assert trellis.audit(plain, x[:1]).kept == 128


def test_a_second_trainer_goes_on_with_the_schedule(tmp_path: Path) -> None:
    """As after Ctrl-C in a notebook: the model and the callback are still there."""
    schedule = trellis.Schedule("linear", end=10, every=2)
    model, callback, _ = fit(tmp_path, PruningCallback(0.9, schedule=schedule), max_steps=4)
    assert callback.pruner.steps == 4 and not callback.pruner.done
    second = pl.Trainer(callbacks=[callback], default_root_dir=tmp_path, max_steps=8, **QUIET)
    second.fit(model, data())
    assert callback.pruner.steps == 12 and trellis.masks_of(model).kept == 128


@pytest.mark.parametrize("how", ["averaging", "buffers", "stochastic"])
def test_averages_of_the_weights_keep_the_masks(how: str, tmp_path: Path) -> None:
    average = {
        "averaging": lambda: pl.callbacks.WeightAveraging(use_buffers=False),
        "buffers": lambda: pl.callbacks.EMAWeightAveraging(decay=0.9),
        "stochastic": lambda: pl.callbacks.StochasticWeightAveraging(0.01, swa_epoch_start=1),
    }[how]()
    model, callback, trainer = fit(tmp_path, PruningCallback(0.9), average, max_epochs=3)
    assert trellis.masks_of(model) == callback.pruner.masks and callback.pruner.kept == 128
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    plain = Classifier.load_from_checkpoint(tmp_path / "last.ckpt")
    assert trellis.audit(plain, torch.zeros(1, 16)).kept <= 128


def test_options_are_checked_early_and_a_part_can_be_pruned(tmp_path: Path) -> None:
    wrongs: list[dict[str, Any]] = [
        {}, {"sparsity": 1.5}, {"sparsity": 0.5, "method": "nothing"},
        {"sparsity": 0.5, "schedule": "steep"}, {"sparsity": 0.5, "other": 1},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(TrellisError):
            PruningCallback(**wrong)
    with pytest.raises(TrellisError, match="no submodule 'body'"):
        fit(tmp_path, PruningCallback(0.5, submodule="body"), max_steps=2)
    part = PruningCallback(
        0.5, submodule="net.0", example_inputs=lambda batch: batch[0][:1], schedule="one-shot"
    )
    model, _, _ = fit(tmp_path, part, max_steps=2)
    assert set(trellis.masks_of(model)) == {"net.0.weight"}
    assert trellis.masks_of(model).kept == 512
