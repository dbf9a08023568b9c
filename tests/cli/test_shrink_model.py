"""`trellis shrink` with a model and data of one's own."""

from __future__ import annotations

import json
import shlex
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

TOKENS = """
import torch
from torch import nn

ids = torch.randint(1, 9, (32, 6), generator=torch.Generator().manual_seed(0))
seen = torch.ones_like(ids)
batches = [{"attention_mask": seen, "input_ids": ids, "labels": (ids[:, 0] > 4).long()}]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 2)

    def forward(self, input_ids, attention_mask):
        return self.head((self.embed(input_ids) * attention_mask[..., None].float()).mean(1))

def net():
    return Net()

def loaders():
    return batches
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


@pytest.mark.parametrize("more", [[], ["--quantize", "int8"]])
@pytest.mark.parametrize("rates", [["0.9"], ["0.5", "0.9"]])
def test_the_commands_printed_at_the_end_work(
    run: Run, here: Path, rates: list[str], more: list[str]
) -> None:
    ran = run(*WORDS, *more, "--sparsity", *rates, "--out", "my run")
    assert ran.status == 0, ran.err
    told = [shlex.split(line)[1:] for line in ran.out.splitlines() if line.startswith("  trellis")]
    assert [words[0] for words in told] == ["audit", "export", "export"]
    for words in told:
        done = run(*words)
        assert done.status == 0, done.err
    assert (here / "my run" / "c" / "model.c").exists()
    assert (here / "my run" / "model.onnx").exists()


def test_inputs_by_name_have_types_and_visible_masks(run: Run, here: Path) -> None:
    (here / "ownshop.py").write_text(TOKENS)
    ran = run(*WORDS, "--sparsity", "0.5", "--out", "made")
    assert ran.status == 0, ran.err
    assert ran.out.count("--input int64:1x6 --input int64:1x6=1") == 3
    [audit] = [line for line in ran.out.splitlines() if line.startswith("  trellis audit")]
    assert run(*shlex.split(audit)[1:]).status == 0


def test_commands_for_recordings_refuse_the_folder(run: Run, here: Path) -> None:
    assert run(*WORDS, "--sparsity", "0.9", "--out", "made").status == 0
    expected = "expected a model of recordings, got 'made/model', which says nothing about"
    for words in ("evaluate made/model x.csv", "evaluate made x.csv"):
        ran = run(*words.split())
        assert ran.status == 2 and expected in ran.err and "trellis.load" in ran.err
    for words in ("report made", "report made/model"):
        ran = run(*words.split())
        assert ran.status == 2 and expected in ran.err
        assert "open 'made/report.html', the page of its run" in ran.err
    (here / "made" / "report.html").unlink()
    ran = run("report", "made")
    assert ran.status == 2 and expected in ran.err and "trellis.load" in ran.err


def test_a_model_without_data_is_told_what_is_missing(run: Run, here: Path) -> None:
    hint = "to shrink a model of your own, also give --data package.module:loaders"
    ran = run("shrink", "ownshop:net", "--sparsity", "0.9")
    assert ran.status == 2 and "unknown source 'ownshop:net'; known: " in ran.err
    assert hint in ran.err
    for source in ("csv:absent", "hands"):
        ran = run("shrink", source, "--sparsity", "0.9")
        assert ran.status == 2 and hint not in ran.err


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
