"""Prune in a loop of Hugging Face Accelerate: mixed precision, accumulation, several processes."""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import trellis

STEPS = 60
accelerator = Accelerator(gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.randn(1024, 16)
data = DataLoader(TensorDataset(x, x[:, :4].argmax(1)), batch_size=8, shuffle=True)
model, optimizer, data = accelerator.prepare(model, optimizer, data)

schedule = trellis.Schedule("cubic", begin=6, end=45, every=3)
pruner = trellis.Pruner(model, x[:1].to(accelerator.device), sparsity=0.9, schedule=schedule)
accelerator.register_for_checkpointing(pruner)  # save_state and load_state include it

for inputs, labels in data:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:  # the optimizer has made a step
        if renewal := pruner.step():
            accelerator.print(renewal)
        if pruner.steps == STEPS:
            break

accelerator.save_state(f"{sys.argv[1]}/state")
accelerator.save_model(model, sys.argv[1])  # plain weights, which load without Trellis
accelerator.print(pruner)
