"""The one reader of a run's and a model's files: what it refuses, and how it says so."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import trellis
from tests.paper.waves import small, waves
from tests.skeleton.moving import arms
from trellis import schema
from trellis.errors import TrellisError
from trellis.paper import reproduce, stored
from trellis.skeleton import Recognizer

LINE = re.compile(r"'[^']*curve\.json': expected .+ got .+; mend it")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[1", b"\xff[]", b"\xef\xbb\xbf[]", b"[" * 100_000, b"[" * 300 + b"]" * 300,
        b'[{"sparsity": NaN, "kept": 1}]', b'[{"sparsity": 1e999, "kept": 1}]',
        b'[{"sparsity": 0.5, "kept": -1}]', b'[{"sparsity": 0.5, "kept": true}]',
        b'[{"sparsity": 0.5, "kept": 1' + b"0" * 400 + b"}]",
        b'[{"sparsity": 1' + b"0" * 400 + b', "kept": 1}]', b'[{"sparsity": ' + b"9" * 5000 + b"}]",
        b'[{"sparsity": 0.5, "kept": 1, "kept": 2}]', b'[{"sparsity": 0.5}]', b"{}", b"null",
        b'[{"sparsity": 0.5, "kept": 1, "note": "\\ud800"}]',
    ],
    ids=lambda content: content[:30].decode("latin-1"),
)  # fmt: skip
def test_what_is_refused_is_one_line_of_one_form(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "curve.json"
    path.write_bytes(content)
    with pytest.raises(TrellisError) as told:
        schema.read_json(path, list[schema.CurvePoint], "mend it")
    assert LINE.fullmatch(str(told.value)) and len(str(told.value)) < 400 + len(str(path))


def test_a_file_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)  # holds nothing, and takes no room
    with pytest.raises(TrellisError, match="at most 67,108,864 bytes, got 1,099,511,627,776"):
        schema.read_json(path, list[schema.CurvePoint], "mend it")
    with pytest.raises(TrellisError, match="expected a file"):
        schema.read_json(Path("/dev/zero"), list[schema.CurvePoint], "mend it")


def test_keys_of_later_releases_are_ignored() -> None:
    text = '[{"sparsity": 0.5, "kept": 1, "more": {"a": [1, null]}}]'
    assert schema.parse_json(text, list[schema.CurvePoint], "f", "") == [
        {"sparsity": 0.5, "kept": 1}
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    reproduce(small(seeds=1, rates=(90.0,), rows=("mp",)), waves(), path)
    return path


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda head: head["settings"].update(seeds=10_001), "$.settings.seeds, got 10001"),
        (lambda head: head["settings"].update(seeds=-1), "$.settings.seeds, got -1"),
        (
            lambda head: head["settings"]["recipe"].update(epochs=10**400),
            "$.settings.recipe.epochs",
        ),
        (lambda head: head["settings"].update(data="x" * 10**6), "$.settings.data"),
        (lambda head: head["settings"].pop("heads"), "'heads' at $.settings"),
        (lambda head: head["data"].update(train=[]), "$.data.train"),
        (lambda head: head["data"].update(joints=100_000), "connections in a network"),
        (
            lambda head: head["settings"].update(
                seeds=9_999, rates=list(range(1, 99)), rows=["mp", "tc"]
            ),
            "networks",
        ),
        (lambda head: head.update(versions=[1]), "$.versions"),
    ],
)
def test_settings_that_no_run_has(
    run: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], place: str
) -> None:
    head = json.loads((run / "settings.json").read_text())
    change(head)
    (tmp_path / "settings.json").write_text(json.dumps(head))
    with pytest.raises(TrellisError, match=re.escape(place)):
        stored(tmp_path)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"seed": 1}, "$.seed"), ({"fold": 3}, "$.fold"), ({"cell": "x"}, "$.cell"),
        ({"kept": 10**9}, "$.kept"), ({"live": 10**9}, "$.live"), ({"test": 0}, "$.test"),
        ({"said": [9]}, "$.said"), ({"layers": {}}, "$.layers"), ({"correct": 99}, "$.correct"),
        ({"loss": "x"}, "$.loss"),
    ],
)  # fmt: skip
def test_a_cell_that_is_not_of_its_run(
    run: Path, tmp_path: Path, changes: dict[str, Any], place: str
) -> None:
    (tmp_path / "settings.json").write_bytes((run / "settings.json").read_bytes())
    first, *rest = (run / "cells.jsonl").read_text().splitlines()
    lines = [json.dumps(json.loads(first) | changes), *rest]
    (tmp_path / "cells.jsonl").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(TrellisError, match=r"line 1: expected .* at " + re.escape(place)):
        stored(tmp_path)


@pytest.mark.parametrize("scale", [10**400, 0, -1, 1e-300, "1", None, True])
def test_a_scale_that_cannot_divide(tmp_path: Path, scale: Any) -> None:
    data = arms(12)
    Recognizer.fresh(data, data.folds[0], chunks=4, heads=2, filters=3).save(tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    found = json.loads(path.read_text())
    found["notes"]["recogniser"]["normalisation"]["scale"] = scale
    path.write_text(json.dumps(found))
    with pytest.raises(TrellisError, match=r"at \$\.notes\.recogniser\.normalisation\.scale, got"):
        Recognizer.load(tmp_path / "m")


def test_what_is_saved_can_be_read_again(tmp_path: Path) -> None:
    for notes in ({"a": float("nan")}, {"a": "\ud800"}, {1: 1, "1": 2}):
        with pytest.raises(TrellisError, match="notes cannot be written"):
            trellis.save(torch.nn.Linear(2, 1), tmp_path / "m", notes=notes)  # type: ignore[arg-type]
    trellis.save(torch.nn.Linear(2, 1), tmp_path / "m", notes={"seed": 2**128, "long": "x" * 10**6})
    trellis.load(tmp_path / "m", into=torch.nn.Linear(2, 1))
