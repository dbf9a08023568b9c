"""Arithmetic in 8 bits: definition, run-time, C, WebAssembly and firmware are equal to the bit."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import trellis
from tests.deploy.c.test_neon import exported, kernel
from tests.deploy.firmware.emulator import emulated
from tests.deploy.random_cnns import Residual, random_cnn
from tests.deploy.runners import program
from tests.deploy.runtime.test_processors import NEEDS, use_kernel_for
from tests.deploy.tools import SANITIZED, tool
from tests.deploy.wasm.node import under_node
from trellis import TrellisError
from trellis.deploy.c.write import write_c
from trellis.deploy.format import read_bytes, to_bytes
from trellis.deploy.tables import interpreted, tables
from trellis.deploy.tables.form import LOOPS, Loop, Tables
from trellis.deploy.tables.int8 import Coding
from trellis.deploy.tables.quantize import to_int8

SAMPLES = 3


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 3))


def eight(model: nn.Module, example: Tensor, seed: int = 0) -> tuple[Tables, NDArray[np.float32]]:
    """A model's tables in 8 bits, and inputs like those that it was calibrated on."""
    generator = np.random.default_rng(seed)
    data = generator.normal(size=(16 + SAMPLES, *example.shape[1:])).astype(np.float32)
    found = to_int8(tables(model, example, slabs=False), data[SAMPLES:].reshape(16, -1))
    return found, data[:SAMPLES]


def multiplies(model: nn.Module, example: Tensor) -> bool:
    """Whether it multiplies activations, which 8 bits do not carry."""
    return any(step.kind == "dot" for step in tables(model, example).steps)


def cnns(first: int, count: int) -> list[tuple[int, nn.Module, Tensor]]:
    """So many random CNNs that 8 bits carry."""
    found: list[tuple[int, nn.Module, Tensor]] = []
    while len(found) < count:
        model, example = random_cnn(first)
        if not multiplies(model, example):
            found.append((first, model, example))
        first += 1
    return found


def plain(found: Tables, x: NDArray[np.float32]) -> list[int]:
    """The bytes of memory after all steps, unit by unit, as the formula says."""
    assert found.int8 is not None
    memory = [0] * found.size
    begin = 0
    for shape, coding in zip(found.inputs, found.int8.inputs, strict=True):
        size = int(np.prod(shape))
        memory[begin : begin + size] = coding.encoded(x.reshape(-1)[begin : begin + size]).tolist()
        begin += size
    for step, r in zip(found.steps, found.int8.steps, strict=True):

        def made(total: int, bias: Any, multiplier: Any, extra: int, r: Any = r) -> int:
            scaled = ((total + int(bias)) >> r.before) * int(multiplier)
            q = (scaled + r.beside * extra + r.offset) >> r.after
            q = min(max(q, r.low), r.high)
            return q if r.table is None else int(r.table[q])

        if not isinstance(step, Loop):
            ends, values, instance = np.cumsum(step.fan), {}, 0
            for group, count in enumerate(step.count):
                terms = range(int(ends[group] - step.fan[group]), int(ends[group]))
                for _ in range(count):
                    reads = [memory[step.terms[t] + step.offsets[instance]] for t in terms]
                    total = max(reads, default=0)
                    if step.kind == "sum":
                        weights = [int(step.weights[t]) for t in terms]
                        total = sum(w * q for w, q in zip(weights, reads, strict=True))
                    values[int(step.outs[instance])] = made(
                        total, step.bias[group], step.scale[group], r.absent
                    )
                    instance += 1
            for at, value in values.items():
                memory[at] = value
            continue
        for c in range(step.shape[0]):
            taps = step.tap_addresses(c)
            weights = [1] * len(taps) if step.shared else step.weights[step.spans(c)].tolist()
            for y in range(step.shape[1]):
                for x_ in range(step.shape[2]):
                    away = y * step.stride[0] + x_ * step.stride[1]
                    reads = [memory[t + away] for t in taps]
                    total = sum(w * q for w, q in zip(weights, reads, strict=True))
                    place = y * step.out[2] + x_ * step.out[3]
                    extra = r.absent
                    if len(step.extras) and step.extras[c] >= 0:
                        extra = memory[step.extras[c] + place]
                    total = max(reads) if step.kind == "peak" else total
                    memory[step.out[0] + c * step.out[1] + place] = made(
                        total, step.bias[c], step.scale[c], extra
                    )
        for at in step.cleared():
            memory[at] = r.zero
    return memory


