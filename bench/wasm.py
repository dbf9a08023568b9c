"""WebAssembly beside the same source built natively with 128-bit vectors: `python bench/wasm.py`.

The paper's GCN, pruned so that every weight is live, batch 1, fresh inputs at every call, one
thread. The same model.c is built by every C compiler that is here, all with ``-O3`` for the same
instructions (x86-64-v2: vectors of 128 bits up to SSE4.2, no AVX, no FMA), and runs in node and,
where playwright and Chromium are installed, in a browser. All take turns; the least time of each
counts, since whatever else a machine does only ever adds. The last outputs of each are compared
first.
"""

from __future__ import annotations

import argparse
import base64
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import rich
import torch
from infer_models import EXAMPLE, dense
from report import Table

import trellis
from trellis.deploy.native_library import zig

GOAL, POOL, ROUNDS = 1.3, 64, 200
X86 = platform.machine() in ("x86_64", "AMD64")
# 128 bits, no more. Of other processors, vectors of 128 bits are what compilers take by default.
VECTORS = ["-march=x86-64-v2"] if X86 else []
ZIG_VECTORS = ["-mcpu=x86_64_v2"] if X86 else []  # for this very processor if it is not told
LOOP = """
async (openNetwork, bytes, given, now, rounds) => {
  const {wasm, inputs, outputs} = await openNetwork(bytes);
  const at = (wasm.free() + 15) & ~15;
  wasm.memory.grow(Math.ceil(given.length / 16384) + 1);
  new Float32Array(wasm.memory.buffer, at, given.length).set(given);
  let least = Infinity;
  for (let r = 0; r < rounds; r++) {
    const began = now();
    // Clocks in browsers are coarse: several times through the pool.
    for (let k = 0; k < 8; k++)
      for (let i = 0; i < given.length; i += inputs) wasm.run(at + 4 * i);
    least = Math.min(least, (now() - began) * 1e6 / (8 * given.length / inputs));
  }
  return [least, ...new Float32Array(wasm.memory.buffer, wasm.output(), outputs)];
}
"""
Turn = Callable[[], list[float]]  # nanoseconds, then the last outputs


def native(folder: Path, name: str, command: list[str], vectors: list[str] = VECTORS) -> Turn:
    program = folder / f"driver-{name}"
    main = str(Path(__file__).with_name("wasm_driver.c"))
    flags = ["-std=c99", "-O3", *vectors, f"-I{folder}", "-o", str(program)]
    subprocess.run([*command, *flags, main, str(folder / "model.c"), "-lm"], check=True)

    def turn() -> list[float]:
        with (folder / "inputs").open("rb") as data:
            done = subprocess.run(
                [str(program), str(ROUNDS)], stdin=data, capture_output=True, text=True, check=True
            )
        return [float(line) for line in done.stdout.split()]

    return turn


def node(folder: Path) -> Turn:
    script = f"""
import {{readFileSync}} from "node:fs";
import {{openNetwork}} from "{folder}/model.mjs";
const given = new Float32Array(readFileSync("{folder}/inputs").buffer.slice(0));
const bytes = readFileSync("{folder}/model.wasm"), now = () => performance.now();
console.log(JSON.stringify(await ({LOOP})(openNetwork, bytes, given, now, {ROUNDS})));
"""
    (folder / "loop.mjs").write_text(script)

    def turn() -> list[float]:
        command = ["node", str(folder / "loop.mjs")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return list(json.loads(done.stdout))

    return turn


@contextmanager
def chromium(folder: Path, program: str) -> Iterator[Turn]:
    from playwright.sync_api import sync_playwright

    module = (folder / "model.mjs").read_text().replace("export {openNetwork};", "")
    words = [base64.b64encode((folder / name).read_bytes()).decode()
             for name in ("model.wasm", "inputs")]  # fmt: skip
    script = f"""async ([wasm, inputs]) => {{
      {module}
      const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
      const given = new Float32Array(bytes(inputs).buffer), now = () => performance.now();
      return await ({LOOP})(openNetwork, bytes(wasm), given, now, {ROUNDS});
    }}"""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()
        yield lambda: list(page.evaluate(script, words))
        browser.close()


def contenders(folder: Path, stack: ExitStack) -> dict[str, Turn]:
    found = {}
    for name in ("gcc", "clang"):
        if path := shutil.which(name):
            found[f"native, {name}"] = native(folder, name, [path])
    if path := zig():
        found["native, ziglang"] = native(folder, "zig", [path, "cc"], ZIG_VECTORS)
    if shutil.which("node"):
        found["wasm, node"] = node(folder)
    if program := shutil.which("chromium"):
        try:
            found["wasm, Chromium"] = stack.enter_context(chromium(folder, program))
        except ImportError:
            print("playwright is not installed: Chromium is left out", file=sys.stderr)
    return found


def timed(rate: float, values: str, turns: int, folder: Path) -> dict[str, float]:
    model = dense(0)
    trellis.prune(model, EXAMPLE, sparsity=rate)
    trellis.export_c(model, EXAMPLE, folder, values=values)
    trellis.export_wasm(model, EXAMPLE, folder, values=values)
    x = torch.randn(POOL, *EXAMPLE.shape[1:])
    x.numpy().astype("<f4").tofile(folder / "inputs")
    with torch.no_grad():
        wanted = model(x[-1:])[0].numpy()
    least: dict[str, float] = {}
    with ExitStack() as stack:
        found = contenders(folder, stack)
        for _ in range(turns):
            for name, turn in found.items():
                time, *outputs = turn()
                off = np.abs(np.array(outputs) - wanted).max() / np.abs(wanted).max()
                assert off < {"fp32": 1e-5, "int8": 5e-2}[values], (name, off)
                least[name] = min(time, least.get(name, np.inf))
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.999])
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    for rate in given.rates:
        for values in ("fp32", "int8"):
            with tempfile.TemporaryDirectory() as folder:
                least = timed(rate, values, given.turns, Path(folder))
            natives = {name: t for name, t in least.items() if name.startswith("native")}
            rows = [
                (name, f"{t / 1000:.2f}", *(f"{t / other:.2f}" for other in natives.values()))
                for name, t in least.items()
            ]
            title = f"{100 * rate:g} % pruned, {values}: µs an inference, and ratios (goal: {GOAL})"
            title += "; native builds have 128-bit vectors, " + (" ".join(VECTORS) or "by default")
            rich.print(Table(title, ("", "µs", *(f"to {name}" for name in natives)), rows).rich())


if __name__ == "__main__":
    main()
