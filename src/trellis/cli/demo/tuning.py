"""Training and testing, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Data = tuple[Tensor, Tensor]


def tune(model: nn.Module, data: Data, steps: int, rate: float = 2e-3, batch: int = 64) -> None:
    """Adam on cross-entropy, with a cosine to zero; masks on the model stay as they are."""
    x, y = data
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        chosen = torch.randint(len(y), (batch,), generator=generator)
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def accuracy(model: nn.Module, data: Data) -> float:
    """The fraction of samples that are classified right."""
    x, y = data
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


@contextmanager
def one_thread() -> Iterator[None]:
    """For tensors this small, threads wait for each other longer than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
