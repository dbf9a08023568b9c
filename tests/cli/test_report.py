"""``trellis report``, and ``trellis audit --html``."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.arms import (
    SMALL,
    SOURCE,
    trained,  # noqa: F401  (a fixture)
)
from tests.cli.conftest import Fails, Run
from tests.paper.waves import small, waves
from tests.report.browser import Browser
from tests.report.saving import saved
from tests.skeleton.moving import arms as moving_arms
from tests.skeleton.moving import write_csv, write_npz
from trellis.paper import reproduce
from trellis.skeleton import Recognizer, evaluated, load_dataset


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
    reproduce(small(), load_dataset("npz:waves.npz"), tmp_path / "run")
    return tmp_path / "run"


def test_a_run_shows_recordings_that_are_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "waves.npz", waves())
    reproduce(small(), load_dataset("npz:waves.npz"), tmp_path / "run")
    ran = run("report", "run", "--network", "tc@90", "--data", "npz:waves.npz")
    assert ran.status == 0, ran.err
    assert "wrote run/report.html" in ran.out and "not there" not in ran.out
    found = content(tmp_path / "run" / "report.html")
    assert found["chosen"] == "tc@90" and found["examples"] is not None

    (tmp_path / "waves.npz").rename(tmp_path / "elsewhere.npz")
    os.mkfifo("waves.npz")  # what the run names is never opened: this would wait for ever
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
    model, data = Recognizer.load("tuned"), load_dataset(source)
    top1 = evaluated(model, data, data.folds[0].test).top1
    rows = {row["key"]: row for row in found["rows"]}
    assert rows["model"]["top1"][0] == pytest.approx(100 * top1, abs=1e-3)
    before = evaluated(Recognizer.load("arms"), data, data.folds[0].test)
    assert rows["dense"]["top1"][0] == pytest.approx(100 * before.top1, abs=1e-3)
    assert set(found["confusions"]) == {"dense", "model"} and found["missing"] == []
    kept = sum(pair[0] for pair in rows["model"]["layers"].values())
    assert kept == rows["model"]["kept"][0] == rows["model"]["bytes"] / 8
    told = " ".join(text for _, text in found["facts"])
    assert "closed" in told and "default" in told
    lines = [shlex.split(line)[1:] for line in found["command"].split(" && ")]
    assert [line[0] for line in lines] == ["train", "prune", "tune"]
    assert run("evaluate", "tuned", "--data", source).status == 0  # still a model folder
    made = {"dense", "pruned", "tuned"}
    for line in lines:  # and they make the same again
        assert run(*(f"again-{word}" if word in made else word for word in line)).status == 0
    same(Recognizer.load("again-tuned"), model)


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
    tried = [
        (r["method"], r["on"], r["rate"], r["top1"][0], r["live"]) for r in found["rows"][1:-1]
    ]
    assert tried == [
        ("tried-validation", "validation", 50.0, 90.0, None),
        ("tried-validation", "validation", 80.0, 80.0, None),
        ("tried-test", "test", 80.0, 70.0, None),
    ]
    assert [method["key"] for method in found["methods"]] == ["model", *dict.fromkeys(
        row[0] for row in tried)]  # fmt: skip
    assert found["chosen"] == "model"


def test_a_search_is_shown_apart_from_what_was_tested(
    run: Run, tmp_path: Path, browser: Browser
) -> None:
    write_npz(tmp_path / "arms.npz", moving_arms())
    quick = ("--course", "quick", "--length", "0.3", *SMALL)
    ran = run("shrink", "--data", SOURCE, *quick, "--at-least", "0.4", "--out", "s")
    assert ran.status == 0, ran.err
    found, points = content(tmp_path / "s" / "report.html"), json.loads(
        Path("s/curve.json").read_text())  # fmt: skip
    tested = evaluated(
        Recognizer.load("s/model"), data := load_dataset(SOURCE), data.folds[0].test
    ).top1
    with browser.opened(tmp_path / "s" / "report.html") as seen:
        assert "held out for the search (validation), which are not to be compared" in (
            seen.page.locator("#accuracy .about").inner_text()
        )
        assert seen.texts(".key")[1] == "tried on the way (validation)"
        marks = {key: f"#accuracy .series[data-method={key}]" for key in (
            "model", "tried-validation")}  # fmt: skip
        assert seen.count(f"{marks['tried-validation']} .series-mark") == len(points)
        assert seen.count(f"{marks['model']} .series-mark") == 1
        lines = {key: seen.page.locator(f"{place} .series-line") for key, place in marks.items()}
        joined = {key: (line.get_attribute("d") or "").count("L") for key, line in lines.items()}
        assert joined == {"model": 0, "tried-validation": len(points) - 1}
        dashes = {line.get_attribute("stroke-dasharray") for line in lines.values()}
        assert dashes == {"", "1.5 4"}
        # Nobody counted what is live in a network that was only tried: no mark, and no cross.
        assert seen.count("#live .series-mark") == 1 and seen.count(".severed") == 0
        for key in ("ArrowLeft", *["ArrowRight"] * len(points)):
            seen.page.locator("#accuracy .cover").press(key)
            for line in seen.texts(".reader li"):
                on = "validation" if "(validation)" in line else "test"
                assert line.endswith(f" %, on {on} recordings")
        rows = list(csv.DictReader(io.StringIO(saved(seen, "#accuracy .to-csv"))))
        assert [row["measured on"] for row in rows] == [
            "test",
            *["validation"] * len(points),
            "test",
        ]
        assert float(rows[-1]["top-1 (%)"]) == pytest.approx(100 * tested, abs=1e-3)
        assert {row["live (%)"] for row in rows[1:-1]} == {""}
        title = seen.texts(f"{marks['tried-validation']} title")[0]
        assert title.endswith("on validation recordings")
        # Where both were measured, a click chooses the network that was tested.
        seen.choose("validation-1")
        mark = seen.page.locator(f"{marks['model']} .series-mark")
        mark.scroll_into_view_if_needed()
        at = mark.bounding_box()
        assert at is not None
        seen.page.mouse.click(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
        assert seen.page.locator("#network-picker").input_value() == "model"
        seen.choose("validation-1")
        answer = seen.page.locator(".answer").inner_text()
        assert "held out for the search" in answer and "dense network" not in answer
        assert "validation" in seen.page.locator(".card.pruned dt").first.inner_text()
        seen.quiet()
    again = shlex.split(found["command"])[1:]
    assert run(*again, "--out", "again").status == 0
    same(Recognizer.load("again/model"), Recognizer.load("s/model"))


def test_the_command_of_a_page_makes_the_same_network_again(run: Run, tmp_path: Path) -> None:
    moving = moving_arms()
    layout = dataclasses.replace(moving.layout, body=(0, 1, 2, 3))
    write_npz(tmp_path / "arms.npz", dataclasses.replace(moving, layout=layout))
    ways: tuple[tuple[str, ...], ...] = (
        ("--course", "quick", "--length", "0.1"),
        ("--course", "quick", "--length", "0.1", "--frame", "camera", "--basis", "chunks",
         "--seed", "3", "--size", "recorded"),
    )  # fmt: skip
    for n, way in enumerate(ways):
        out = f"s{n}"
        assert (
            run("shrink", "--data", SOURCE, "--keep", "60", *SMALL, *way, "--out", out).status == 0
        )
        for part in ("model", "dense"):
            assert run("report", f"{out}/{part}").status == 0
            again = shlex.split(content(tmp_path / out / part / "report.html")["command"])[1:]
            assert run(*again, "--out", f"{out}-{part}").status == 0
            same(Recognizer.load(f"{out}-{part}/{part}"), Recognizer.load(f"{out}/{part}"))


@pytest.mark.parametrize("part", ["model", "dense"])
def test_the_commands_of_a_page_go_on_from_a_course(run: Run, tmp_path: Path, part: str) -> None:
    write_npz(tmp_path / "arms.npz", moving_arms())
    quick = ("--course", "quick", "--length", "0.1", *SMALL)
    assert run("shrink", "--data", SOURCE, "--keep", "90", *quick, "--out", "s").status == 0
    how = ("--method", "magnitude", "--scope", "layer", "--consistent", "yes", "--stochastic",
           "--seed", "7", "--ignore", "dense*")  # fmt: skip
    assert run("prune", f"s/{part}", "--keep", "30", *how, "--out", "p").status == 0
    words = ("--data", SOURCE, "--recipe", "quick", "--epochs", "2")
    assert run("tune", "p", *words, "--out", "t").status == 0
    assert run("tune", "t", *words, "--seed", "1", "--out", "last").status == 0
    assert run("report", "last").status == 0
    for line in content(tmp_path / "last" / "report.html")["command"].split(" && "):
        ran = run(*shlex.split(line)[1:])
        assert ran.status == 0, ran.err
    same(Recognizer.load("tuned-2"), Recognizer.load("last"))


def test_a_network_of_full_size_stands_beside_the_dense_one(
    run: Run, tmp_path: Path, browser: Browser
) -> None:
    write_npz(tmp_path / "arms.npz", moving_arms())
    quick = ("--course", "quick", "--length", "0.1", *SMALL)
    ran = run("shrink", "--data", SOURCE, "--sparsity", "0", *quick, "--out", "s", "--json")
    assert ran.status == 0, ran.err
    points = [{"sparsity": 0.0, "kept": ran.json["total"], "validation_top1": 0.5},
              {"sparsity": 0.8, "kept": 148, "validation_top1": 0.25}]  # fmt: skip
    (tmp_path / "s" / "curve.json").write_text(json.dumps(points))
    assert run("report", "s", "--data", SOURCE).status == 0
    found = content(tmp_path / "s" / "report.html")
    assert found["title"] == "s: a network that keeps every connection"
    assert found["chosen"] == "model" and found["missing"] == []
    rows = {row["key"]: row for row in found["rows"]}
    assert list(rows) == ["dense", "validation-1", "validation-2", "model"]
    for key, told in (("dense", "dense"), ("model", "small")):
        top1 = ran.json[told]["top1"]
        assert rows[key]["top1"][0] == pytest.approx(100 * top1, abs=1e-3)
        assert rows[key]["kept"][0] == ran.json["total"] == rows[key]["bytes"] / 4
    assert set(found["confusions"]) == {"dense", "model"} and set(found["networks"]) == {"model"}
    with browser.opened(tmp_path / "s" / "report.html") as seen:
        assert seen.count("#headline .card") == 2
        assert seen.count("#accuracy .series[data-method=tried-validation] .series-mark") == 2
        seen.quiet()


def test_recordings_that_training_left_out_are_left_out_again(run: Run, tmp_path: Path) -> None:
    data = moving_arms(24)
    for index, label in enumerate(data.labels):
        folder = tmp_path / "my arms" / data.classes[label]
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / f"{index}.csv", data, index)
    (tmp_path / "my arms" / "wave" / "bad.csv").write_text("")
    words = ("train", "csv:my arms", "--recipe", "quick", "--epochs", "2", *SMALL)
    assert run(*words, "--skip-bad", "--out", "my model").status == 0
    ran = run("report", "my model", "--data", "csv:my arms")
    assert ran.status == 0 and "not there" not in ran.out, ran
    assert content(tmp_path / "my model" / "report.html")["examples"] is not None
    ran = run("report", "my model")  # not asked for, they are not read
    assert ran.status == 0 and "(trellis report 'my model' --data SOURCE)" in ran.out
    assert content(tmp_path / "my model" / "report.html")["examples"] is None


@pytest.mark.parametrize("change", ["class", "joint", "fold", "joints", "labels"])
def test_recordings_that_do_not_fit_any_more_are_left_aside(
    run: Run, fails: Fails, tmp_path: Path, change: str
) -> None:
    data = moving_arms(24)
    write_npz(tmp_path / "arms.npz", data)
    words = ("train", SOURCE, "--recipe", "quick", "--epochs", "2", *SMALL)
    assert run(*words, "--out", "arms").status == 0
    told = dict(np.load(tmp_path / "arms.npz"))
    if change == "class":
        told["classes"][2] = "nod"
    elif change == "joint":
        told["joints"][3] = "fist"
    elif change == "fold":
        del told["test"]
    elif change == "labels":
        told["labels"] = told["labels"][::-1]
    else:
        told["frames"], told["joints"] = told["frames"][:, :3], told["joints"][:3]
        told["parents"] = told["parents"][:3]
    np.savez(tmp_path / "arms.npz", **told)
    ran = run("report", "arms")
    assert ran.status == 0, ran.err
    [line] = [line for line in ran.out.splitlines() if "not there" in line]
    assert "both need recordings" in line and "'npz:arms.npz' is read only if" in line
    assert content(tmp_path / "arms" / "report.html")["confusions"] == {}
    why = {"class": "has recordings of 'nod'", "joint": "joint 3 of 'npz:arms.npz' is 'fist'",
           "fold": "was trained on fold", "joints": "has 3 joints",
           "labels": ""}[change]  # fmt: skip
    if change == "labels":  # asked for, any that fit will do
        assert run("report", "arms", "--data", SOURCE).status == 0
        return
    assert why in fails("report", "arms", "--data", SOURCE)  # asked for, they must fit
    if change == "fold":
        named = ("report", "arms", "--data", SOURCE)
        assert "--fold 'ninth'" in fails(*named, "--fold", "ninth")
        assert "--fold 'ninth' divides --data" in fails("report", "arms", "--fold", "ninth")


def same(one: Recognizer, other: Recognizer) -> None:
    assert (one.basis, one.normalization) == (other.basis, other.normalization)
    weights = other.model.state_dict()
    for name, weight in one.model.state_dict().items():
        torch.testing.assert_close(weight, weights[name])


def test_no_file_of_what_is_read_is_overwritten(
    run: Run, fails: Fails, arms: Path, tmp_path: Path
) -> None:
    shutil.copytree(arms / "arms", tmp_path / "mine")
    shutil.copytree(arms / "arms", tmp_path / "shrunk" / "model")
    before = {path: path.read_bytes() for path in tmp_path.glob("**/model.*")}
    inputs = ("mine/model.json", "mine/model.safetensors")
    for out in inputs:
        assert "it is an input" in fails("audit", "mine", "--html", out)
        assert "it is an input" in fails("report", "mine", "--out", out)
        assert "it is an input" in fails("report", "arms", "--dense", "mine", "--out", out)
        assert "it is an input" in fails("export", "onnx", "mine", "--out", out)
        words = ("prune", "mine", "--sparsity", "0.5", "--masks")
        assert "it is an input" in fails(*words, out)
    assert "it is an input" in fails("report", "shrunk", "--out", "shrunk/model/model.json")
    assert before == {path: path.read_bytes() for path in tmp_path.glob("**/model.*")}
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    ran = run("prune", "mine", "--sparsity", "0.5", "--masks", "pipe")
    assert ran.status == 0 and Path("pipe").is_fifo(), ran.err
    assert len(os.read(reader, 1 << 16)) > 100
    os.close(reader)
    assert "it is a file" in fails("prune", "mine", "--sparsity", "0.5", "--out", "pipe")
    Path("mine/report.html").symlink_to(tmp_path / "victim")
    assert "symbolic link" in fails("report", "mine") and not Path("victim").exists()


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "curve.json"])
def test_a_pipe_in_a_folder_is_not_waited_for(fails: Fails, arms: Path, name: str) -> None:
    shutil.copytree(arms / "arms", "mine")
    Path("mine", name).unlink(missing_ok=True)
    os.mkfifo(Path("mine", name))
    assert name in fails("report", "mine")


def test_nonsense_is_one_line(run: Run, fails: Fails, arms: Path) -> None:
    (arms / "empty").mkdir()
    assert "neither a run nor a model" in fails("report", "empty")
    assert "folder 'nowhere' not found" in fails("report", "nowhere")
    assert "is for a run" in fails("report", "arms", "--network", "mp@90")
    assert "it is a folder" in fails("report", "arms", "--out", "empty")
    assert "nothing.npz" in fails("report", "arms", "--data", "npz:nothing.npz")
    (arms / "shrunk").mkdir()
    (arms / "shrunk" / "model").symlink_to((arms / "arms").resolve())
    (arms / "shrunk" / "curve.json").write_text("[{}]")
    assert "curve.json': expected the key" in fails("report", "shrunk")


def test_an_option_of_models_is_none_of_runs(fails: Fails, table: Path) -> None:
    assert "--dense is for a model" in fails("report", table, "--dense", "x")
    assert "known: mp@50" in fails("report", table, "--network", "viterbi@1")


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
