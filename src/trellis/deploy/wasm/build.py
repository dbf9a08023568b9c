"""From C to WebAssembly, by the compiler of the ``ziglang`` package or by clang."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ...errors import TrellisError
from ..c.source_text import header, source
from ..native_library import Compiler, program, zig
from ..recording import work
from ..tables.form import Tables

# Square roots are an instruction: without an errno to set, nothing of the maths library is called.
# Loop strength reduction makes of `terms[1]` a sum that might wrap, an instruction each time; left
# alone it is a load at a fixed distance, which costs nothing.
_COMPILED = (
    "-std=c99", "-O3", "-msimd128", "-mbulk-memory", "-fno-math-errno", "-mllvm", "-disable-lsr",
)  # fmt: skip
_STACK = 16384  # bytes, beside what the cosine transform works in


@dataclass(frozen=True)
class Toolchain:
    """A compiler for wasm32-wasi, and a linker that needs no C library."""

    cc: Compiler
    linker: Compiler


@functools.cache
def toolchain() -> Toolchain:
    """``ziglang`` where it is installed, else clang with wasm-ld and the headers of wasi-libc."""
    if path := zig():
        cc = Compiler((path, "cc", "-target", "wasm32-wasi"), "ziglang")
        return Toolchain(cc, Compiler((path, "wasm-ld"), "ziglang"))
    clang, linker = program("clang"), program("wasm-ld")
    if clang and linker:
        cc = Compiler((clang, "--target=wasm32-wasi", "--sysroot=/usr"), "clang")
        return Toolchain(cc, Compiler((linker,), "wasm-ld"))
    raise TrellisError(
        "there is no compiler for WebAssembly: `pip install ziglang` brings one "
        "(or install clang, lld and wasi-libc)"
    )


def built(tables: Tables) -> bytes:
    """The bytes of ``model.wasm``: ``model.c`` as `write_c` writes it, and what a page calls.

    It imports nothing. Where an activation needs the maths library, ``ziglang`` first builds its C
    library for WebAssembly, once: that may take a minute.
    """
    tools = toolchain()
    texts = {
        "model.h": header(tables),
        "model.c": source(tables),
        "exports.c": packaged("exports.c"),
    }
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return _compiled(tools, texts, _stack(tables), Path(scratch))
    except OSError as error:
        raise TrellisError(
            f"cannot build WebAssembly in {tempfile.gettempdir()!r}: {error.strerror or error}"
        ) from error


def _stack(tables: Tables) -> str:
    """The linker's option: a stack too small would run into the tables, and nobody would notice."""
    size = _STACK + work(tables.notes.get("recording") or {})
    return f"stack-size={size + -size % 16}"


def _compiled(tools: Toolchain, texts: dict[str, str], stack: str, folder: Path) -> bytes:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    objects = []
    for name in ("model", "exports"):
        objects.append(str(folder / f"{name}.o"))
        tools.cc.run([*_COMPILED, "-c", "-o", objects[-1], str(folder / f"{name}.c")])
    target = folder / "model.wasm"
    if "#define TRELLIS_NO_MATH" in texts["model.c"]:
        options = ["--no-entry", "--strip-all", "-z", stack]
        tools.linker.run([*options, "-o", str(target), *objects])
    else:
        options = ["-O3", "-mexec-model=reactor", "-Wl,--strip-all", f"-Wl,-z,{stack}"]
        tools.cc.run([*options, "-o", str(target), *objects, "-lm"])
    return target.read_bytes()


def packaged(name: str) -> str:
    """The text of one of the files that a page or a module is made from."""
    return files("trellis.deploy.wasm").joinpath("source", name).read_text(encoding="utf-8")
