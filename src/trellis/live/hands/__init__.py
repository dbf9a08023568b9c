"""The hand detector of the page: ``@mediapipe/hands``, fetched once by npm and cached.

``package-lock.json`` beside this file has the hash of the package, which npm checks. `FILES` has
the hash of every file that is served, and a file that differs is never served.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

from ...deploy.native_library import folder as cache_folder
from ...errors import TrellisError

VERSION = "0.4.1675469240"
FILES = {
    "hands.js": "a68b21c9553d614384f7f459622e46e02e3c9cfdf7392915a2fa1d615e338473",
    "hands.binarypb": "ab76c4215fca99cc2db1b5885cb8398d210e59ebe685245f72e692b4b58421e4",
    "hands_solution_packed_assets.data": (
        "bdce7b66bfc5b39ba86a47775c98e0b186fe73f8308c2279f852af4c89ffdf42"
    ),
    "hands_solution_packed_assets_loader.js": (
        "d05c073a62a0c8d2d21c18bc8f158424ece0078ea00a636e9527083b10ca1e17"
    ),
    "hands_solution_simd_wasm_bin.js": (
        "7720172e0775636e64955fb1091958c8294e01aa100c3272b59b2a543c028cb5"
    ),
    "hands_solution_simd_wasm_bin.wasm": (
        "78ef7eb86ebc6424ac06b13f89b9a1fc01ff35e07520e37de98887cf88c06653"
    ),
    "hand_landmark_lite.tflite": (
        "d7fde8ac11f8ce03f8663775bfc323f4fc9f2a38062b4f4efa142874ef5b2a48"
    ),
    "hand_landmark_full.tflite": (
        "8c026882c9ec059ce0f8e75266bee5a9a23c341a40e0000df755374d3d1b9b68"
    ),
}
_LONGEST = 300  # seconds that npm may take


def default_folder() -> Path:
    """Return where the detector is cached."""
    return cache_folder() / f"mediapipe-hands-{VERSION}"


def sound(folder: Path) -> bool:
    """Return whether the folder holds all files, undamaged."""
    try:
        return all(_digest(folder / name) == digest for name, digest in FILES.items())
    except OSError:
        return False


def fetch(folder: Path | None = None) -> Path:
    """Fetch the detector with npm, unless it is cached, and return its folder.

    Raises:
        TrellisError: npm is missing or fails, or a file is not the one expected.
    """
    target = default_folder() if folder is None else folder
    if sound(target):
        return target
    npm = shutil.which("npm")
    if npm is None or not os.path.isabs(npm):
        raise TrellisError(
            "the hand detector is not here yet, and npm, which fetches it, was not found; install "
            "Node.js, and run `trellis live --set-up` once"
        )
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("package.json", "package-lock.json"):
            text = files(__package__).joinpath(name).read_text(encoding="utf-8")
            Path(scratch, name).write_text(text, encoding="utf-8")
        words = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run(
                words, cwd=scratch, capture_output=True, text=True, timeout=_LONGEST, check=False
            )
        except subprocess.TimeoutExpired:
            raise TrellisError(f"npm took more than {_LONGEST} seconds; try again") from None
        found = Path(scratch, "node_modules", "@mediapipe", "hands")
        if done.returncode != 0 or not sound(found):
            why = done.stderr.strip().splitlines()
            told = next((line for line in why if "error" in line.lower()), "a file differs")
            raise TrellisError(f"npm could not fetch @mediapipe/hands {VERSION}: {told:.300}")
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(found / name, target / f"{name}.part")
            os.replace(target / f"{name}.part", target / name)
    return target


def read(folder: Path, name: str) -> bytes:
    """Return a file of the detector.

    Raises:
        TrellisError: The file is not one of the detector's, or is damaged.
    """
    if name not in FILES:
        raise TrellisError(f"{name!r:.80} is not a file of the hand detector")
    content = (folder / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != FILES[name]:
        raise TrellisError(f"{name} of the hand detector is damaged; remove {str(folder)!r}")
    return content


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