def test_the_interpreter_computes_the_formula() -> None:
    seen = set()
    for _, model, example in [*cnns(500, 4), (0, Mlp(), torch.zeros(1, 20))]:
        found, x = eight(model, example)
        seen |= {step.kind for step in found.steps}
        assert found.int8 is not None
        memory = np.array(plain(found, x[:1]), np.uint8)
        right, begin = [], 0
        for shape, coding in zip(found.outputs, found.int8.outputs, strict=True):
            end = begin + int(np.prod(shape))
            right.append(coding.decoded(memory[found.results[begin:end]]))
            begin = end
        np.testing.assert_array_equal(interpreted(found, x[:1])[0], np.concatenate(right))
    assert {"conv", "sum"} < seen


def test_random_networks_lose_little() -> None:
    """The error is a few hundredths of how much outputs vary."""
    kinds = set()
    for seed, model, example in cnns(600, 12):
        found, x = eight(model, example)
        kinds |= {step.kind for step in found.steps}
        with torch.no_grad():
            right = model(torch.from_numpy(x)).reshape(SAMPLES, -1).numpy()
        error = np.sqrt(((interpreted(found, x) - right) ** 2).mean())
        assert error <= 0.06 * max(right.std(), np.abs(right).mean()), seed
    assert set(LOOPS) <= kinds


@pytest.mark.parametrize("first", [700, 750])
def test_the_file_and_the_runtime(first: int, tmp_path: Path) -> None:
    tool("gcc", "clang", "cc")
    for seed, model, example in [*cnns(first, 6), (0, Mlp(), torch.zeros(1, 20))]:
        found, x = eight(model, example)
        right = interpreted(found, x)
        data = to_bytes(found)
        assert to_bytes(read_bytes(data)) == data
        np.testing.assert_array_equal(interpreted(read_bytes(data), x), right)
        (tmp_path / "model.trellis").write_bytes(data)
        made = trellis.Runtime(tmp_path / "model.trellis").predict(x).reshape(SAMPLES, -1)
        np.testing.assert_array_equal(made, right, str(seed))


@pytest.mark.parametrize("seed", [800, 820, 840])
def test_c_with_vectors_and_without(seed: int, tmp_path: Path) -> None:
    [(_, model, example)] = cnns(seed, 1)
    exported_equals(model, example, tmp_path, SANITIZED, ("-O2", "-DTRELLIS_SCALAR"))


def test_c_of_a_perceptron(tmp_path: Path) -> None:
    exported_equals(Mlp(), torch.zeros(1, 20), tmp_path, SANITIZED)


def exported_equals(
    model: nn.Module, example: Tensor, folder: Path, *flags: tuple[str, ...]
) -> None:
    """Exported C, built with each of some flags, gives what the file does."""
    found, x = eight(model, example)
    trellis.export_c(found, None, folder)
    for some in flags:
        made = program(folder, torch.from_numpy(x), *some)
        np.testing.assert_array_equal(made, interpreted(found, x))


@pytest.mark.parametrize("seed", [900, 930])
def test_wasm_and_firmware(seed: int, tmp_path: Path) -> None:
    [(_, model, example)] = cnns(seed, 1)
    found, x = eight(model, example)
    right = interpreted(found, x)
    trellis.export_c(found, None, tmp_path)
    ran = emulated(tmp_path, x)  # which asserts the peak of RAM that the header states
    np.testing.assert_array_equal(ran.outputs, right)
    trellis.export_wasm(found, None, tmp_path)
    np.testing.assert_array_equal(under_node(tmp_path, x), right)


