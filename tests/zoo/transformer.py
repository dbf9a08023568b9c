"""ViT-B, GPT-2 small and BERT base from their configurations, without a download.

`transformers` takes seconds to import, so that each builder does so when it is called.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from .seeded import Example, seeded, settle

Attention = Literal["eager", "sdpa"]


class Logits(nn.Module):
    """The model's logits alone, as a plain tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits


SMALL_VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 8,
    "patch_size": 4,
    "num_labels": 5,
}
SMALL_GPT2 = {
    "vocab_size": 50,
    "n_positions": 16,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
SMALL_LLAMA = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
SMALL_BERT = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
}


@seeded
def vit(small: bool = False, attention: Attention = "sdpa") -> Example:
    """ViT-B/16: x [1, 3, 224, 224] -> [1, 1000]; small: [1, 3, 8, 8] -> [1, 5]."""
    import transformers

    options: dict[str, Any] = dict(SMALL_VIT) if small else {"num_labels": 1000}
    make: Any = transformers.ViTConfig
    config = make(attn_implementation=attention, **options)
    model = Logits(transformers.ViTForImageClassification(config))
    side = 8 if small else 224
    return settle(model), (torch.randn(1, 3, side, side),)


@seeded
def gpt2(small: bool = False, attention: Attention = "sdpa", length: int = 0) -> Example:
    """GPT-2: ids [1, length] -> [1, length, vocabulary]; the head is the embedding, tied."""
    import transformers

    options: dict[str, Any] = dict(SMALL_GPT2) if small else {}
    make: Any = transformers.GPT2Config
    config = make(attn_implementation=attention, use_cache=False, **options)
    build: Any = transformers.GPT2LMHeadModel
    ids = torch.randint(0, config.vocab_size, (1, length or (6 if small else 128)))
    return settle(Logits(build(config))), (ids,)


@seeded
def llama(small: bool = True, length: int = 5) -> Example:
    """Llama with two query heads to a key: ids [1, length] -> [1, length, vocabulary]."""
    import transformers

    make: Any = transformers.LlamaConfig
    config = make(use_cache=False, **(SMALL_LLAMA if small else {}))
    build: Any = transformers.LlamaForCausalLM
    ids = torch.randint(0, config.vocab_size, (1, length))
    return settle(Logits(build(config))), (ids,)


@seeded
def bert(small: bool = False, attention: Attention = "sdpa", length: int = 0) -> Example:
    """BERT base with a classifier: ids [1, length] -> [1, 2]."""
    import transformers

    options: dict[str, Any] = dict(SMALL_BERT) if small else {}
    make: Any = transformers.BertConfig
    config = make(attn_implementation=attention, use_cache=False, **options)
    build: Any = transformers.BertForSequenceClassification
    ids = torch.randint(0, config.vocab_size, (1, length or (6 if small else 128)))
    return settle(Logits(build(config))), (ids,)
