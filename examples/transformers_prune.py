"""Prune while the Trainer trains, and load a checkpoint without Trellis."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import trellis
from trellis.integrations.transformers import PruningCallback


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 128

    def __getitem__(self, index):
        tokens = (torch.arange(4) * (1 + index % 5)) % 8
        return {"input_ids": tokens, "labels": tokens}


config = GPT2Config(
    vocab_size=8, n_positions=4, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
)
arguments = TrainingArguments(
    output_dir=sys.argv[1], max_steps=40, save_steps=20, per_device_train_batch_size=8,
    learning_rate=0.01, report_to=[],
)  # fmt: skip
schedule = trellis.Schedule("cubic", begin=4, end=28, every=6)  # or none: then the usual one
pruning = PruningCallback(sparsity=0.8, schedule=schedule)
trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Text(), callbacks=[pruning])
trainer.train()

plain = GPT2LMHeadModel.from_pretrained(f"{sys.argv[1]}/checkpoint-40")  # nothing of Trellis in it
weights = {name: plain.get_parameter(name) for name in pruning.pruner.masks}
kept = sum(int((weight != 0).sum()) for weight in weights.values())
print(f"{kept} of {pruning.pruner.total} connections kept")
