"""Small networks on small devices: `python bench/tinyml.py`.

MLPerf Tiny's four architectures, a temporal convolution and a U-Net, at random weights, dense and
pruned so that every weight is live. Measured: sizes of the file, of the C and of memory;
instructions of the emulated Cortex-M4F (``--firmware``); time in WebAssembly under node
(``--wasm``); time at batch 1 on one thread here, as a ratio to ONNX Runtime dense. Whatever is
timed takes turns in one run, with fresh inputs, and the least time counts. Outputs are compared
with PyTorch's before. Peers run the unpruned network. Each finished row is printed and written into
tinyml.json in --out, where it replaces the row of the same network, rate and method; ``--tables``
only prints what that file holds.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import rich
import torch
from infer import POOL, Turn, measured, near, timed
from infer_native import Driven, called, driver
from infer_peers import openvino_lives
from numpy.typing import NDArray
from report import Table
from tinyml_models import TINY, tiny
from torch import nn

import trellis

Floats = NDArray[np.float32]
RATES = (0.0, 0.8, 0.9, 0.95, 0.98)
FORMS: dict[str, dict[str, Any]] = {
    "fp32": {"values": "fp32"},
    "int8": {"values": "int8"},  # weights alone
    "int8 arithmetic": {"arithmetic": "int8"},
}
BASE = "ONNX Runtime, dense"
PACKAGES = (
    "torch", "onnxruntime", "openvino", "nncf", "ai-edge-litert", "litert-torch", "executorch",
)  # fmt: skip
ROOT = Path(__file__).parents[1]


def onnx_dense(model: nn.Module, example: torch.Tensor, folder: Path) -> Callable[[Floats], Any]:
    import onnxruntime

    path = folder / "dense.onnx"
    torch.onnx.export(model, (example,), str(path), dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    entry = session.get_inputs()[0].name
    return lambda x: session.run(None, {entry: x})


def _calibration(example: torch.Tensor, samples: int = 32) -> list[Floats]:
    return [
        np.random.default_rng(i).normal(size=example.shape).astype(np.float32)
        for i in range(samples)
    ]


def openvino_int8(model: nn.Module, example: torch.Tensor, folder: Path) -> Callable[[Floats], Any]:
    import nncf
    import openvino

    openvino_lives()  # on some virtual machines it dies with SIGILL
    converted = openvino.convert_model(model, example_input=example)
    small = nncf.quantize(converted, nncf.Dataset(_calibration(example)), subset_size=32)
    core = openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    made = core.compile_model(small, "CPU", options).create_infer_request()
    return lambda x: made.infer({0: x})


def _litert(path: Path) -> Callable[[Floats], Any]:
    from ai_edge_litert.interpreter import Interpreter

    made = Interpreter(model_path=str(path), num_threads=1)  # with XNNPACK, the default
    made.allocate_tensors()
    entry, out = made.get_input_details()[0], made.get_output_details()[0]
    small = entry["dtype"] is np.int8

    def call(x: Floats) -> Floats:
        if small:
            scale, zero = entry["quantization"]
            x = np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)
        made.set_tensor(entry["index"], x)
        made.invoke()
        found: Floats = made.get_tensor(out["index"])
        if small:
            scale, zero = out["quantization"]
            found = (found.astype(np.float32) - zero) * np.float32(scale)
        return found

    return call


def litert(model: nn.Module, example: torch.Tensor, folder: Path) -> Callable[[Floats], Any]:
    import litert_torch

    path = folder / "model.tflite"
    litert_torch.convert(model, (example,)).export(str(path))
    return _litert(path)


def litert_int8(model: nn.Module, example: torch.Tensor, folder: Path) -> Callable[[Floats], Any]:
    import litert_torch
    from ai_edge_quantizer import quantizer, recipe

    path, small = folder / "model.tflite", folder / "model-int8.tflite"
    litert_torch.convert(model, (example,)).export(str(path))
    from ai_edge_litert.interpreter import Interpreter

    (entry,) = Interpreter(model_path=str(path)).get_signature_runner().get_input_details()
    made = quantizer.Quantizer(str(path), recipe.static_wi8_ai8())
    seen = made.calibrate({"serving_default": [{entry: x} for x in _calibration(example)]})
    small.unlink(missing_ok=True)
    made.quantize(seen).export_model(str(small))
    return _litert(small)


def _executorch(exported: Any, folder: Path) -> Callable[[Floats], Any]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    path = folder / "model.pte"
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    path.write_bytes(lowered.to_executorch().buffer)
    portable_lib._unsafe_reset_threadpool(1)
    program = Runtime.get().load_program(path)
    method = program.load_method("forward")

    def call(x: Floats, lives: Any = program) -> Any:  # the method does not keep its program
        return method.execute([torch.from_numpy(x)])

    return call


def executorch(model: nn.Module, example: torch.Tensor, folder: Path) -> Callable[[Floats], Any]:
    return _executorch(torch.export.export(model, (example,)), folder)


def executorch_int8(
    model: nn.Module, example: torch.Tensor, folder: Path
) -> Callable[[Floats], Any]:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    chosen = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    ready = prepare_pt2e(torch.export.export(model, (example,)).module(), chosen)
    for x in _calibration(example):
        ready(torch.from_numpy(x))
    return _executorch(torch.export.export(convert_pt2e(ready), (example,)), folder)


PEERS = {
    BASE: onnx_dense,
    "OpenVINO int8, dense": openvino_int8,
    "LiteRT, dense": litert,
    "LiteRT int8, dense": litert_int8,
    "ExecuTorch, dense": executorch,
    "ExecuTorch int8, dense": executorch_int8,
}


def pruned(name: str, rate: float, method: str) -> tuple[nn.Module, torch.Tensor]:
    model, example = tiny(name)
    if rate > 0:
        model = copy.deepcopy(model)
        # One ranking for all layers, as in `trellis.shrink`, which makes networks that are shipped.
        scope: dict[str, Any] = {"scope": "global"} if method == "closed" else {}
        trellis.prune(model, example, sparsity=rate, method=method, **scope).bake(model)
    return model, example


def firmware(folder: Path, inputs: Floats) -> dict[str, int] | str:
    """Instructions, flash and RAM on the emulated Cortex-M4F; or how much memory is missing."""
    (folder / "inputs").write_bytes(inputs.astype("<f4").tobytes())
    command = ["make", "-s", "-B", "-C", str(ROOT / "examples" / "firmware"), "run"]
    done = subprocess.run(
        [*command, f"MODEL={folder}"], capture_output=True, text=True, timeout=600
    )
    if missing := re.findall(r"region `(\w+)' overflowed by (\d+) bytes", done.stderr):
        return ", ".join(f"{region}: {int(count):,} bytes too many" for region, count in missing)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-500:])
    told = dict(line.split() for line in done.stderr.splitlines() if len(line.split()) == 2)
    text, data, bss = map(int, done.stdout.splitlines()[1].split()[:3])
    return {"instructions": int(told["instructions"]), "flash": text + data, "ram": data + bss}


def under_node(folder: Path, inputs: Floats) -> float:
    """The least seconds of an inference in WebAssembly."""
    inputs.astype("<f4").tofile(folder / "given")
    script = f"""
