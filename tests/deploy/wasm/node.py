"""Exported WebAssembly under node, through the module that lies beside it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.deploy.tools import tool

# Input by input, or recording by recording: model.mjs does what a page does.
PROGRAM = """
import {readFileSync, writeFileSync} from "node:fs";
const [folder, mode] = process.argv.slice(2);
const {openNetwork} = await import(`${folder}/model.mjs`);
const network = await openNetwork(readFileSync(`${folder}/model.wasm`));
const given = readFileSync(`${folder}/given`);
const x = new Float32Array(given.buffer.slice(given.byteOffset, given.byteOffset + given.length));
const rows = [];
if (mode === "run")
  for (let i = 0; i < x.length; i += network.inputs)
    rows.push(...network.run(x.subarray(i, i + network.inputs)));
else rows.push(...network.recorded(x, x.length / network.wasm.frame()));
writeFileSync(`${folder}/found`, Buffer.from(new Float32Array(rows).buffer));
"""


def under_node(folder: Path, given: NDArray[np.float32], mode: str = "run") -> NDArray[np.float32]:
    """The outputs of the network in a folder, for inputs (``run``) or a recording."""
    node = tool("node", package="nodejs")
    (folder / "given").write_bytes(given.astype("<f4").tobytes())
    (folder / "program.mjs").write_text(PROGRAM)
    done = subprocess.run(
        [node, str(folder / "program.mjs"), str(folder), mode],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr[:3000]
    found = np.frombuffer((folder / "found").read_bytes(), "<f4")
    return found.reshape(len(given) if mode == "run" else 1, -1)
