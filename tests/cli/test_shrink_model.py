"""`trellis shrink` with a model and data of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import trellis
from tests.cli.conftest import Run

MODULE = """
import torch
from torch import nn

x = torch.randn(96, 8, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
batches = list(zip(x.split(16), y.split(16)))

def net():
    return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 2))

def loaders():
    print("reading")
    return batches, batches[:2]

def error(output, target):
    return nn.functional.multi_margin_loss(output, target)

def adam(params):
    return torch.optim.Adam(params, lr=0.01)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ownshop.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "ownshop", raising=False)
    return tmp_path


WORDS = ["shrink", "ownshop:net", "--data", "ownshop:loaders", "--steps", "30", "--device", "cpu"]


def test_a_model_is_shrunk_and_written(run: Run, here: Path) -> None:
    words = [*WORDS, "--sparsity", "0.9", "--out", "made", "--json"]
    more = ["--loss", "ownshop:error", "--optimizer", "ownshop:adam"]
    ran = run(*words, *more)
    assert ran.status == 0, ran.err
    told = json.loads(ran.out)
    assert told["kept"] == told["live"] == told["budget"] == 24
    assert told["outputs_reached"] == told["outputs"] == 2
    assert (here / "made" / "report.html").stat().st_size > 1000
    names: dict[str, object] = {}
    exec(MODULE, names)
    model = trellis.load(here / "made" / "model", into=names["net"]())  # type: ignore[operator]
    audit = trellis.audit(model, torch.zeros(1, 8))
    assert audit.kept == audit.live == 24
    again = run(*words, *more)
    assert json.loads(again.out) == told
    other = run(*words, *more, "--seed", "1")
    assert other.status == 2 and "was" in other.err


def test_several_rates_in_one_folder(run: Run, here: Path) -> None:
    ran = run(*WORDS, "--sparsity", "0.5", "0.9", "--out", "made")
    assert ran.status == 0, ran.err
    assert "nested: 120 connections" in ran.out and "nested: 24 connections" in ran.out
    words = ["export", "onnx", "ownshop:net", "--input", "1x8", "--out", "m.onnx", "--json"]
    taken = run(*words, "--weights", "made/model/model.safetensors", "--sparsity", "0.8")
    assert taken.status == 0, taken.err
    assert run(*words, "--weights", "made", "--sparsity", "0.8").json == taken.json
    assert run(*words, "--weights", "made/model/model.safetensors").status == 0
    for given, told in (((), "nested networks"), (("--weights", "made"), "from 0.5 to 0.9")):
        refused = run(*words, *given, "--sparsity", "0.99")
        assert refused.status == 2 and told in refused.err


def test_fine_tuning_for_int8_arithmetic(run: Run, here: Path) -> None:
    words = [*WORDS, "--sparsity", "0.5", "--out", "made"]
    assert run(*words, "--quantize", "int8").status == 0
    told = json.loads((here / "made" / "result.json").read_text())
    assert told["history"][-1]["phase"] == "tune in int8"
    other = run(*words)
    assert other.status == 2 and "quantize was 'int8' and is None" in other.err


def test_the_smallest_is_searched_for(run: Run, here: Path) -> None:
    ran = run(*WORDS, "--at-least", "0.6")
    assert ran.status == 0, ran.err
    assert "live" in ran.out
    [folder] = (here / "runs").iterdir()
    assert (folder / "model" / "model.json").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data", "ownshop:missing"], "missing"),
        (["--data", "ownshop:x"], "iterable of batches"),
        (["--data", "elsewhere:loaders"], "elsewhere"),
        (["--loss", "ownshop:nothing"], "nothing"),
        (["--keep", "1"], "keep"),
        (["--quantize", "int4"], "expected none or int8"),
    ],
)
def test_bad_words_are_one_line(run: Run, here: Path, words: list[str], told: str) -> None:
    given = WORDS if "--data" not in words else [WORDS[0], WORDS[1], *WORDS[4:]]
    target = [] if "--keep" in words else ["--sparsity", "0.5"]
    ran = run(*given, *words, *target)
    assert ran.status == 2
    assert told in ran.err.splitlines()[-1]
    assert ran.out == ""


def test_recordings_are_still_named_as_they_were(run: Run, here: Path) -> None:
    ran = run("shrink", "csv:absent", "--sparsity", "0.9")
    assert ran.status == 2 and "absent" in ran.err


@pytest.mark.parametrize("words", [["--quantize", "int8"], ["--quantize=int8"]])
def test_recordings_are_fine_tuned_in_floats(run: Run, here: Path, words: list[str]) -> None:
    ran = run("shrink", "csv:absent", "--sparsity", "0.9", *words)
    assert ran.status == 2 and "--quantize is for models" in ran.err.splitlines()[-1]