import {{readFileSync}} from "node:fs";
import {{openNetwork}} from "{folder}/model.mjs";
const network = await openNetwork(readFileSync("{folder}/model.wasm"));
const x = new Float32Array(readFileSync("{folder}/given").buffer.slice(0));
let least = Infinity;
for (let r = 0; r < 40; r++)
  for (let i = 0; i < x.length; i += network.inputs) {{
    const one = x.subarray(i, i + network.inputs), began = performance.now();
    network.run(one);
    least = Math.min(least, performance.now() - began);
  }}
console.log(least / 1000);
"""
    (folder / "time.mjs").write_text(script)
    done = subprocess.run(
        ["node", str(folder / "time.mjs")], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def dense_peers(
    name: str, folder: Path, chosen: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Each peer that runs the unpruned network, as a call; and why the others do not."""
    model, example = tiny(name)
    x = np.random.default_rng(1).normal(size=example.shape).astype(np.float32)
    with torch.no_grad():
        wanted = model(torch.from_numpy(x)).numpy()
    calls, refused = {}, {}
    for peer in chosen:
        here = folder / f"{name} {peer}"
        here.mkdir()
        try:
            call = PEERS[peer](model, example, here)
            near(peer, call(x), wanted, 0.3 if "int8" in peer else 1e-4)
            calls[peer] = call
        except Exception as error:
            refused[peer] = f"{type(error).__name__}: {error}".splitlines()[0][:150]
    return calls, refused