def test_memory_is_a_quarter(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3)).eval()
    x = torch.randn(4, 3, 24, 24)
    whole = trellis.export_c(model, x[:1], tmp_path, arithmetic="int8", calibration=x)
    single = trellis.export_c(model, x[:1], tmp_path, values="int8")
    outputs = 4 * 4 * 22 * 22  # single precision in both
    assert whole.ram - outputs < 0.3 * (single.ram - outputs)
    assert whole.file < 1.1 * single.file


def test_batches_of_loaders_calibrate(tmp_path: Path) -> None:
    model, x = Mlp(), torch.randn(12, 20)
    loader = [(x[:8], torch.zeros(8)), (x[8:], torch.zeros(4))]
    files = []
    for given in (x, loader, [x], x.numpy()):
        trellis.export_c(model, x[:1], tmp_path, arithmetic="int8", calibration=given)
        files.append((tmp_path / "model.trellis").read_bytes())
    assert all(file == files[0] for file in files)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"arithmetic": "int4"}, "known: 'fp32', 'int8'"),
        ({"arithmetic": "int8"}, "needs calibration"),
        ({"calibration": torch.zeros(2, 20)}, "is for arithmetic='int8'"),
        ({"arithmetic": "int8", "calibration": torch.zeros(2, 21)}, r"\(samples, 20\)"),
        ({"arithmetic": "int8", "calibration": []}, "at least one sample"),
        ({"arithmetic": "int8", "calibration": torch.full((2, 20), np.nan)}, "not finite"),
        (
            {"arithmetic": "int8", "calibration": torch.zeros(2, 20), "values": "fp16"},
            "leave out values",
        ),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(TrellisError, match=told):
        trellis.export_c(Mlp(), torch.zeros(1, 20), tmp_path, **options)


