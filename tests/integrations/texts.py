"""A small GPT-2 that the Trainer trains, as its users write it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

CONFIG = {
    "vocab_size": 8, "n_positions": 4, "n_embd": 8, "n_layer": 1, "n_head": 2,
    "bos_token_id": 0, "eos_token_id": 0, "loss_type": "ForCausalLM",
}  # fmt: skip


class Texts(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = (torch.arange(4) * (1 + index % 5)) % 8
        return {"input_ids": tokens, "labels": tokens}


def network(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(**CONFIG))  # type: ignore[arg-type]


def train(
    folder: Path, *callbacks: Any, model: Any = None, resume: str | None = None, **options: Any
) -> tuple[Any, Any]:
    """Train; return the trainer and the first callback."""
    usual: dict[str, Any] = {
        "max_steps": 12, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2,
        "learning_rate": 0.01, "report_to": [], "use_cpu": True, "disable_tqdm": True,
        "save_strategy": "no", "logging_steps": 3, "dataloader_pin_memory": False,
    }  # fmt: skip
    arguments = TrainingArguments(output_dir=str(folder), **usual | options)
    model = network() if model is None else model
    trainer = Trainer(model, arguments, train_dataset=Texts(), callbacks=list(callbacks))
    trainer.train(resume_from_checkpoint=resume)
    return trainer, callbacks[0]
