"""Recordings on disk and a model trained on them, for commands to work with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.skeleton.moving import arms, write_csv, write_npz
from trellis.cli import main

SMALL = ("--heads", "3", "--filters", "8", "--chunks", "6")
SOURCE = "npz:arms.npz"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``arms.npz``, ``wave.csv``, ``point.csv`` and the trained model ``arms``."""
    folder = tmp_path_factory.mktemp("arms")
    write_npz(folder / "arms.npz", arms())
    for index, name in enumerate(("wave", "point")):
        write_csv(folder / f"{name}.csv", arms(), index)
    words = ("train", f"npz:{folder / 'arms.npz'}", "--out", str(folder / "arms"), "--epochs", "80")
    assert main([*words, *SMALL]) == 0
    return folder


def contents(folder: Path) -> dict[str, Any]:
    """All that a model's folder holds but how long it took."""
    described = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    for step in described["notes"]["recogniser"]["history"]:
        step.pop("seconds", None)
    others = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "model.json"}
    return {"model.json": described} | others
