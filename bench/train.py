"""Time of a training step per network, stacked: `python bench/train.py --device cuda`.

The paper's GCN at batch 600. Prints, for each precision and number of networks, milliseconds per
network and epoch, and how far logits and gradients are from float64.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from trellis.skeleton import GCN
from trellis.train import Training, forward_of, recipe_named, stack
from trellis.train.training import arithmetic, autocast


def networks(
    count: int, device: str, dtype: torch.dtype = torch.float32
) -> dict[str, torch.Tensor]:
    models = []
    for seed in range(count):
        torch.manual_seed(seed)
        models.append(GCN())
    return {name: w.to(device, dtype) for name, w in stack(models).items()}


def data(device: str, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(batch, 21, 96, device=device)
    return x, torch.arange(batch, device=device) % 45


def milliseconds(
    count: int, device: str, precision: str, batch: int, epochs: int, masked: bool
) -> float:
    """Per network and epoch, after the first five epochs."""
    weights = networks(count, device)
    x, y = data(device, batch)
    masks = {name: torch.rand_like(w) < 0.01 for name, w in weights.items()} if masked else None
    training = Training(
        forward_of(GCN()), weights, x, y, recipe_named("default", epochs=epochs + 5),
        seeds=range(count), masks=masks, precision=precision,
    )  # fmt: skip
    for _ in range(5):
        training.epoch()
    wait(device)
    start = time.perf_counter()
    while not training.done:
        training.epoch()
    wait(device)
    return (time.perf_counter() - start) * 1e3 / epochs / count


def errors(device: str, precision: str, batch: int) -> dict[str, float]:
    """Root mean square of the deviation from float64, relative to that of the value."""
    x, y = data(device, batch)
    forward = forward_of(GCN())
    found = {}
    for kind, dtype in (("exact", torch.float64), (precision, torch.float32)):
        weights = {n: w.requires_grad_() for n, w in networks(2, device, dtype).items()}
        with arithmetic(kind), autocast(kind, x.device):
            logits = forward(weights, x.to(dtype).expand(2, *x.shape)).to(dtype)
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), y.expand(2, -1))
        gradients = torch.autograd.grad(loss, list(weights.values()))
        found[kind] = dict(zip(("logits", *weights), (logits, *gradients), strict=True))
    return {
        name: ((found[precision][name] - exact).norm() / exact.norm()).item()
        for name, exact in found["exact"].items()
    }


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "tf32", "bf16"])
    parser.add_argument("--batch", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--out", type=Path, help="a JSON file")
    asked = parser.parse_args()
    rows: list[dict[str, object]] = []
    for precision in asked.precisions:
        print(
            precision,
            {n: f"{e:.1e}" for n, e in errors(asked.device, precision, asked.batch).items()},
        )
        for count in asked.networks:
            for masked in (False, True):
                took = milliseconds(
                    count, asked.device, precision, asked.batch, asked.epochs, masked
                )
                rows.append({"precision": precision, "networks": count, "masked": masked,
                             "ms_per_network_and_epoch": took})  # fmt: skip
                print({**rows[-1], "error": None}, flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
