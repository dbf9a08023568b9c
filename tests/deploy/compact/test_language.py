"""Language models, masked at random: the small network is the same for other attention masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import trellis
from trellis.masks import plain_tensors

WORDS = 40
SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "use_cache": False,
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", SIZES | {"num_key_value_heads": 2}),
    "bert": ("BertForSequenceClassification", SIZES),
    "roberta": ("RobertaForMaskedLM", SIZES),
    "gpt2": ("GPT2LMHeadModel", {
        "vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 16,
        "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}),
}  # fmt: skip


def built(kind: str) -> nn.Module:
    transformers: Any = pytest.importorskip("transformers")
    torch.manual_seed(3)
    head, sizes = KINDS[kind]
    model: nn.Module = getattr(transformers, head)(transformers.AutoConfig.for_model(kind, **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model.double().eval()


def drawn(batch: int, seed: int) -> dict[str, Tensor]:
    """Token numbers, and masks that hide some positions but the first."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, WORDS, (batch, 6), generator=generator)
    mask = (torch.rand(batch, 6, generator=generator) < 0.6).long()
    mask[:, 0] = 1
    return {"input_ids": ids, "attention_mask": mask}


def results(model: nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    with torch.no_grad():
        return [y for y in pytree.tree_leaves(model(**inputs)) if isinstance(y, Tensor)]


@pytest.mark.parametrize("density", [0.03, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_function_for_other_tokens_and_masks(kind: str, density: float) -> None:
    model = built(kind)
    example = {"input_ids": torch.full((1, 6), 5), "attention_mask": torch.ones(1, 6).long()}
    net = trellis.trace(model, example)
    generator = torch.Generator().manual_seed(int(100 * density))
    masks = {
        name: torch.rand(shape, generator=generator) < density
        for name, shape in net.connections.items()
    }
    trellis.Masks(masks).apply(model)
    small = trellis.compact(model, example)
    assert small.report.after.units < small.report.before.units
    for seed in range(3):
        inputs = drawn(3, seed)
        for found, expected in zip(results(small, inputs), results(model, inputs), strict=True):
            assert torch.allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_dead_hidden_units_go() -> None:
    """Half of the first MLP reads nothing: the layer becomes half as wide."""
    model = built("llama")
    example = {"input_ids": torch.full((1, 6), 5), "attention_mask": torch.ones(1, 6).long()}
    name = "model.layers.0.mlp.up_proj.weight"
    mask = torch.ones(24, 16, dtype=torch.bool)
    mask[:12] = False
    trellis.Masks({name: mask}).apply(model)
    small = trellis.compact(model, example)
    assert plain_tensors(small)[name].shape == (12, 16)
    inputs = drawn(2, 1)
    for found, expected in zip(results(small, inputs), results(model, inputs), strict=True):
        assert torch.allclose(found, expected, rtol=1e-9, atol=1e-11)
