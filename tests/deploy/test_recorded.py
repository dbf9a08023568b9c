"""From recordings to outputs: PyTorch = every other form of a recogniser, however it sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import trellis
from tests.deploy.c.test_main import ARM, described, outputs, recogniser, recording, rows
from tests.deploy.firmware.emulator import emulated_recording
from tests.deploy.tools import SANITIZED, compiled, ran, tool
from tests.deploy.wasm.node import under_node
from trellis.deploy.format import read
from trellis.deploy.tables import interpreted
from trellis.skeleton import Recognizer

Frames = NDArray[np.float32]
Form = Callable[[Recognizer, Sequence[Frames], Path], Frames]  # -> (recordings, outputs)
NEEDED = ("onnx", "onnxscript", "onnxruntime")
LENGTHS = (1, 3, 8, 70)  # fewer frames than chunks, and more


def exported(one: Recognizer, folder: Path) -> Path:
    example = torch.zeros(1, 3, 3 * one.chunks)
    trellis.export_c(one.network(), example, folder, **described(one))
    return folder


def compacted(one: Recognizer, given: Sequence[Frames], folder: Path) -> Frames:
    x = torch.from_numpy(one.prepared(given))
    with torch.no_grad():
        found: Frames = trellis.compact(one.network(), x[:1])(x).numpy()
    return found


def file(one: Recognizer, given: Sequence[Frames], folder: Path) -> Frames:
    return interpreted(read(exported(one, folder) / "model.trellis"), one.prepared(given))


def runtime(one: Recognizer, given: Sequence[Frames], folder: Path) -> Frames:
    tool("gcc", "clang", "cc")
    network = trellis.Runtime(exported(one, folder) / "model.trellis")
    found: Frames = network.predict(network.prepared(given))
    return found


def c(one: Recognizer, given: Sequence[Frames], folder: Path) -> Frames:
    exported(one, folder)
    built = compiled([folder / "model.c", folder / "main.c"], folder / "model", *SANITIZED)
    told = [ran(built, "\n".join(rows(frames)), "--outputs").stdout for frames in given]
    return np.array(
        [[line.rsplit(",", 1)[1] for line in text.splitlines()] for text in told], np.float32
    )


def wasm(one: Recognizer, given: Sequence[Frames], folder: Path) -> Frames:
    example = torch.zeros(1, 3, 3 * one.chunks)
    trellis.export_wasm(one.network(), example, folder, **described(one))
    return np.concatenate([under_node(folder, frames, "recorded") for frames in given])


def firmware(one: Recognizer, given: Sequence[Frames], folder: Path) -> Frames:
    exported(one, folder)
    return np.stack([emulated_recording(folder, frames)[0] for frames in given])


def onnx(one: Recognizer, given: Sequence[Frames], folder: Path) -> Frames:
    why = "needs onnx: pip install 'trellis-prune[onnx]'"
    engine: Any = [pytest.importorskip(name, reason=why) for name in NEEDED][-1]
    x = one.prepared(given)
    small = trellis.compact(one.network(), torch.from_numpy(x[:1]))
    written = trellis.export_onnx(small, torch.from_numpy(x[:1]), folder / "model.onnx")
    session = engine.InferenceSession(written.path, providers=["CPUExecutionProvider"])
    found: Frames = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


FORMS: dict[str, Form] = {
    "compacted": compacted,
    "file": file,
    "runtime": runtime,
    "c": c,
    "wasm": wasm,
    "firmware": firmware,
    "onnx": onnx,
}


@pytest.mark.parametrize(
    ("basis", "body", "sized"),
    [
        ("chunks", None, False),
        ("cosines", None, False),
        ("chunks", None, True),
        ("cosines", (0, 2, 0, 1), True),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_equal(
    form: str, basis: str, body: tuple[int, ...] | None, sized: bool, tmp_path: Path
) -> None:
    one = recogniser(12, basis, body, ARM.bones if sized else ())
    given = [10 + recording(frames) for frames in LENGTHS]
    wanted = np.stack([outputs(one, frames) for frames in given])
    assert np.ptp(wanted) > 0
    found = FORMS[form](one, given, tmp_path)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("form", ["c", "wasm", "firmware", "runtime"])
@pytest.mark.parametrize(("basis", "sized"), [("chunks", False), ("cosines", True)])
def test_frames_relative_to_their_own_roots(
    form: str, basis: str, sized: bool, tmp_path: Path
) -> None:
    bones = ARM.bones if sized else ()
    torch.manual_seed(0)
    one = recogniser(12, basis, None, bones, "frame")
    walk = np.float32(0.3) * np.arange(70, dtype=np.float32)[:, None, None]
    given = [recording(frames) + 10 + walk[:frames] for frames in LENGTHS]
    wanted = np.stack([outputs(one, frames) for frames in given])
    still = np.stack([outputs(one, frames - walk[: len(frames)]) for frames in given])
    np.testing.assert_allclose(still, wanted, atol=1e-4 * np.abs(wanted).max())
    found = FORMS[form](one, given, tmp_path)
    assert np.abs(found - wanted).max() <= 3e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("form", ["c", "wasm", "firmware", "runtime"])
def test_two_thousand_waves(form: str, tmp_path: Path) -> None:
    """The transform works on the stack: 24 KB of it, more than WebAssembly is given otherwise."""
    one = recogniser(2000, "cosines")
    given = [recording(frames) for frames in (70, 3000)]
    wanted = np.stack([outputs(one, frames) for frames in given])
    found = FORMS[form](one, given, tmp_path)
    assert np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("chunks", [1, 2, 4, 5, 20, 32, 33])
def test_any_number_of_waves(chunks: int, tmp_path: Path) -> None:
    """Powers of two, odd numbers, and both: as C, under sanitizers."""
    one = recogniser(chunks, "cosines")
    given = [recording(frames) for frames in LENGTHS]
    wanted = np.stack([outputs(one, frames) for frames in given])
    assert np.abs(c(one, given, tmp_path) - wanted).max() <= 1e-5 * np.abs(wanted).max()
