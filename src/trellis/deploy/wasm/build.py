"""Build C to WebAssembly, with the compiler of the ``ziglang`` package or with clang."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from ...errors import TrellisError
from ..c.source_text import header, source
from ..c.stream_text import settings_of, stream_files
from ..native_library import Compiler, program, zig
from ..recording import work
from ..tables.form import Tables

# Square roots are one instruction: without errno, the maths library is not called. Loop strength
# reduction turns `terms[1]` into a sum that might wrap, which costs an instruction each time;
# without it, it is a load at a fixed offset, which costs nothing.
_COMPILED = (
    "-std=c99", "-O3", "-msimd128", "-mbulk-memory", "-fno-math-errno", "-mllvm", "-disable-lsr",
)  # fmt: skip
_STACK = 16384  # bytes, without the work space of the cosine transform


@dataclass(frozen=True)
class Toolchain:
    """A compiler for wasm32-wasi, and a linker that needs no C library."""

    cc: Compiler
    linker: Compiler


@functools.cache
def toolchain() -> Toolchain:
    """Return ``ziglang`` if installed, else clang with wasm-ld and the headers of wasi-libc."""
    if path := zig():
        cc = Compiler((path, "cc", "-target", "wasm32-wasi"), "ziglang")
        return Toolchain(cc, Compiler((path, "wasm-ld"), "ziglang"))
    clang, linker = program("clang"), program("wasm-ld")
    if clang and linker:
        cc = Compiler((clang, "--target=wasm32-wasi", "--sysroot=/usr"), "clang")
        return Toolchain(cc, Compiler((linker,), "wasm-ld"))
    raise TrellisError(
        "no compiler found for WebAssembly; run `pip install ziglang`, which includes one "
        "(or install clang, lld and wasi-libc)"
    )


def built(tables: Tables) -> bytes:
    """Return the bytes of ``model.wasm``: the ``model.c`` of `write_c`, and what a page calls.

    It imports nothing. If an activation needs the maths library, ``ziglang`` first builds its C
    library for WebAssembly, once, which may take a minute.
    """
    tools = toolchain()
    texts = {
        "model.h": header(tables),
        "model.c": source(tables),
        "exports.c": packaged("exports.c"),
    }
    if settings := settings_of(tables):
        texts |= stream_files(tables, settings)
        del texts["stream_main.c"]
        texts["stream_exports.c"] = packaged("stream_exports.c")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            return _compiled(tools, texts, _stack(tables), Path(scratch))
    except OSError as error:
        raise TrellisError(
            f"cannot build WebAssembly in {tempfile.gettempdir()!r}: {error.strerror or error}"
        ) from error


def _stack(tables: Tables) -> str:
    """Return the linker's option; a stack that is too small would overwrite the tables."""
    size = _STACK + work(tables.notes.get("recording") or {})
    return f"stack-size={size + -size % 16}"


def _compiled(tools: Toolchain, texts: dict[str, str], stack: str, folder: Path) -> bytes:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    objects = []
    for name in (name[:-2] for name in texts if name.endswith(".c")):
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
    """Return the text of a packaged source file."""
    return files("trellis.deploy.wasm").joinpath("source", name).read_text(encoding="utf-8")
