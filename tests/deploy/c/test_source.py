"""The packaged C: strict, and the same in every place that lists it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from tests.deploy.tools import WARNINGS, compiled, tool
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
