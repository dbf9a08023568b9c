"""The folder of a run: what it keeps through a kill, and whom it refuses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.paper.waves import small, waves
from trellis.errors import TrellisError
from trellis.paper import stored
from trellis.paper.folder import opened
from trellis.paper.settings import describe

DATA = describe(waves())


def record(row: str) -> dict[str, Any]:
    return {
        "cell": cell(row), "row": row, "seed": 1, "fold": 0, "stack": 0, "device": "CPU",
        "refused": "ü\n",
    }  # fmt: skip


def cell(row: str) -> str:
    return f"{row}/seed-1/fold-0"


def test_what_is_added_is_read(tmp_path: Path) -> None:
    with opened(tmp_path / "a" / "run", small(), DATA) as folder:
        folder.add([record("a"), record("b")])
        folder.add([record("b"), record("c")])
    with opened(tmp_path / "a" / "run", small(), DATA) as folder:
        assert list(folder.records) == [cell("a"), cell("b"), cell("c")]
    found = stored(tmp_path / "a" / "run")
    assert found.records[cell("a")] == record("a")
    assert (found.settings, found.data) == (small(), DATA)


@given(cut=st.integers(0, 450))
def test_a_line_cut_anywhere_is_dropped_and_nothing_else(
    cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("run")
    lines = [json.dumps(record(name)).encode() + b"\n" for name in "abc"]
    with opened(path, small(), DATA):
        pass
    content = b"".join(lines)[:cut]
    (path / "cells.jsonl").write_bytes(content)
    whole = content.count(b"\n")
    assert list(stored(path).records) == list(map(cell, "abc"))[:whole]
    assert (path / "cells.jsonl").read_bytes() == content  # looking changes nothing
    with opened(path, small(), DATA) as folder:
        folder.add([record("d")])
    assert list(stored(path).records) == [*map(cell, "abc"[:whole]), cell("d")]


def test_what_a_kill_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    with opened(tmp_path, small(), DATA) as folder:
        folder.write_dense(0, {"w": torch.ones(3)})
        folder.write({"table.txt": "whole"})
    for name in ("dense/.stack-1.safetensors.0badcafe", ".settings.json.00000000",
                 ".table.tex.12345678", ".table.txt.swp"):  # fmt: skip
        (tmp_path / name).write_bytes(b"half")
    with opened(tmp_path, small(), DATA):
        assert [p.name for p in (tmp_path / "dense").iterdir()] == ["stack-0.safetensors"]
        assert sorted(p.name for p in tmp_path.iterdir()) == [
            ".lock", ".table.txt.swp", "dense", "settings.json", "table.txt"
        ]  # fmt: skip


def test_a_line_that_is_no_cell_is_named(tmp_path: Path) -> None:
    with opened(tmp_path, small(), DATA) as folder:
        folder.add([record("a")])
    for broken in (b"{\n", b"[1]\n", b"{}\n", b"\xff\n"):
        path = tmp_path / "cells.jsonl"
        before = path.read_bytes()
        path.write_bytes(before + broken)
        with pytest.raises(TrellisError, match="line 2"):
            stored(tmp_path)
        path.write_bytes(before)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 3}, "seeds is 2 there and 3 now"),
        ({"recipe": small().recipe.__class__(**vars(small().recipe) | {"epochs": 9})},
         "recipe epochs is 8 there and 9 now"),
        ({"rows": ("mp",)}, 'rows is ["mp", "tc", "lamp"] there and ["mp"] now'),
    ],
)  # fmt: skip
def test_other_settings_are_refused_and_quoted(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with opened(tmp_path, small(), DATA):
        pass
    with pytest.raises(TrellisError) as caught, opened(tmp_path, small(**changes), DATA):
        pass
    assert words in str(caught.value) and "another folder" in str(caught.value)


def test_other_data_and_other_versions_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, small(), DATA):
        pass
    other = describe(waves(seed=1))
    assert dataclasses.replace(other, digest=DATA.digest, frames=DATA.frames) == DATA
    with pytest.raises(TrellisError, match="digest is"), opened(tmp_path, small(), other):
        pass
    monkeypatch.setattr("trellis.paper.folder.versions", lambda: {"torch": "1.0"})
    with (
        pytest.raises(TrellisError, match=r'torch is ".*" there and "1\.0" now'),
        opened(tmp_path, small(), DATA),
    ):
        pass


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(TrellisError, match=r"'thesis.tex'"), opened(tmp_path, small(), DATA):
        pass
    assert {p.name for p in tmp_path.iterdir()} <= {"thesis.tex", ".lock"}


def test_no_run_and_no_folder_are_told_apart_from_a_broken_one(tmp_path: Path) -> None:
    with pytest.raises(TrellisError, match="no run"):
        stored(tmp_path)
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(TrellisError, match=r"settings\.json': expected JSON"):
        stored(tmp_path)
    (tmp_path / "settings.json").write_text('{"format": 99}')
    with pytest.raises(TrellisError, match="format 99"):
        stored(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(TrellisError, match="cannot make"), opened(tmp_path / "file", small(), DATA):
        pass


HOLD = """
import sys
from pathlib import Path
from trellis.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_on_one_folder(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(TrellisError, match=rf"in use by another process \({holder.pid}\)"):
            opened(tmp_path, small(), DATA).__enter__()
        holder.kill()
        holder.wait()
    with opened(tmp_path, small(), DATA):  # a lock dies with its holder
        pass
