"""Exported C and the kernel built for 64-bit ARM, run under qemu: PyTorch's outputs, by NEON."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import trellis
from tests.deploy.networks import NETWORKS
from tests.deploy.random_cnns import random_cnn
from tests.deploy.runners import Outputs
from tests.deploy.tools import WARNINGS, tool
from trellis.deploy.native_library import SOURCES

SAMPLES = 5  # more than FEW, so that samples lie abreast, and no multiple of four
# Reads samples from a file, and writes outputs of all together, then of each alone.
MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "native.h"

static unsigned char *content(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = malloc(1u << 24);
    if (!file || !bytes) exit(2);
    *length = fread(bytes, 1, 1u << 24, file);
    fclose(file);
    return bytes;
}

int main(int count, char **words) {
    size_t length, size;
    char why[200];
    if (count != 3) return 2;
    trellis_model *model = trellis_open(content(words[1], &length), length, why, sizeof why);
    if (!model) return fprintf(stderr, "%s\\n", why), 1;
    float *x = (float *)(void *)content(words[2], &size);
    const size_t wide = trellis_inputs(model), out = trellis_outputs(model);
    const size_t batch = size / sizeof *x / wide;
    float *y = malloc(2 * batch * out * sizeof *y);
    void *scratch = aligned_alloc(64, (trellis_scratch(model, batch) + 63) / 64 * 64);
    if (!y || !scratch) return 2;
    trellis_predict(model, x, batch, y, scratch);
    for (size_t i = 0; i < batch; i++)
        trellis_predict(model, x + i * wide, 1, y + (batch + i) * out, scratch);
    return fwrite(y, sizeof *y, 2 * batch * out, stdout) == 2 * batch * out ? 0 : 2;
}
"""


def built(sources: Sequence[Path], target: Path, *flags: str) -> Path:
    compiler = tool("aarch64-linux-gnu-gcc", package="gcc-aarch64-linux-gnu")
    command = [compiler, "-static", *flags, "-o", str(target), *map(str, sources), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return target


def emulated(program: Path, *words: str, given: bytes = b"") -> bytes:
    command = [tool("qemu-aarch64", package="qemu-user"), str(program), *words]
    done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[:3000]
    return done.stdout


def exported(folder: Path, x: Tensor, *flags: str) -> Outputs:
    """What the exported program prints."""
    program = built([folder / "model.c", folder / "main.c"], folder / "program", *WARNINGS, *flags)
    rows = "\n".join(",".join(map(repr, row.reshape(-1).tolist())) for row in x)
    lines = emulated(program, given=rows.encode()).decode().split()
    return np.array([line.split(",") for line in lines], np.float32)


def kernel(folder: Path, x: Tensor, *flags: str) -> Outputs:
    """What the run-time's kernel computes for a batch and, which must be the same, one by one."""
    source = Path(str(files("trellis.deploy.c").joinpath("source")))
    (folder / "predict.c").write_text(MAIN)
    sources = [folder / "predict.c", *(source / name for name in SOURCES)]
    program = built(sources, folder / "runs", "-std=gnu11", f"-I{source}", *flags)
    (folder / "inputs").write_bytes(x.numpy().tobytes())
    made = emulated(program, str(folder / "model.trellis"), str(folder / "inputs"))
    together, alone = np.frombuffer(made, np.float32).reshape(2, len(x), -1)
    np.testing.assert_allclose(alone, together, atol=1e-5 * float(np.abs(together).max()))
    return together


def agrees(model: nn.Module, example: Tensor, folder: Path, *flags: str, values: str) -> None:
    x = torch.randn(SAMPLES, *example.shape[1:])
    trellis.export_c(model, example, folder, values=values)
    if values == "fp32":
        with torch.no_grad():
            right = model(x).reshape(SAMPLES, -1).numpy()
    else:
        right = trellis.Runtime(folder / "model.trellis").predict(x).reshape(SAMPLES, -1)
    most = 1e-5 * max(float(np.abs(right).max()), 1e-6)
    for run in (exported, kernel):
        assert np.abs(run(folder, x, *flags) - right).max() <= most, run.__name__


@pytest.mark.parametrize("flags", ["-O2", "-O3"])
@pytest.mark.parametrize("seed", range(400, 403))
def test_random_cnns(seed: int, flags: str, tmp_path: Path) -> None:
    agrees(*random_cnn(seed), tmp_path, flags, values="fp32")


@pytest.mark.parametrize("name", ["cnn", "transformer", "gcn, trained"])
def test_networks_stored_as_int8(name: str, tmp_path: Path) -> None:
    agrees(*NETWORKS[name](), tmp_path, "-O2", values="int8")


def test_loops_are_vectors_of_four(tmp_path: Path) -> None:
    """The kernel's vectors become NEON's, at -O2 as well; C99 keeps product and sum apart."""
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    agrees(model, torch.zeros(1, 2, 12, 12), tmp_path, "-O2", values="fp32")
    objdump = tool("aarch64-linux-gnu-objdump", package="binutils-aarch64-linux-gnu")
    for program in ("program", "runs"):
        told = subprocess.run(
            [objdump, "-d", str(tmp_path / program)], capture_output=True, text=True, check=True
        )
        near = told.stdout.split("<trellis_near>:")[1].split("\n\n")[0]
        assert len(re.findall(r"\b(fmla|fadd)\s+v\d+\.4s", near)) >= 8, program
