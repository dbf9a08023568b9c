"""The paper's network at a thousandth, on a Cortex-M4F: small, quick, and the same as PyTorch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import trellis
from tests.deploy.firmware.emulator import EXAMPLE, emulated, emulated_recording
from tests.deploy.networks import paper
from tests.deploy.tools import tool
from trellis.deploy.recording import Recording


@pytest.mark.parametrize("flags", ["-O2", "-Os"])
@pytest.mark.parametrize("values", ["fp32", "int8"])
def test_a_thousandth_fits(values: str, flags: str, tmp_path: Path) -> None:
    model, example = paper(0.999)
    x = torch.randn(5, *example.shape[1:])
    written = trellis.export_c(model, example, tmp_path, values=values)
    found = emulated(tmp_path, x.numpy(), flags)
    with torch.no_grad():
        wanted = model(x).numpy()
    error = {"fp32": 1e-5, "int8": 3e-2}[values]
    assert np.abs(found.outputs - wanted).max() <= error * np.abs(wanted).max()
    assert found.flash <= 40_000
    assert written.flash < found.flash < written.flash + 6_000  # little beside the tables
    assert written.ram <= found.ram < written.ram + 500
    assert written.uses < found.instructions <= 150_000


@pytest.mark.parametrize("basis, most", [("chunks", 50_000), ("cosines", 120_000)])
def test_recordings_are_prepared_without_doubles(basis: str, most: int, tmp_path: Path) -> None:
    """This processor has no double precision: a sum of doubles is a hundred instructions."""
    model, example = paper(0.999)
    joints = [f"joint {i}" for i in range(21)]
    trellis.export_c(
        model, example, tmp_path, classes=[str(i) for i in range(45)],
        recording=Recording(joints, 32, (0,), 0.37, basis),
    )  # fmt: skip
    frames = np.random.default_rng(0).normal(size=(60, 21, 3)).astype(np.float32)
    _, instructions = emulated_recording(tmp_path, frames)
    assert 60 * 63 < instructions <= most
    command = [tool("arm-none-eabi-nm", package="binutils-arm-none-eabi"), "firmware.elf"]
    names = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "trellis_input" in names.stdout
    assert not re.search(r"__aeabi_(d|f2d|i2d|ui2d|l2d|ul2d)", names.stdout)


def test_a_recording_larger_than_memory_is_refused(tmp_path: Path) -> None:
    """The machine has 16 MB: what lies above would be the stack, and then nothing at all."""
    given = Recording(["hip", "hand"], 5, (0,), 0.37, "cosines")
    network = nn.Sequential(nn.Flatten(), nn.Linear(30, 2))
    trellis.export_c(network, torch.zeros(1, 2, 15), tmp_path, classes="ab", recording=given)
    frames = np.random.default_rng(0).normal(size=(16 * 2**20 // 24, 2, 3)).astype(np.float32)
    most = len(frames) - 200  # the stack's and the network's, 4.8 KB, are left free
    outputs, _ = emulated_recording(tmp_path, frames[:most])
    network_of = trellis.Runtime(tmp_path / "model.trellis")
    [wanted] = network_of.predict(network_of.prepared([frames[:most]]))
    assert np.abs(outputs - wanted).max() <= 1e-5 * np.abs(wanted).max()
    for many in (frames, frames[:-50], np.concatenate([frames] * 3)):
        with pytest.raises(AssertionError, match=r"larger than the memory(.|\n)*Error 7"):
            emulated_recording(tmp_path, many)


def test_missing_inputs_are_told(tmp_path: Path) -> None:
    if not EXAMPLE.is_dir():
        pytest.skip("the firmware example is not part of an installed package")
    trellis.export_c(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path)
    command = [tool("make"), "-s", "-C", str(EXAMPLE), "run", f"MODEL={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"expected a file {tmp_path}/inputs, got none; write inputs there" in done.stderr


def test_what_is_not_finite_is_refused(tmp_path: Path) -> None:
    trellis.export_c(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path)
    with pytest.raises(AssertionError, match="Error 3"):
        emulated(tmp_path, np.array([[0, np.nan, 0]], np.float32))


def test_instructions_are_counted_not_guessed(tmp_path: Path) -> None:
    """Twice the rows take twice the instructions, and a count does not depend on the inputs."""
    counts = []
    for rows in (40, 80):
        folder = tmp_path / str(rows)
        model = nn.Linear(30, rows, bias=False)
        trellis.export_c(model, torch.zeros(1, 30), folder)
        counts.append(emulated(folder, np.zeros((50, 30), np.float32)).instructions)
        again = emulated(folder, np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32))
        assert again.instructions == pytest.approx(counts[-1], abs=40)  # a tick
    assert counts[1] == pytest.approx(2 * counts[0], rel=0.05)
    assert counts[0] >= 2 * 30 * 40  # a multiply-add and a load for each weight at least


def test_a_fault_is_told(tmp_path: Path) -> None:
    """The harness does not call a crash a success."""
    trellis.export_c(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path)
    path = tmp_path / "model.c"
    text = path.read_text()
    crash = "*(volatile int *)0xF0000000u = 1; trellis_evaluate(&model, scratch);"
    assert text.count("trellis_evaluate(&model, scratch);") == 1
    path.write_text(text.replace("trellis_evaluate(&model, scratch);", crash))
    with pytest.raises(AssertionError, match="fault"):
        emulated(tmp_path, np.zeros((1, 3), np.float32))
