"""``trellis report``, and ``trellis audit --html``."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.arms import trained  # noqa: F401  (a fixture)
from tests.cli.conftest import Run
from tests.paper.waves import small, waves
from tests.skeleton.moving import write_npz
from trellis.paper import reproduce
from trellis.skeleton import Recogniser, evaluated, load

Fails = Callable[..., str]


def content(path: Path) -> Any:
    """What a page holds."""
    text = path.read_text(encoding="utf-8")
    [found] = re.findall(r'<script type="application/json" id="content">(.*?)</script>', text, re.S)
    return json.loads(found)


@pytest.fixture
def arms(trained: Path, tmp_path: Path) -> Path:  # noqa: F811
    for name in ("arms", "arms.npz"):
        (tmp_path / name).symlink_to(trained / name)
    return tmp_path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_npz(tmp_path / "waves.npz", waves())
    reproduce(small(), load("npz:waves.npz"), tmp_path / "run")
    return tmp_path / "run"


def test_a_run_finds_its_recordings_where_they_were(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "waves.npz", waves())
    reproduce(small(), load("npz:waves.npz"), tmp_path / "run")
    ran = run("report", "run", "--network", "tc@90")
    assert ran.status == 0, ran.err
    assert "wrote run/report.html" in ran.out and "not there" not in ran.out
    found = content(tmp_path / "run" / "report.html")
    assert found["chosen"] == "tc@90" and found["examples"] is not None

    (tmp_path / "waves.npz").rename(tmp_path / "elsewhere.npz")
    ran = run("report", "run", "--out", "page.html")
    assert ran.status == 0 and "not there: moving skeletons" in ran.out
    assert content(tmp_path / "page.html")["examples"] is None
    ran = run("report", "run", "--out", "page.html", "--data", "npz:elsewhere.npz")
    assert ran.status == 0, ran.err
    assert content(tmp_path / "page.html")["examples"] is not None


def test_a_model_dense_pruned_and_tuned(run: Run, arms: Path) -> None:
    source = f"npz:{(arms / 'arms.npz').resolve()}"
    assert run("report", "arms", "--out", "dense.html").status == 0
    dense = content(arms / "dense.html")
    assert [row["key"] for row in dense["rows"]] == ["dense"] and set(dense["networks"]) == {
        "dense"
    }

    run("prune", "arms", "--sparsity", "0.9", "--out", "small")
    run("tune", "small", "--data", source, "--out", "tuned", "--epochs", "20")
    ran = run("report", "tuned", "--dense", "arms", "--data", source)
    assert ran.status == 0, ran.err
    found = content(arms / "tuned" / "report.html")
    model, data = Recogniser.load("tuned"), load(source)
    top1 = evaluated(model, data, data.folds[0].test).top1
    rows = {row["key"]: row for row in found["rows"]}
    assert rows["model"]["top1"][0] == pytest.approx(100 * top1, abs=1e-3)
    before = evaluated(Recogniser.load("arms"), data, data.folds[0].test)
    assert rows["dense"]["top1"][0] == pytest.approx(100 * before.top1, abs=1e-3)
    assert set(found["confusions"]) == {"dense", "model"} and found["missing"] == []
    kept = sum(pair[0] for pair in rows["model"]["layers"].values())
    assert kept == rows["model"]["kept"][0] == rows["model"]["bytes"] / 8
    told = " ".join(text for _, text in found["facts"])
    assert "viterbi" in told and "default" in told
    lines = [shlex.split(line)[1:] for line in found["command"].split(" && ")]
    assert [line[0] for line in lines] == ["train", "prune", "tune"]
    assert run("evaluate", "tuned", "--data", source).status == 0  # still a model folder
    made = {"dense", "pruned", "tuned"}
    for line in lines:  # and they make the same again
        assert run(*(f"again-{word}" if word in made else word for word in line)).status == 0
    again = Recogniser.load("again-tuned").model.state_dict()
    for name, weight in model.model.state_dict().items():
        torch.testing.assert_close(again[name], weight)


def test_a_folder_of_both_models_and_a_curve(run: Run, arms: Path) -> None:
    run("prune", "arms", "--sparsity", "0.9", "--out", "small")
    (arms / "shrunk").mkdir()
    shutil.copytree((arms / "arms").resolve(), arms / "shrunk" / "dense")
    shutil.move(arms / "small", arms / "shrunk" / "model")
    points = [{"sparsity": 0.5, "kept": 372, "validation_top1": 0.9},
              {"sparsity": 0.8, "kept": 148, "validation_top1": 0.8, "top1": 0.7}]  # fmt: skip
    (arms / "shrunk" / "curve.json").write_text(json.dumps(points))
    ran = run("report", "shrunk")
    assert ran.status == 0, ran.err
    found = content(arms / "shrunk" / "report.html")
    tried = [(r["rate"], r["top1"][0]) for r in found["rows"] if r["method"] == "curve"]
    assert tried == [(50.0, 90.0), (80.0, 70.0)]
    assert found["chosen"] == "model"


def test_nonsense_is_one_line(run: Run, fails: Fails, arms: Path) -> None:
    (arms / "empty").mkdir()
    assert "neither a run nor a model" in fails("report", "empty")
    assert "there is no folder 'nowhere'" in fails("report", "nowhere")
    assert "is for a run" in fails("report", "arms", "--network", "mp@90")
    assert "it is a folder" in fails("report", "arms", "--out", "empty")
    assert "nothing.npz" in fails("report", "arms", "--data", "npz:nothing.npz")
    (arms / "shrunk").mkdir()
    (arms / "shrunk" / "model").symlink_to((arms / "arms").resolve())
    (arms / "shrunk" / "curve.json").write_text("[{}]")
    assert "is no curve" in fails("report", "shrunk")


def test_an_option_of_models_is_none_of_runs(fails: Fails, table: Path) -> None:
    assert "--dense is for a model" in fails("report", table, "--dense", "x")
    assert "no row of this run: mp@50" in fails("report", table, "--network", "viterbi@1")


def test_an_audit_as_a_page(run: Run, fails: Fails, arms: Path) -> None:
    run("prune", "arms", "--sparsity", "0.9", "--out", "small", "--method", "magnitude")
    ran = run("audit", "small", "--html", "dead.html")
    assert ran.status == 0, ran.err
    assert "wrote dead.html" in ran.out
    found = content(arms / "dead.html")
    told = run("audit", "small", "--json", "--html", "dead.html").json  # stdout stays JSON
    assert found["layers"] == told["layers"] and found["words"] == told["words"]
    assert found["target"] == "small"
    assert "there is no folder" in fails("audit", "small", "--html", "nowhere/dead.html")
