"""`trellis.Runtime` beyond equality: threads, shapes, compilers, caches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import trellis
from tests.deploy.c.test_main import described, recogniser, recording
from tests.deploy.networks import paper
from tests.deploy.tools import tool
from trellis.deploy import native_library as cache
from trellis.deploy import native_library as compiler
from trellis.deploy import native_library as library
from trellis.errors import TrellisError


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    tool("gcc", "clang", "cc")


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.a(x) + self.b(y)
        return z, z.reshape(-1, 2, 2).exp()


def opened(model: nn.Module, x: Any, folder: Path, **options: Any) -> trellis.Runtime:
    trellis.export_c(model, x, folder, **options)
    return trellis.Runtime(folder / "model.trellis")


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    model = Two()
    x, y = torch.randn(7, 3), torch.randn(7, 2)
    network = opened(model, (x[:1], y[:1]), tmp_path)
    for found, wanted in zip(network.predict(x, y), model(x, y), strict=True):
        np.testing.assert_allclose(found, wanted.detach(), rtol=1e-5, atol=1e-6)
    first, second = network.predict(x[0].tolist(), y[0].numpy())
    assert first.shape == (4,) and second.shape == (2, 2)
    with pytest.raises(TrellisError, match="expected 2 inputs, got 1"):
        network.predict(x)


@pytest.mark.parametrize("batch", [0, 1, 2, 3, 4, 15, 16, 17, 33])
def test_any_batch(batch: int, tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    x = torch.randn(batch, 3)
    found = opened(model, torch.zeros(1, 3), tmp_path).predict(x)
    np.testing.assert_allclose(found, model(x).detach(), rtol=1e-5, atol=1e-6)


def test_wrong_shapes_are_told(tmp_path: Path) -> None:
    network = opened(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path)
    for wrong in (np.zeros(4), np.zeros((2, 4)), np.zeros((2, 3, 1)), 1.0):
        with pytest.raises(TrellisError, match=r"expected an input of shape \(3,\)"):
            network.predict(wrong)
    with pytest.raises(TrellisError, match="expected an array of numbers"):
        network.predict("abc")
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(TrellisError, match="not finite"):
            network.predict([[0.0, 1.0, 2.0], [0.0, value, 2.0]])


class Own(np.ndarray[Any, np.dtype[Any]]):
    """An array of another class."""


def test_one_sample_in_any_form(tmp_path: Path) -> None:
    """Strides, orders of bytes, subclasses, other types and tensors with gradients."""
    model = nn.Linear(6, 2)
    network = opened(model, torch.zeros(1, 6), tmp_path)
    x = np.linspace(-1, 1, 6, dtype=np.float32)
    wanted = network.predict(x)
    np.testing.assert_allclose(wanted, model(torch.from_numpy(x)).detach(), rtol=1e-5, atol=1e-6)
    frozen = x.copy()
    frozen.flags.writeable = False
    for given in (
        frozen, np.repeat(x, 3)[::3], x[::-1].copy()[::-1], x.astype(">f4"), x.astype(np.float64),
        x.view(Own), x.tolist(), torch.from_numpy(x), torch.from_numpy(x).requires_grad_(),
        torch.from_numpy(np.repeat(x, 2))[::2],
    ):  # fmt: skip
        found = network.predict(given)
        np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)
        np.testing.assert_array_equal(network.predict(x[None]), wanted[None])


def test_tensors_of_half_the_width(tmp_path: Path) -> None:
    network = opened(nn.Linear(6, 2), torch.zeros(1, 6), tmp_path)
    x = torch.arange(12.0).reshape(2, 6) / 4  # exact in each type
    for kind in (torch.float16, torch.bfloat16):
        for given in (x, x[0]):
            narrow = given.to(kind).requires_grad_()
            np.testing.assert_array_equal(network.predict(narrow), network.predict(given))


def test_outputs_are_the_callers_own(tmp_path: Path) -> None:
    network = opened(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path)
    x = np.ones(3, np.float32)
    first = network.predict(x)
    kept = first.copy()
    second = network.predict(2 * x)
    np.testing.assert_array_equal(first, kept)
    second[:] = 7
    np.testing.assert_array_equal(network.predict(x), kept)
    np.testing.assert_array_equal(x, np.ones(3, np.float32))


def test_a_call_within_a_call(tmp_path: Path) -> None:
    """A signal handler may predict between any two steps of an interrupted call."""
    network = opened(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path)
    x = np.array([1.0, 2.0, 3.0], np.float32)
    wanted, inside = network.predict(x), 0

    def step(frame: Any, event: str, argument: Any) -> Any:
        nonlocal inside
        sys.settrace(None)
        network.predict(-5 * x)
        inside += 1
        sys.settrace(step)
        return step

    sys.settrace(step)
    try:
        found = network.predict(x)
    finally:
        sys.settrace(None)
    assert inside > 5
    np.testing.assert_array_equal(found, wanted)


def test_what_is_not_finite_is_told_every_time(tmp_path: Path) -> None:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight[:] = 3e38
    network = opened(model, torch.zeros(1, 2), tmp_path)
    large, wrong = np.ones((1, 2), np.float32), np.array([[1, np.nan]], np.float32)
    right = np.array([[0.25, 0.25]], np.float32)
    for batch in (1, 2, 40):
        for _ in range(2):
            with pytest.raises(TrellisError, match="an output is not finite"):
                network.predict(np.repeat(large, batch, 0))
            with pytest.raises(TrellisError, match="an input holds a number that is not finite"):
                network.predict(np.repeat(wrong, batch, 0))
            np.testing.assert_allclose(network.predict(np.repeat(right, batch, 0)), 1.5e38)


def test_large_inputs(tmp_path: Path) -> None:
    model = nn.Linear(20_000, 2)
    with torch.no_grad():
        model.weight[:, ::2] = 0
    network = opened(model, torch.zeros(1, 20_000), tmp_path)
    x = torch.randn(3, 20_000)
    wanted = model(x).detach()
    np.testing.assert_allclose(network.predict(x), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(network.predict(x[0]), wanted[0], rtol=1e-4, atol=1e-4)


def test_threads_share_a_model(tmp_path: Path) -> None:
    model, example = paper(0.99)
    network = opened(model, example, tmp_path)
    x = torch.randn(8, 6, *example.shape[1:]).numpy()
    wanted = [network.predict(part) for part in x]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, right in zip(pool.map(network.predict, x), wanted, strict=True):
                np.testing.assert_array_equal(found, right)


def test_recordings(tmp_path: Path) -> None:
    one = recogniser()
    network = opened(one.model, torch.zeros(1, 3, 12), tmp_path, **described(one))
    assert network.classes == list(one.classes)
    given = [recording(frames) for frames in (1, 3, 4, 50)]
    np.testing.assert_allclose(network.prepared(given), one.inputs(given), atol=1e-6)
    with pytest.raises(TrellisError, match="recording 1: expected"):
        network.prepared([given[0], np.zeros((2, 4, 3))])


def test_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built into an empty cache once; found there again even without a compiler at work."""
    trellis.export_c(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path / "model")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = (
        "import sys, trellis; from trellis.deploy.native_library import Compiler\n"
        "if len(sys.argv) > 2: Compiler.run = None\n"
        "print(trellis.Runtime(sys.argv[1]).predict([1.0, 2.0, 3.0]).shape)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "model" / "model.trellis")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for more in ([], ["again"]):
        done = subprocess.run([*words, *more], capture_output=True, text=True, env=environment)
        assert done.stdout == "(2,)\n", done.stderr
    assert len(list((tmp_path / "cache" / "trellis").iterdir())) == 1


def test_a_cache_that_others_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "trellis"
    (tmp_path / "trellis").chmod(0o777)
    assert cache.folder() != tmp_path / "trellis"


@pytest.fixture
def anew() -> Iterator[None]:
    """A compiler is looked for once in a process: here once more, and afterwards again."""
    compiler.compiler.cache_clear()
    yield
    compiler.compiler.cache_clear()


def test_no_code_of_the_current_folder_is_run(
    anew: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as a module nor through a path with an empty or relative entry."""
    pytest.importorskip("ziglang", reason="missing package: ziglang (pip install ziglang)")
    monkeypatch.chdir(tmp_path)
    Path("ziglang.py").write_text("open('ran', 'w')\n")
    Path("ziglang").mkdir()
    Path("ziglang", "__init__.py").touch()
    programs = [Path(name) for name in ("cc", "gcc", "clang", "as", "ld", "ziglang/zig")]
    for path in programs:
        path.write_text("#!/bin/sh\ntouch ran\n")
        path.chmod(0o755)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    monkeypatch.delenv("CC", raising=False)
    system = os.environ["PATH"]
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", "ziglang"]))  # ziglang alone is left
    assert Path(compiler.compiler().command[0]).name.startswith("zig")
    assert not Path("ran").exists()
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", system]))
    monkeypatch.setenv("CC", Path(tool("gcc", "clang", "cc")).name)
    compiler.compiler.cache_clear()
    Path("one.c").write_text("int main(void) { return 0; }\n")
    compiler.compiler().run(["-o", "one", "one.c"])
    assert Path("one").exists() and not Path("ran").exists()


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of one's own, and libraries that are not optimised."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "FLAGS", tuple(f.replace("-O3", "-O0") for f in library.FLAGS))


@pytest.mark.parametrize("damage", ["empty", "cut", "others", "link", "owner"])
def test_a_kept_library_that_cannot_be_trusted_is_built_again(
    quick: None, damage: str, tmp_path: Path
) -> None:
    path = library.built()
    content = path.read_bytes()
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "others":
        path.chmod(0o666)
    elif damage == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif os.getuid() == 0:
        os.chown(path, 12345, -1)
    again = library.built()
    assert not again.is_symlink() and again.stat().st_uid == os.getuid()
    assert again.read_bytes()[:4] == content[:4] and not again.stat().st_mode & 0o022
    library.library.cache_clear()
    try:
        assert library.library().trellis_open is not None
    finally:
        library.library.cache_clear()
    written = again.stat().st_mtime_ns
    assert library.built() == again and again.stat().st_mtime_ns == written


@pytest.mark.parametrize("given", ['gcc "', "no-such-compiler", "false"])
def test_what_cannot_be_called_as_a_compiler_is_told(
    anew: None, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", given)
    with pytest.raises(TrellisError, match=f"CC={given!r}"):
        compiler.compiler()


def test_without_a_home_it_is_built_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache.folder().is_dir() and cache.private(cache.folder())
    monkeypatch.setattr(Path, "home", lambda: Path("relative"))
    assert cache.folder().is_absolute()


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_candidates", list)
    compiler.compiler.cache_clear()
    try:
        with pytest.raises(TrellisError, match=r"no C compiler.*pip install ziglang"):
            compiler.compiler()
    finally:
        compiler.compiler.cache_clear()


def test_what_a_compiler_says_is_told() -> None:
    with pytest.raises(TrellisError, match="cannot build the run-time"):
        compiler.compiler().run(["-c", "nothing-here.c"])


def test_ziglang_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang", reason="missing package: ziglang (pip install ziglang)")
    trellis.export_c(nn.Linear(3, 2), torch.zeros(1, 3), tmp_path / "model")
    code = "import sys, trellis; print(trellis.Runtime(sys.argv[1]).predict([1.0, 2.0, 3.0]).shape)"
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(tmp_path),
        "CC": f"{sys.executable} -m ziglang cc",
    }  # fmt: skip
    words = [sys.executable, "-c", code, str(tmp_path / "model" / "model.trellis")]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.stdout == "(2,)\n", done.stderr
