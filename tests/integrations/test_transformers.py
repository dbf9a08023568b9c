"""The callback in the Trainer of Transformers: killed and resumed, logged, with adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import trellis
from trellis.errors import TrellisError

transformers: Any = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from tests.integrations.texts import network, train  # noqa: E402
from trellis.integrations.transformers import PruningCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENS = torch.tensor([[1, 5, 2, 0]])


class Killed(transformers.TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 9:
            raise ZeroDivisionError


def test_resumed_in_the_middle_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "bf16": True,
        "report_to": ["tensorboard"],
        "save_strategy": "steps",
        "save_steps": 6,
    }
    schedule = trellis.Schedule("linear", begin=1, end=8, every=3)
    whole, callback = train(tmp_path / "a", PruningCallback(0.8, schedule=schedule), **options)
    pruner = callback.pruner
    assert pruner is not None and pruner.steps == whole.state.global_step == 12
    assert pruner.kept == pruner.plan.target < pruner.total

    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "b", PruningCallback(0.8, schedule=schedule), Killed(), **options)
    folder = tmp_path / "b" / "checkpoint-6"
    again, resumed = train(
        tmp_path / "b", PruningCallback(0.8, schedule=schedule), model=network(5),
        resume=str(folder), **options,
    )  # fmt: skip
    assert resumed.pruner is not None and resumed.pruner.masks == pruner.masks
    ours, theirs = again.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())

    # A checkpoint is plain: Transformers loads it without Trellis, and computes the same.
    for last in (tmp_path / "a" / "checkpoint-12", tmp_path / "saved"):
        whole.save_model(str(tmp_path / "saved"))
        plain, told = type(whole.model).from_pretrained(last, output_loading_info=True)
        assert not told["missing_keys"] and not told["unexpected_keys"]
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in plain.state_dict().items())
        weights = {name: plain.get_parameter(name) != 0 for name in pruner.masks}
        assert not any((weights[name] & ~mask).any() for name, mask in pruner.masks.items())

    rows = [row for row in whole.state.log_history if "trellis/kept" in row]
    assert [row["step"] for row in rows] == [4, 7, 8]
    assert rows[-1]["trellis/live"] == rows[-1]["trellis/kept"] == pruner.kept
    assert rows[-1]["trellis/sparsity"] == pruner.sparsity

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (run,) = (tmp_path / "a" / "runs").glob("*")
    board = EventAccumulator(str(run / "trellis"))
    board.Reload()
    assert [(e.step, e.value) for e in board.Scalars("trellis/kept")] == [
        (row["step"], row["trellis/kept"]) for row in rows
    ]


def test_weights_that_the_trainer_did_not_restore_are_an_error(tmp_path: Path) -> None:
    """As with models whose checkpoints have other names; the Trainer goes on without them."""
    schedule = trellis.Schedule("linear", begin=1, end=8, every=3)
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 6}
    train(tmp_path, PruningCallback(0.8, schedule=schedule), **options)
    folder = tmp_path / "checkpoint-6"
    file = folder / "model.safetensors"
    save_file({f"old.{name}": w for name, w in load_file(file).items()}, file, {"format": "pt"})
    with pytest.raises(TrellisError, match="not restored"):
        train(
            tmp_path, PruningCallback(0.8, schedule=schedule), model=network(5),
            resume=str(folder), **options,
        )  # fmt: skip


def test_an_encoder_decoder_gets_the_inputs_that_it_makes_of_labels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 8))
    }
    config = transformers.BartConfig(
        vocab_size=8, d_model=8, max_position_embeddings=8, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, decoder_start_token_id=2, **sizes,
    )  # fmt: skip
    model = transformers.BartForConditionalGeneration(config)
    _, callback = train(tmp_path, PruningCallback(0.8, schedule="one-shot"), model=model)
    assert callback.pruner is not None
    found = trellis.audit(model, {"input_ids": TOKENS, "decoder_input_ids": TOKENS})
    assert found.kept == callback.pruner.kept == found.total // 5 and found.live_fraction == 1.0


def test_the_trainer_cannot_make_the_callback_from_its_attributes() -> None:
    with pytest.raises(TrellisError, match="restore_callback_states_from_checkpoint"):
        PruningCallback()


def test_adapters_are_neither_pruned_nor_counted_and_merging_keeps_the_zeros(
    tmp_path: Path,
) -> None:
    peft: Any = pytest.importorskip("peft")
    from trellis.integrations.peft import merge

    inputs = {"input_ids": TOKENS}
    base = network()
    dense = trellis.audit(base, inputs)
    masks = trellis.prune(base, inputs, sparsity=0.5)
    lora = peft.LoraConfig(r=2, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)
    model = peft.get_peft_model(base, lora)
    found = trellis.audit(model, inputs)
    assert (found.total, found.kept) == (dense.total, masks.kept)
    _, callback = train(
        tmp_path, PruningCallback(0.8, schedule="one-shot"), model=model, max_steps=4
    )
    assert callback.pruner is not None and callback.pruner.kept == int(dense.total * 0.2)
    assert not any("lora" in name for name in callback.pruner.masks)
    adapters = [p for n, p in model.named_parameters() if "lora_B" in n]
    assert adapters and all(p.abs().sum() > 0 for p in adapters)

    kept = trellis.masks_of(model).kept
    expected = {}  # (W + B A) under the mask, with peft's own product
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and hasattr(module, "lora_A"):
            weight = module.get_base_layer().weight.detach()
            delta = module.get_delta_weight("default").detach()
            expected[name.removeprefix("base_model.model.")] = (weight + delta) * (weight != 0)
    before = model.eval()(**inputs).logits
    with pytest.raises(TrellisError, match=r"trellis\.integrations\.peft\.merge"):
        model.merge_and_unload()
    assert torch.equal(model(**inputs).logits, before)  # the adapter still acts
    merged: Any = merge(model)
    assert trellis.masks_of(merged).kept == kept
    for name, weight in expected.items():
        torch.testing.assert_close(merged.get_submodule(name).weight.detach(), weight)
    with pytest.raises(TrellisError, match="with adapters to merge"):
        merge(torch.nn.Linear(2, 2))


def test_adapters_resume_over_a_base_that_no_checkpoint_holds(tmp_path: Path) -> None:
    peft: Any = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True)
    schedule = trellis.Schedule("linear", begin=1, end=8, every=3)
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 6}
    ends = []
    for resume in (None, str(tmp_path / "checkpoint-6")):
        model = peft.get_peft_model(network(), lora)
        ends.append(
            train(
                tmp_path, PruningCallback(0.8, schedule=schedule), model=model, resume=resume,
                **options,
            )
        )  # fmt: skip
    (whole, first), (again, resumed) = ends
    assert first.pruner.masks == resumed.pruner.masks
    state = whole.model.state_dict()
    assert all(torch.equal(w, state[name]) for name, w in again.model.state_dict().items())


def test_ignored_parameters_are_not_in_the_audit() -> None:
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    x = torch.zeros(1, 4)
    trellis.prune(model, x, sparsity=0.5, ignore="2.*")
    found = trellis.audit(model, x, ignore="2.*")
    assert [row.name for row in found.layers] == ["0.weight"]
    assert (found.total, found.kept, found.live_fraction) == (24, 12, 1.0)
    with torch.no_grad():
        model[2].weight[:, 1:] = 0  # a wire that carries nothing
    assert trellis.audit(model, x, ignore=["2.weight"]).live < 12