def row(
    name: str, rate: float, peers: dict[str, Any], program: Path, folder: Path,
    asked: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    """All that is measured of one network at one rate."""
    model, example = pruned(name, rate, asked.method)
    inputs = np.random.default_rng(1).normal(size=(POOL, *example.shape[1:])).astype(np.float32)
    inputs = inputs[: 64 if inputs.size > 2**22 else POOL]
    with torch.no_grad():
        wanted = model(torch.from_numpy(inputs[:1])).numpy()
    found: dict[str, Any] = {"network": name, "rate": rate, "method": asked.method}
    turns: dict[str, Turn] = {}
    drivers: list[Driven] = []
    calibration = np.random.default_rng(2).normal(size=(64, *example.shape[1:]))
    for values, options in FORMS.items():
        here = folder / f"{name}-{rate}-{values}".replace(" ", "-")
        if "arithmetic" in options:
            options = options | {"calibration": torch.from_numpy(calibration).float()}
        written = trellis.export_c(model, example, here, **options)
        found[values] = {
            "weights": written.weights, "multiplications": written.uses, "file": written.file,
            "flash": written.flash, "ram": written.ram, "c": (here / "model.c").stat().st_size,
        }  # fmt: skip
        path = here / "model.trellis"
        python = called(path)
        near(values, python(inputs[:1]), wanted, 1e-5 if values == "fp32" else 0.2)
        drivers.append(Driven(program, path, inputs, 1, 20))
        turns[f"Trellis, {values}"] = drivers[-1]
        if values != "int8":
            turn = f"Trellis, {values}, called from Python"
            turns[turn] = timed(python, inputs, 1, 20, len(inputs))
        if written.loss is not None:
            found[values]["typical_loss"] = written.loss.typical
        if asked.firmware:
            found[values]["cortex_m4f"] = firmware(here, inputs[:1])
        if asked.wasm:
            trellis.export_wasm(model, example, here, **options)
            found[values]["wasm_bytes"] = (here / "model.wasm").stat().st_size
            found[values]["wasm_seconds"] = under_node(here, inputs[:16])
    turns |= {peer: timed(call, inputs, 1, 20, len(inputs)) for peer, call in peers.items()}
    found["seconds"] = measured(turns, asked.rounds)
    for one in drivers:
        one.close()
    return found


def table(name: str, rows: list[Any]) -> Table:
    """Return a network's rows, sizes in bytes and times with their ratios."""
    lines: list[tuple[str, ...]] = []
    names = list(dict.fromkeys(key for found in rows for key in found["seconds"]))
    for key in names:
        cells = []
        for found in rows:
            time, base = found["seconds"].get(key), found["seconds"].get(BASE)
            ratio = f"{time / base:.3f} " if time and base else ""
            cells.append(f"{ratio}({time * 1e6:,.1f} µs)" if time else "")
        lines.append((key, *cells))
    for values in FORMS:
        for key, title in (
            ("weights", "weights"), ("multiplications", "multiplications"),
            ("file", "file, bytes"), ("c", "model.c, bytes"),
            ("flash", "tables in flash, bytes"), ("ram", "peak RAM, bytes"),
            ("wasm_bytes", "model.wasm, bytes"),
        ):  # fmt: skip
            if key in rows[0][values] and (values != "int8" or key not in ("weights", "ram")):
                lines.append((f"{title} ({values})", *(f"{r[values][key]:,}" for r in rows)))
        if "wasm_seconds" in rows[0][values]:
            cells = [f"{r[values]['wasm_seconds'] * 1e6:,.1f} µs" for r in rows]
            lines.append((f"WebAssembly, node ({values})", *cells))
        if "cortex_m4f" in rows[0][values]:
            boards = [r[values]["cortex_m4f"] for r in rows]
            for key in ("instructions", "flash", "ram"):
                cells = [b if isinstance(b, str) else f"{b[key]:,}" for b in boards]
                lines.append((f"Cortex-M4F: {key} ({values})", *cells))
    return Table(name, ("", *(f"{100 * found['rate']:g} %" for found in rows)), lines)


def tables(results: dict[str, Any]) -> list[Table]:
    """A table for each network and method."""
    groups: dict[str, list[Any]] = {}
    for found in results["rows"]:
        groups.setdefault(f"{found['network']}, {found['method']}", []).append(found)
    return [table(title, rows) for title, rows in groups.items()]


def stored(path: Path) -> dict[str, Any]:
    """What a file of results holds, or nothing yet."""
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {"rows": [], "refused": {}}


def store(path: Path, results: dict[str, Any], found: dict[str, Any]) -> None:
    """Write a row among the others, in the order of networks, methods and rates."""

    def key(one: dict[str, Any]) -> tuple[int, str, float]:
        return list(TINY).index(one["network"]), one["method"], one["rate"]

    results["rows"] = [one for one in results["rows"] if key(one) != key(found)]
    results["rows"] = sorted([*results["rows"], found], key=key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")


def machine() -> dict[str, str]:
    """The processor, its instruction sets that matter, and versions."""
    found = {"machine": platform.machine()}
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        told = dict(line.split("\t:", 1) for line in lines if "\t:" in line)
        told = {key.strip(): word.strip() for key, word in told.items()}
        family, model = told.get("cpu family", "?"), told.get("model", "?")
        found["processor"] = f"{told.get('model name', '?')}, family {family}, model {model}"
        sets = ("avx2", "fma", "avx512f", "avx512_vnni", "asimd")
        flags = told.get("flags", told.get("Features", "")).split()
        found["instructions"] = " ".join(word for word in sets if word in flags)
    except OSError:
        found["processor"] = platform.processor()
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="folder")
    parser.add_argument("--networks", nargs="+", choices=TINY, default=list(TINY))
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--method", default="closed", help="pruning method")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--firmware", action="store_true", help="run the emulated Cortex-M4F")
    parser.add_argument("--wasm", action="store_true", help="time WebAssembly under node")
    parser.add_argument("--tables", action="store_true", help="print the tables and stop")
    asked = parser.parse_args()
    path = asked.out / "tinyml.json"
    results = stored(path)
    if asked.tables:
        print("\n\n".join(one.markdown() for one in tables(results)))
        for network, refused in results["refused"].items():
            for peer, why in refused.items():
                print(f"- {peer} did not run {network}: {why}")
        return
    torch.set_num_threads(1)
    results["machine"] = machine()
    with tempfile.TemporaryDirectory() as name:
        program = driver(Path(name))
        for network in asked.networks:
            peers, results["refused"][network] = dense_peers(network, Path(name), asked.peers)
            for rate in asked.rates:
                found = row(network, rate, peers, program, Path(name), asked)
                store(path, results, found)
                rich.print(table(network, [found]).rich())


if __name__ == "__main__":
    main()