def test_products_of_activations_are_refused(tmp_path: Path) -> None:
    class Gate(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(x.roll(1, 1))

    with pytest.raises(TrellisError, match="products of two activations"):
        trellis.export_c(
            Gate(), torch.zeros(1, 4), tmp_path, arithmetic="int8", calibration=torch.randn(3, 4)
        )


def test_sums_that_could_overflow_are_refused(tmp_path: Path) -> None:
    """By both readers: a shift too small, an offset too large, a coding without a scale."""
    found, _ = eight(Mlp(), torch.zeros(1, 20))
    assert found.int8 is not None
    first, *rest = found.int8.steps
    inputs = found.int8.inputs
    for changed in (
        {"steps": (dataclasses.replace(first, before=0, offset=1 << 29), *rest)},
        {"steps": (dataclasses.replace(first, offset=(1 << 29) + 1), *rest)},
        {"steps": (dataclasses.replace(first, beside=(1 << 20) + 1), *rest)},
        {"steps": (dataclasses.replace(first, after=21), *rest)},
        {"steps": (dataclasses.replace(first, low=9, high=8), *rest)},
        {"inputs": (Coding(0.0, inputs[0].zero),)},
        {"inputs": (Coding(float("inf"), inputs[0].zero),)},
    ):
        form = dataclasses.replace(found.int8, **changed)
        refused(to_bytes(dataclasses.replace(found, int8=form)), tmp_path)


def refused(data: bytes, folder: Path) -> None:
    with pytest.raises(TrellisError, match=r"damaged or not a \.trellis file"):
        read_bytes(data)
    (folder / "bad.trellis").write_bytes(data)
    with pytest.raises(TrellisError, match=r"damaged or not a \.trellis file"):
        trellis.Runtime(folder / "bad.trellis")


def test_both_readers_take_the_same_files(tmp_path: Path) -> None:
    """Of files with a changed bit, whose checksums are right, Python and C refuse the same ones."""
    tool("gcc", "clang", "cc")
    [(_, model, example)] = cnns(980, 1)
    found, x = eight(model, example)
    whole = to_bytes(found)
    length = struct.unpack_from("<I", whole, 32)[0]
    body = whole[-length:]
    generator = np.random.default_rng(0)
    taken = 0
    for _ in range(150):
        damaged = bytearray(body)
        damaged[int(generator.integers(min(len(body), 500)))] ^= 1 << int(generator.integers(8))
        head = bytearray(whole[: len(whole) - length])
        struct.pack_into("<I", head, 36, zlib.crc32(damaged))
        struct.pack_into("<I", head, 40, zlib.crc32(head[:40]))
        data = bytes(head + damaged)
        (tmp_path / "model.trellis").write_bytes(data)
        try:
            right = interpreted(read_bytes(data), x)
        except TrellisError:
            refused(data, tmp_path)
            continue
        taken += 1
        runtime = trellis.Runtime(tmp_path / "model.trellis")
        try:
            np.testing.assert_array_equal(runtime.predict(x).reshape(SAMPLES, -1), right)
        except TrellisError:  # an output beyond single precision
            assert not np.isfinite(right).all()
    assert 0 < taken < 150


@pytest.mark.parametrize("seed", [1000, 1030])
def test_64_bit_arm(seed: int, tmp_path: Path) -> None:
    """Exported C and the kernel with NEON, under qemu."""
    [(_, model, example)] = cnns(seed, 1)
    found, x = eight(model, example)
    right = interpreted(found, x)
    write_c(found, tmp_path)
    for run in (exported, kernel):
        np.testing.assert_array_equal(run(tmp_path, torch.from_numpy(x), "-O2"), right)


@pytest.mark.parametrize("processor", NEEDS)
def test_other_processors(processor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel built for narrower vectors computes the same bytes."""
    use_kernel_for(processor, monkeypatch)
    for seed, model, example in cnns(1100, 8):
        found, x = eight(model, example)
        write_c(found, tmp_path)
        made = trellis.Runtime(tmp_path / "model.trellis").predict(x).reshape(SAMPLES, -1)
        np.testing.assert_array_equal(made, interpreted(found, x), str(seed))


def test_strides_over_shared_borders(tmp_path: Path) -> None:
    """A kernel of even width reads the border of the next row; heights odd and even."""
    shapes = ((9, 10, (10, 4)), (12, 10, (3, 4)), (7, 12, (2, 2)), (8, 8, (5, 5)))
    for height, width, window in shapes:
        first = nn.Conv2d(2, 6, window, 2, (window[0] // 2, window[1] // 2))
        model = nn.Sequential(first, nn.ReLU(), nn.Conv2d(6, 3, 3, padding=1)).eval()
        found, x = eight(model, torch.zeros(1, 2, height, width))
        write_c(found, tmp_path)
        made = trellis.Runtime(tmp_path / "model.trellis").predict(x).reshape(SAMPLES, -1)
        np.testing.assert_array_equal(made, interpreted(found, x))


def test_wide_planes(tmp_path: Path) -> None:
    """Rows, strides and borders wider than any vector; extras of channels without taps."""
    for width in (15, 33, 64, 70, 135):
        torch.manual_seed(width)
        last = nn.Conv2d(3, 3, 1)
        with torch.no_grad():
            last.weight[:2] = 0
        inner = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), last)
        model = nn.Sequential(
            Residual(inner, nn.Identity(), nn.Hardswish()), nn.Conv2d(3, 4, 3, 2, 1), nn.SiLU(),
            nn.Conv2d(4, 2, 3, 3),
        ).eval()  # fmt: skip
        found, x = eight(model, torch.zeros(1, 3, 9, width))
        write_c(found, tmp_path)
        made = trellis.Runtime(tmp_path / "model.trellis").predict(x).reshape(SAMPLES, -1)
        np.testing.assert_array_equal(made, interpreted(found, x))
        np.testing.assert_array_equal(program(tmp_path, torch.from_numpy(x), "-O2"), made)
