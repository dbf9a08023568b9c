"""Inference of pruned networks, as ratios to ONNX Runtime dense: `python bench/infer.py`.

The paper's GCN at 90, 95, 99 and 99.9 % with live masks, one thread, batch 1 and 64, fresh inputs
at every call. All contenders of a row take turns in one run; the least time of each counts, since
whatever else a machine does only ever adds. Our kernel is timed inside a C driver, and from Python
apart. Every contender's outputs are compared with PyTorch's before it is timed. Prints tables and
writes infer.md and infer.json into --out.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import rich
import torch
from infer_models import RATES, Pruned, pruned
from infer_native import Driven, Limits, called, driver, limits
from infer_peers import PEERS, Floats
from report import Table

BASE = "ONNX Runtime, dense"
GOALS = {
    1: {0.9: 0.25, 0.95: 0.14, 0.99: 0.05, 0.999: 0.006},
    64: {0.9: 0.25, 0.95: 0.15, 0.99: 0.04, 0.999: 0.007},
}
SIZES = {0.99: 60_000, 0.999: 13_000}
PACKAGES = ("torch", "onnxruntime", "openvino", "nncf", "scipy")
POOL = 512  # different samples

Turn = Callable[[], float]


def timed(
    call: Callable[[Floats], object], inputs: Floats, batch: int, calls: int, pool: int = POOL
) -> Turn:
    """A turn of a Python contender: the least seconds of so many calls."""
    parts = [np.ascontiguousarray(inputs[i : i + batch]) for i in range(0, pool - batch + 1, batch)]
    place = [0]

    def turn() -> float:
        least = float("inf")
        for _ in range(calls):
            start = time.perf_counter()
            call(parts[place[0]])
            least = min(least, time.perf_counter() - start)
            place[0] = (place[0] + 1) % len(parts)
        return least

    return turn


def outputs(found: object) -> Floats:
    while isinstance(found, list | tuple):
        found = found[0]
    if hasattr(found, "values") and not isinstance(found, torch.Tensor | np.ndarray):
        found = next(iter(found.values()))
    return np.asarray(found, np.float32)


def turns(
    network: Pruned, batch: int, program: Path, folder: Path, asked: argparse.Namespace
) -> tuple[dict[str, Turn], dict[str, str], list[Driven]]:
    """What takes turns, why others do not, and what to close in the end."""
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(POOL, 21, 96)).astype(np.float32)
    with torch.inference_mode():
        wanted = network.model(torch.from_numpy(inputs[:batch])).numpy()
    calls = 20 if batch == 1 else 3
    made: dict[str, Turn] = {}
    refused: dict[str, str] = {}
    drivers: list[Driven] = []
    for values, path in network.files.items():
        name = f"Trellis, {values}"
        drivers.append(Driven(program, path, inputs, batch, calls))
        made[name] = drivers[-1]
        python = called(path)
        near(name, python(inputs[:batch]), wanted, 1e-5 if values == "fp32" else 0.2)
        if values == "fp32":
            made[f"{name}, called from Python"] = timed(python, inputs, batch, calls)
    for name in asked.peers:
        try:
            call = PEERS[name](network.model, batch, folder)
            near(name, call(inputs[:batch]), wanted, 0.3 if "int8" in name else 1e-4)
            made[name] = timed(call, inputs, batch, calls)
        except Exception as error:
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            refused[name] = told[:200]
    return made, refused, drivers


def near(name: str, found: object, wanted: Floats, share: float) -> None:
    error = float(np.abs(outputs(found).reshape(wanted.shape) - wanted).max())
    if not error <= share * float(np.abs(wanted).max()):
        raise RuntimeError(f"{name} computes something else (off by {error:.3g})")


def measured(made: dict[str, Turn], rounds: int) -> dict[str, float]:
    """The least of every contender, in seconds a call, all of them taking turns."""
    for turn in made.values():
        turn()
    best = dict.fromkeys(made, float("inf"))
    for _ in range(rounds):
        for name, turn in made.items():
            best[name] = min(best[name], turn())
    return best


def bounds(network: Pruned, batch: int, limit: Limits) -> dict[str, float]:
    """Seconds that a float32 kernel on one thread needs at least, if it uses every weight."""
    found = {"limit by multiply-adds": network.plain.uses * batch * limit.multiply_add}
    if batch == 1:
        found["limit by reading weights"] = limit.reading[4 * network.plain.weights]
    return found


def speed_table(found: dict[str, dict[str, float]], batch: int) -> Table:
    """Ratios to ONNX Runtime dense, with microseconds, a column a rate."""
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    rows = []
    for name in names:
        cells = [name]
        for row in found.values():
            cells.append(
                f"{row[name] / row[BASE]:.3g} ({row[name] * 1e6:,.3g} µs)" if name in row else ""
            )
        rows.append(cells)
    rows.append(["goal", *(f"{GOALS[batch][float(rate)]:g}" for rate in found)])
    head = ("contender", *(f"{100 * float(rate):g} %" for rate in found))
    return Table(f"Batch {batch}: ratio to {BASE} (least time of a call)", head, rows)


def size_table(networks: dict[str, Pruned]) -> Table:
    rows = [
        (
            f"{100 * network.rate:g} %",
            f"{network.plain.weights:,}",
            f"{network.plain.uses:,}",
            *(f"{path.stat().st_size:,}" for path in network.files.values()),
            f"{SIZES[network.rate]:,}" if network.rate in SIZES else "",
        )
        for network in networks.values()
    ]
    head = ("rate", "weights", "multiplications", "fp32, bytes", "int8, bytes", "goal of int8")
    return Table("Files", head, rows)


def versions() -> dict[str, str]:
    found = {"processor": _processor(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _processor() -> str:
    """Its name and the widths of its vectors, as Linux tells them; else its family."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    name = facts.get("model name", platform.machine())
    able = facts.get("flags", "").split()
    sets = [word for word in ("avx2", "fma", "avx512f", "avx512_vnni") if word in able]
    kind = [f"{key} {facts[key]}" for key in ("cpu family", "model") if key in facts]
    return f"{name} ({', '.join([*kind, *sets])})"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="folder")
    parser.add_argument("--rates", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--batches", nargs="+", type=int, choices=(1, 64), default=[1, 64])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if BASE not in asked.peers:
        asked.peers.insert(0, BASE)
    return asked


def main() -> None:
    asked = arguments()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"versions": versions(), "seconds": {}, "refused": {}}
    tables = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = driver(folder)
        networks = {str(rate): pruned(rate, asked.seed, folder) for rate in asked.rates}
        limit = limits(folder, [4 * network.plain.weights for network in networks.values()])
        for batch in asked.batches:
            found = {}
            for rate, network in networks.items():
                made, refused, drivers = turns(network, batch, program, folder, asked)
                found[rate] = measured(made, asked.rounds if batch == 1 else asked.rounds // 4)
                found[rate] |= bounds(network, batch, limit)
                results["refused"] |= refused
                for one in drivers:
                    one.close()
            results["seconds"][str(batch)] = found
            tables.append(speed_table(found, batch))
        tables.append(size_table(networks))
    for table in tables:
        rich.print(table.rich())
    notes = [f"- {peer} did not run: {why}" for peer, why in results["refused"].items()]
    print("\n".join(notes))
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "infer.json").write_text(json.dumps(results, indent=1) + "\n")
    facts = ", ".join(f"{key} {value}" for key, value in results["versions"].items())
    parts = ["# Running pruned networks", f"Measured with {facts}, one thread."]
    parts += [table.markdown() for table in tables] + (["\n".join(notes)] if notes else [])
    (asked.out / "infer.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
