"""Small networks on small devices: `python bench/tinyml.py`.

MLPerf Tiny's four architectures, a temporal convolution and a U-Net, at random weights, dense and
pruned so that every weight is live. Measured: sizes of the file, of the C and of memory;
instructions of the emulated Cortex-M4F (``--firmware``); time in WebAssembly under node
(``--wasm``); time at batch 1 on one thread here, as a ratio to ONNX Runtime dense. Whatever is
timed takes turns in one run, with fresh inputs, and the least time counts. Outputs are compared
with PyTorch's before. Prints a table per network and writes tinyml.md and tinyml.json into --out.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
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


def openvino_int8(model: nn.Module, example: torch.Tensor, folder: Path) -> Callable[[Floats], Any]:
    import nncf
    import openvino

    converted = openvino.convert_model(model, example_input=example)
    data = nncf.Dataset([np.random.default_rng(i).normal(size=example.shape).astype(np.float32)
                         for i in range(32)])  # fmt: skip
    core = openvino.Core()
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    request = core.compile_model(nncf.quantize(converted, data), "CPU", options)
    made = request.create_infer_request()
    return lambda x: made.infer({0: x})


def litert(model: nn.Module, example: torch.Tensor, folder: Path) -> Callable[[Floats], Any]:
    import ai_edge_torch  # LiteRT runs models that this converts

    path = folder / "model.tflite"
    ai_edge_torch.convert(model, (example,)).export(str(path))
    from ai_edge_litert.interpreter import Interpreter

    made = Interpreter(model_path=str(path), num_threads=1)
    made.allocate_tensors()
    entry, out = made.get_input_details()[0]["index"], made.get_output_details()[0]["index"]

    def call(x: Floats) -> Floats:
        made.set_tensor(entry, x)
        made.invoke()
        found: Floats = made.get_tensor(out)
        return found

    return call


def executorch(model: nn.Module, example: torch.Tensor, folder: Path) -> Callable[[Floats], Any]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    path = folder / "model.pte"
    lowered = to_edge_transform_and_lower(
        torch.export.export(model, (example,)), partitioner=[XnnpackPartitioner()]
    )
    path.write_bytes(lowered.to_executorch().buffer)
    method = Runtime.get().load_program(path).load_method("forward")
    return lambda x: method.execute([torch.from_numpy(x)])


PEERS = {
    BASE: onnx_dense,
    "OpenVINO int8, dense": openvino_int8,
    "LiteRT, dense": litert,
    "ExecuTorch, dense": executorch,
}


def pruned(name: str, rate: float, method: str) -> tuple[nn.Module, torch.Tensor]:
    model, example = tiny(name)
    if rate > 0:
        model = copy.deepcopy(model)
        trellis.prune(model, example, sparsity=rate, method=method).bake(model)
    return model, example


def firmware(folder: Path, inputs: Floats) -> dict[str, int]:
    """Instructions, flash and RAM on the emulated Cortex-M4F."""
    (folder / "inputs").write_bytes(inputs.astype("<f4").tobytes())
    command = ["make", "-s", "-B", "-C", str(ROOT / "examples" / "firmware"), "run"]
    done = subprocess.run(
        [*command, f"MODEL={folder}"], capture_output=True, text=True, timeout=600
    )
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


def row(name: str, rate: float, program: Path, folder: Path, asked: argparse.Namespace) -> Any:
    """All that is measured of one network at one rate."""
    model, example = pruned(name, rate, asked.method)
    inputs = np.random.default_rng(1).normal(size=(POOL, *example.shape[1:])).astype(np.float32)
    inputs = inputs[: 64 if inputs.size > 2**22 else POOL]
    with torch.no_grad():
        wanted = model(torch.from_numpy(inputs[:1])).numpy()
    found: dict[str, Any] = {"network": name, "rate": rate, "refused": {}}
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
    for peer in asked.peers:
        try:
            call = PEERS[peer](model, example, folder)
            near(peer, call(inputs[:1]), wanted, 0.3 if "int8" in peer else 1e-4)
            turns[peer] = timed(call, inputs, 1, 20, len(inputs))
        except Exception as error:
            found["refused"][peer] = f"{type(error).__name__}: {error}".splitlines()[0][:150]
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
        for key in ("instructions", "flash", "ram"):
            if "cortex_m4f" in rows[0][values]:
                cells = [f"{r[values]['cortex_m4f'][key]:,}" for r in rows]
                lines.append((f"Cortex-M4F: {key} ({values})", *cells))
    return Table(name, ("", *(f"{100 * found['rate']:g} %" for found in rows)), lines)


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
    for package in ("torch", "onnxruntime", "openvino", "ai-edge-litert", "executorch"):
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
    asked = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"machine": machine(), "rows": []}
    tables = []
    with tempfile.TemporaryDirectory() as name:
        program = driver(Path(name))
        for network in asked.networks:
            rows = [row(network, rate, program, Path(name), asked) for rate in asked.rates]
            results["rows"] += rows
            tables.append(table(network, rows))
            rich.print(tables[-1].rich())
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "tinyml.json").write_text(json.dumps(results, indent=1) + "\n")
    facts = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    parts = ["# Small networks", f"Measured on {facts}; one thread, batch 1."]
    parts += [one.markdown() for one in tables]
    refused = {peer: why for found in results["rows"] for peer, why in found["refused"].items()}
    parts += [f"- {peer} did not run: {why}" for peer, why in refused.items()]
    (asked.out / "tinyml.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
