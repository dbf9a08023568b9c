"""The packaged C: strict, and the same in every place that lists it."""

from __future__ import annotations

import itertools
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from torch import nn

import trellis
from tests.deploy.tools import WARNINGS, compiled, tool
from trellis.deploy.c.arrays import resolved
from trellis.deploy.native_library import HEADERS, SOURCES
from trellis.deploy.tables.form import CODES

SOURCE = Path(str(files("trellis.deploy.c").joinpath("source")))


def test_lists_are_complete() -> None:
    """What the native library is built from is all that the folder holds beside what only
    exported C has."""
    exported = {
        "recording_main.c", "rows_main.c", "frame.h", "lines.h", "finite.h", "stream.c", "stream.h",
        "stream_main.c",
    }  # fmt: skip
    assert {path.name for path in SOURCE.iterdir()} == {*SOURCES, *HEADERS} | exported


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("arch", ["-march=native", "-march=x86-64-v3", "-march=x86-64"])
def test_native_library_compiles_without_warnings(cc: str, arch: str, tmp_path: Path) -> None:
    flags = [flag for flag in WARNINGS if flag != "-Wpedantic"]  # vectors are an extension
    assert len(flags) == len(WARNINGS) - 1
    sources = [SOURCE / name for name in SOURCES]
    compiled(
        sources, tmp_path / "kernel.so", "-Wno-pedantic", "-O2", "-fPIC", "-shared", arch,
        cc=tool(cc),
    )  # fmt: skip


def test_reader_is_strict_c99(tmp_path: Path) -> None:
    compiled([SOURCE / "reader.c"], tmp_path / "reader.o", "-c")


def test_activations_have_the_same_codes() -> None:
    text = (SOURCE / "activation.h").read_text()
    listed = text[text.index("enum {") + 6 : text.index("TRELLIS_ACTIVATIONS")]
    names = [name.strip().removeprefix("TRELLIS_").lower() for name in listed.split(",")]
    assert {name: i for i, name in enumerate(filter(None, names))} == CODES


KERNELS = (
    "tables.h", "activation.h", "int8.h", "int8_loops.h", "int8_rows.h", "loops.h", "sums.h",
    "kernel.h",
)  # fmt: skip
MACROS = ("TRELLIS_INT8", "TRELLIS_LOOPS", "TRELLIS_NO_PEAKS", "TRELLIS_NO_MEANS")


def preprocessed(text: str, *flags: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.startswith("#include")]
    done = subprocess.run(
        [tool("gcc", "clang", "cc"), "-E", "-P", *flags, "-"], input="\n".join(lines),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize("name", KERNELS)
def test_left_out_is_what_the_preprocessor_leaves_out(name: str) -> None:
    text = (SOURCE / name).read_text()
    for values in itertools.product([False, True], repeat=len(MACROS)):
        known = dict(zip(MACROS, values, strict=True)) | {"TRELLIS_DECODED": False}
        flags = [f"-D{macro}" for macro, value in known.items() if value]
        made = resolved(text, known)
        assert preprocessed(made, *flags) == preprocessed(text, *flags)
        assert not any(f"#ifdef {macro}" in made or f"#ifndef {macro}" in made for macro in known)


def test_exported_c_holds_the_kernels_that_it_uses_alone(tmp_path: Path) -> None:
    def exported(*last: nn.Module, arithmetic: str) -> str:
        model = nn.Sequential(nn.Conv2d(2, 8, 3), nn.ReLU(), *last).eval()
        example = torch.zeros(1, 2, 16, 16)
        seen = torch.randn(8, 2, 16, 16) if arithmetic == "int8" else None
        trellis.export_c(model, example, tmp_path, arithmetic=arithmetic, calibration=seen)
        compiled([tmp_path / "model.c"], tmp_path / "model.o", "-c", "-Wno-pedantic")
        return (tmp_path / "model.c").read_text()

    for arithmetic in ("fp32", "int8"):
        plain = exported(arithmetic=arithmetic)
        peak = exported(nn.MaxPool2d(2), arithmetic=arithmetic)
        mean = exported(nn.AdaptiveAvgPool2d(1), arithmetic=arithmetic)
        assert ["trellis_peaks" in text for text in (plain, peak, mean)] == [False, True, False]
        assert ["trellis_mean" in text for text in (plain, peak, mean)] == [False, False, True]
        assert "TRELLIS_DECODED" not in plain
