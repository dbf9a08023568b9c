"""Time of a training step per network, stacked: `python bench/train.py --device cuda`.

The paper's GCN at batch 600. Prints, for each precision and number of networks, milliseconds per
network and epoch, and how far logits and gradients are from float64: with the kernels that the
precision has, and with plain products. `--tune` then tries other tiles for the kernels of fp32 and
tf32, and measures again with the best; `--profile` prints where a step's time goes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from unittest.mock import patch

import torch

from trellis.skeleton import GCN
from trellis.skeleton.model import gcn as stacked
from trellis.skeleton.model.gpu import fast_logits
from trellis.training import Training, forward_of, recipe_named, stack
from trellis.training.trainer import arithmetic, autocast


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


def errors(device: str, precision: str, batch: int) -> dict[str, dict[str, float]]:
    """The deviation from float64 relative to the value's root mean square: of the typical entry
    (the median, which a ReLU that flips does not move), and the root mean square of all."""
    x, y = data(device, batch)
    exact = step(device, "float64", batch, x, y)
    found: dict[str, dict[str, float]] = {}
    for kind, fast in (("kernels", fast_logits), ("plain", lambda *_: None)):
        with patch.object(stacked, "fast_logits", fast):
            got = step(device, precision, batch, x, y)
        for name, right in exact.items():
            off, size = (got[name] - right).abs(), right.norm() / right.numel() ** 0.5
            found.setdefault(name, {})[kind] = (off.median() / size).item()
            found[name][f"{kind} (rms)"] = (off.norm() / right.norm()).item()
    return found


def step(
    device: str, precision: str, batch: int, x: torch.Tensor, y: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Logits and gradients of two networks, in float64."""
    dtype = torch.float64 if precision == "float64" else torch.float32
    weights = {n: w.requires_grad_() for n, w in networks(2, device, dtype).items()}
    with arithmetic(precision), autocast(precision, x.device):
        logits = forward_of(GCN())(weights, x.to(dtype).expand(2, *x.shape)).to(dtype)
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), y.expand(2, -1))
    gradients = torch.autograd.grad(loss, list(weights.values()))
    values = (logits.detach().double(), *(g.double() for g in gradients))
    return dict(zip(("logits", *weights), values, strict=True))


def profile(precision: str, batch: int) -> None:
    """Print what 16 networks' step spends its time on."""
    from torch.profiler import ProfilerActivity, profile

    x, y = data("cuda", batch)
    training = Training(
        forward_of(GCN()), networks(16, "cuda"), x, y, recipe_named("default", epochs=9),
        seeds=range(16), precision=precision,
    )  # fmt: skip
    for _ in range(3):
        training.epoch()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        training.epoch()
        wait("cuda")
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=14,
                                    max_name_column_width=48))  # fmt: skip


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
    parser.add_argument("--tune", action="store_true", help="try other tiles, too")
    parser.add_argument("--profile", action="store_true", help="print each kernel's time, too")
    parser.add_argument(
        "--masks", type=int, nargs="+", default=[0, 1], help="without, with or both"
    )
    asked = parser.parse_args()
    rows: list[dict[str, object]] = []
    for precision in asked.precisions:
        show_errors(asked.device, precision, asked.batch)
        rows += timed(asked, precision)
    if asked.tune:
        from launches import tuned

        kinds = [precision for precision in asked.precisions if precision != "bf16"]
        tuned(16, asked.batch, [kind == "fp32" for kind in kinds])
        for precision in kinds:
            show_errors(asked.device, precision, asked.batch)
            rows += timed(asked, precision)
    if asked.profile:
        for precision in asked.precisions:
            profile(precision, asked.batch)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def show_errors(device: str, precision: str, batch: int) -> None:
    for name, off in errors(device, precision, batch).items():
        told = ", ".join(f"{kind} {value:.1e}" for kind, value in off.items())
        ratio = off["kernels"] / off["plain"]
        print(f"{precision} {name}: {told}; kernels / plain {ratio:.2f}", flush=True)


def timed(asked: argparse.Namespace, precision: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for count in asked.networks:
        for masked in map(bool, asked.masks):
            took = milliseconds(count, asked.device, precision, asked.batch, asked.epochs, masked)
            rows.append({"precision": precision, "networks": count, "masked": masked,
                         "ms_per_network_and_epoch": took})  # fmt: skip
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main()
