"""MLPerf Tiny's ResNet-8 trained on real CIFAR-10 by `trellis.shrink`, dense and pruned.

    python bench/tinyml_train.py --rates 0 0.9 --epochs 40 --data data/cifar10 --out runs/resnet8

Each rate is one call of `trellis.shrink` from the same first weights, with the same steps and
augmentation; rate 0 is the dense network. The networks learn from 45,000 images, and nothing is
chosen by the test images. A killed run continues from its last checkpoint, and a finished one is
not made again. Each network is then tested on all 10,000 test images, exported, and run on them
through `trellis.Runtime`. Sizes are those of int8 arithmetic. ``--table`` prints what --out holds;
``--measure`` only times a step.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from image_data import DEVIATION, MEAN, Images, cifar10
from report import Table
from tinyml_models import tiny
from torch import Tensor, nn
from torch.nn import functional as F

import trellis

BATCH = 128
CALIBRATION = 256  # training images that set the scales of int8 arithmetic
BORDER = 4  # pixels by which an image is moved, at most


class Augmented:
    """Batches of moved and mirrored images, from bytes; drawn from torch's generator.

    Args:
        images: Bytes of shape (count, 3, 32, 32).
        labels: Classes of shape (count,).
    """

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        edge = (BORDER, BORDER, BORDER, BORDER)
        self.padded = F.pad(images, edge, value=round(255 * MEAN[0]))
        self.padded = self.padded.permute(0, 2, 3, 1).contiguous()  # (count, 40, 40, 3)
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels) // BATCH

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.labels))
        inside = torch.arange(32)
        for chosen in order[: len(self) * BATCH].split(BATCH):
            shift = torch.randint(0, 2 * BORDER + 1, (2, BATCH, 1))
            mirrored = torch.rand(BATCH, 1) < 0.5
            rows = inside + shift[0]
            columns = torch.where(mirrored, 31 - inside, inside) + shift[1]
            moved = self.padded[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
            yield normalized(moved.permute(0, 3, 1, 2)), self.labels[chosen]


def normalized(pixels: Tensor) -> Tensor:
    """Return bytes as the floats that networks see; strides stay as they are."""
    mean = torch.tensor(MEAN).reshape(1, 3, 1, 1) * 255
    deviation = torch.tensor(DEVIATION).reshape(1, 3, 1, 1) * 255
    return (pixels.float() - mean) / deviation


def sgd(parameters: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=2e-4)


def fresh(seed: int) -> nn.Module:
    """Return ResNet-8 at its first weights."""
    model, _ = tiny("resnet8", seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    return model


def folder_of(given: argparse.Namespace, rate: float) -> Path:
    end = "" if given.quantize is None else f"-{given.quantize}"
    return Path(given.out) / f"{100 * rate:g}-seed{given.seed}{end}"


def train(given: argparse.Namespace, rate: float) -> None:
    """Make one network, or go on with it, and test it."""
    images = cifar10(given.data)
    folder = folder_of(given, rate)
    folder.parent.mkdir(parents=True, exist_ok=True)
    held = list(zip(normalized(images.held).split(500), images.held_labels.split(500), strict=True))
    found = trellis.shrink(
        fresh(given.seed), Augmented(images.train, images.train_labels), sparsity=rate,
        validation=held, optimizer=sgd, epochs=given.epochs, trained=False, device="cpu",
        precision=given.precision, channels_last=True, seed=given.seed, out=folder,
        checkpoint_every=60, quantize=given.quantize,
    )  # fmt: skip
    path = folder / "tested.json"
    if path.exists():
        return
    row = {"rate": rate, "seed": given.seed, "epochs": given.epochs, "precision": given.precision}
    row |= {"seconds": found.seconds, "held": found.score, "quantize": given.quantize}
    row |= tested(found.model, images, folder)
    path.write_text(json.dumps(row, indent=1) + "\n")


@torch.no_grad()
def tested(model: nn.Module, images: Images, folder: Path) -> dict[str, Any]:
    """Accuracy on the test images: of the model, and of each form of export, with its sizes."""
    model = model.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    x, labels = normalized(images.test), images.test_labels
    seen = normalized(images.train[:CALIBRATION])
    forms: dict[str, dict[str, Any]] = {
        "fp32": {}, "int8": {"values": "int8"},
        "int8-arithmetic": {"arithmetic": "int8", "calibration": seen},
    }  # fmt: skip

    def accuracy(scores: Tensor) -> float:
        return float((scores.argmax(1) == labels).double().mean())

    audit = trellis.audit(model, x[:1])
    row: dict[str, Any] = {"total": audit.total, "kept": audit.kept, "live": audit.live}
    row["test"] = accuracy(torch.cat([model(part) for part in x.split(500)]))
    for form, options in forms.items():
        written = trellis.export_c(model, x[:1], folder / form, **options)
        runtime = trellis.Runtime(folder / form / "model.trellis")
        scores = torch.cat([torch.from_numpy(runtime.predict(p.numpy())) for p in x.split(500)])
        row[form] = {
            "test": accuracy(scores), "file": written.file, "flash": written.flash,
            "ram": written.ram, "multiplications": written.uses,
        }  # fmt: skip
    return row


def measure(given: argparse.Namespace) -> None:
    """Print the least and the mean time of a step and of making its batch."""
    images = cifar10(given.data)
    batches = Augmented(images.train, images.train_labels)
    for precision in ("fp32", "bf16"):
        model = fresh(0).train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = sgd([{"params": list(model.parameters())}])
        least, made, began = 1e9, 1e9, time.perf_counter()
        source = iter(batches)
        for _ in range(given.measure):
            start = time.perf_counter()
            x, y = next(source)
            ready = time.perf_counter()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            least = min(least, time.perf_counter() - start)
            made = min(made, ready - start)
        mean = (time.perf_counter() - began) / given.measure
        print(f"{precision}: {1e3 * least:.1f} ms a step of {BATCH} at least, {1e3 * mean:.1f} ms "
              f"on average; {1e3 * made:.1f} ms of it make the batch")  # fmt: skip


def table(given: argparse.Namespace) -> Table:
    rows = [json.loads(path.read_text()) for path in sorted(given.out.glob("*/tested.json"))]
    rows.sort(key=lambda row: (row["rate"], row["seed"], row.get("quantize") or ""))
    lines = [
        (
            f"{100 * row['rate']:g} %", f"{row['epochs']:g}", row.get("quantize") or "floats",
            f"{row['live']:,}",
            *(f"{100 * found['test']:.2f}" for found in (row, row["int8"], row["int8-arithmetic"])),
            *(f"{row['int8-arithmetic'][size]:,}" for size in ("file", "flash", "ram")),
        )
        for row in rows
    ]  # fmt: skip
    names = ("removed", "epochs", "fine-tuned in", "live weights", "test, %", "weights as int8, %",
             "int8 arithmetic, %")  # fmt: skip
    sizes = ("file, bytes", "tables in flash, bytes", "peak RAM, bytes")
    return Table("ResNet-8 on CIFAR-10", (*names, *sizes), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.0, 0.8, 0.9, 0.95])
    parser.add_argument("--epochs", type=float, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--quantize", choices=("int8",), help="arithmetic to fine-tune for")
    parser.add_argument("--data", type=Path, default=Path("data/cifar10"), help="folder")
    parser.add_argument("--out", type=Path, default=Path("runs/resnet8"), help="folder")
    parser.add_argument("--table", action="store_true", help="print the table and stop")
    parser.add_argument("--measure", type=int, metavar="STEPS", help="time so many steps and stop")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.measure:
        measure(given)
        return
    if not given.table:
        for rate in given.rates:
            train(given, rate)
    print(table(given).markdown())


if __name__ == "__main__":
    main()
