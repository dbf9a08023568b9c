"""Small sound files for the fuzzers to start from: ``python fuzz/seeds.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

import trellis
from trellis.deploy.format import to_bytes
from trellis.deploy.tables.lower import tables
from trellis.deploy.tables.quantize import stored, to_int8

ROWS = ["1 2 3 4 5 6 7 8 9", "1,2,3,4,5,6,7,8,9.5e-1", "# a comment", "", "nan,1e400;0x1p3,-.5"]
HEADER = "frame,hip_x,hip_y,hip_z,x_x,x_y,x_z"


class Residual(nn.Module):
    """Every kind of loop: strided, transposed, pooled, and a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.down = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 3, 3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(3, 2, 2, 2), nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x + self.inner(x))
        x = nn.functional.max_pool2d(torch.relu(self.up(self.down(x))), 3, 2, 1)
        return self.last(x.mean((2, 3)))


def models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    torch.manual_seed(0)
    return {
        "mlp": (nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)), torch.zeros(1, 6)),
        "cnn": (
            nn.Sequential(
                nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                nn.Linear(27, 3), nn.Softmax(1),
            ),
            torch.zeros(1, 2, 6, 6),
        ),
        "residual": (Residual(), torch.zeros(1, 2, 6, 7)),
        "gcn": (trellis.skeleton.GCN(5, 6, 4, heads=2, filters=3), torch.zeros(1, 5, 6)),
    }  # fmt: skip


def main(folder: Path) -> None:
    for name in ("reader", "recording"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, (model, x) in models().items():
        trellis.prune(model, x, sparsity=0.5)
        for values in ("fp32", "fp16", "int8"):
            data = to_bytes(stored(tables(model, x), values))
            (folder / "reader" / f"{name}-{values}.trellis").write_bytes(data)
        found = tables(model, x, slabs=False)
        if all(step.kind != "dot" for step in found.steps):
            data = to_bytes(to_int8(found, torch.randn(8, found.input_units).numpy()))
            (folder / "reader" / f"{name}-whole.trellis").write_bytes(data)
    for number, lines in enumerate([ROWS, [HEADER, *ROWS], [ROWS[0]] * 3]):
        (folder / "recording" / f"{number}.csv").write_text("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
