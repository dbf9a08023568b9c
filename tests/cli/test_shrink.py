"""``trellis shrink``."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.arms import SMALL, SOURCE
from tests.cli.conftest import Run
from tests.cli.shell import shell
from tests.skeleton.moving import arms, write_npz
from trellis import masks_of
from trellis.errors import TrellisError
from trellis.skeleton import Recognizer, load_dataset
from trellis.skeleton.shrink import Outcome
from trellis.skeleton.shrink import run as running

SHRINK = ("shrink", "--data", SOURCE, "--course", "quick", "--length", "0.3", *SMALL)


@pytest.fixture(autouse=True)
def _recordings(tmp_path: Path) -> None:
    write_npz(tmp_path / "arms.npz", arms())


def test_a_folder_with_a_small_and_a_dense_model_and_a_report(run: Run, tmp_path: Path) -> None:
    ran = run(*SHRINK, "--sparsity", "0.9")
    assert ran.status == 0, ran.err
    folder = Path("runs/shrink-npz-arms.npz-sparsity-0.9-seed-0")
    assert sorted(os.listdir(folder)) == ["dense", "model", "report.html"]
    small, dense = (Recognizer.load(folder / name) for name in ("model", "dense"))
    total = sum(p.numel() for p in dense.model.parameters())
    assert masks_of(small.model).kept == total // 10
    for text in ("dense", "small", f"{total:,}", f"{total // 10:,}", "90", "36", "report.html"):
        assert text in ran.out
    phases = [line.partition(":")[0] for line in ran.err.splitlines()]
    assert list(dict.fromkeys(phases)) == ["training", "pruning", "tuning"]  # more if it is slow
    again = run("evaluate", str(folder / "model"), "--data", SOURCE, "--json")
    assert again.json["top1"] == small.history[-1]["metrics"]["top1"]
    assert (small.basis, small.normalization.frame) == ("cosines", "camera") == (
        dense.basis, dense.normalization.frame,
    )  # fmt: skip
    refused = run(*SHRINK, "--sparsity", "0.9")
    assert refused.status == 2 and "holds a finished run" in refused.err


def test_filters_slide_where_the_layout_names_no_body(run: Run) -> None:
    own = ("shrink", "--data", SOURCE, "--course", "quick", "--length", "0.05", "--heads", "2")
    plain, slides = ("coordinates",), ("windows", "coordinates")
    for options, kinds, filters, told in (
        ((), slides, 64, ()),
        (("--chunks", "12"), plain, 128, ("--channels",)),
        (("--channels", *plain, "--filters", "64"), plain, 64, ("--channels", "--filters")),
        (("--channels", *slides, "--filters", "4"), slides, 4, ("--filters",)),
    ):
        ran = run(*own, "--keep", "90", *options, "--overwrite", "--out", "s")
        assert ran.status == 0, ran.err
        small = Recognizer.load("s/model")
        assert (small.kinds, small.model.sizes["filters"]) == (kinds, filters)
        page = Path("s/report.html").read_text(encoding="utf-8")
        assert "--keep 90 --course quick --length 0.05" in page  # the command of the page
        assert tuple(flag for flag in ("--channels", "--filters") if flag in page) == told
    refused = run(*own, "--keep", "90", "--filters", "0", "--out", "t")
    assert refused.status == 2 and "filters=0" in refused.err


def test_waves_and_frames_can_be_told(run: Run) -> None:
    ran = run(*SHRINK, "--keep", "60", "--basis", "chunks", "--out", "s")
    assert ran.status == 0, ran.err
    small = Recognizer.load("s/model")
    assert small.basis == "chunks"
    refused = run(*SHRINK, "--keep", "60", "--frame", "body", "--out", "t")
    assert refused.status == 2 and "does not say which joints its body stands" in refused.err
    assert not Path("t").exists()


def test_a_body_is_seen_in_its_own_frame(run: Run, tmp_path: Path) -> None:
    moving = arms()
    layout = dataclasses.replace(moving.layout, body=(0, 1, 2, 3))
    write_npz(tmp_path / "arms.npz", dataclasses.replace(moving, layout=layout))
    assert run(*SHRINK, "--keep", "60", "--out", "s").status == 0
    assert Recognizer.load("s/model").normalization.body == (0, 1, 2, 3)
    trained = run("train", SOURCE, *SMALL, "--epochs", "3", "--frame", "body", "--out", "t")
    assert trained.status == 0, trained.err
    assert Recognizer.load("t").normalization.frame == "body"


def test_sizes_can_be_told(run: Run, tmp_path: Path) -> None:
    assert run(*SHRINK, "--keep", "60", "--out", "s").status == 0
    assert Recognizer.load("s/model").normalization.size == "alike"
    told = run(*SHRINK, "--keep", "60", "--size", "recorded", "--out", "t")
    assert told.status == 0, told.err
    assert Recognizer.load("t/model").normalization.size == "recorded"
    trained = run("train", SOURCE, *SMALL, "--epochs", "3", "--size", "alike", "--out", "u")
    assert trained.status == 0, trained.err
    assert Recognizer.load("u").normalization.bones == arms().layout.bones
    layout = dataclasses.replace(arms().layout, parents=(-1, -1, -1, -1))
    write_npz(tmp_path / "arms.npz", dataclasses.replace(arms(), layout=layout))
    assert run(*SHRINK, "--keep", "60", "--out", "w").status == 0
    assert Recognizer.load("w/model").normalization.size == "recorded"  # there are no bones
    refused = run(*SHRINK, "--keep", "60", "--size", "alike", "--out", "x")
    assert refused.status == 2 and "has no bones to tell a skeleton's size by" in refused.err


def test_hidden_units_are_absolute_values_unless_told(run: Run) -> None:
    for told, found in (((), "abs"), (("--activation", "relu"), "relu")):
        ran = run(*SHRINK, "--keep", "60", *told, "--out", found)
        assert ran.status == 0, ran.err
        for part in ("model", "dense"):
            assert Recognizer.load(f"{found}/{part}").model.sizes["activation"] == found


def test_it_says_whether_left_and_right_mean_anything(run: Run, tmp_path: Path) -> None:
    """Waves that go round are the same from either side; the skeleton's two ends change places."""
    plain = run(*SHRINK, "--keep", "60", "--out", "s")
    assert plain.status == 0 and "left and right" not in plain.out  # an arm has no mirror image
    assert Recognizer.load("s/model").history[-1]["mirror"] == "layout 'own' has no mirror image"
    random = np.random.default_rng(0)
    swing = np.where(random.random(48) < 0.5, -1.0, 1.0)
    sequences = tuple(
        (frames * 0.05 + label * np.array([0, 1, 0]) * np.arange(4)[:, None]
         + sign * np.array([[0, 0, 0], [1, 0, 0], [0, 0, 0], [-1, 0, 0]])).astype(np.float32)
        for frames, label, sign in zip(arms().sequences, arms().labels, swing, strict=True)
    )  # fmt: skip
    layout = dataclasses.replace(arms().layout, mirror=(0, 1, 2, 3))
    data = dataclasses.replace(arms(), layout=layout, sequences=sequences)
    write_npz(tmp_path / "arms.npz", data)
    ran = run(*SHRINK, "--keep", "60", "--out", "t")
    assert "left and right are exchanged in half of the variants: " in ran.out, ran.err
    assert Recognizer.load("t/model").history[-1]["course"]["augmentation"]["mirror"] == 0.5
    ran = run(*SHRINK, "--keep", "60", "--no-mirror", "--out", "v")
    assert ran.status == 0 and "left and right" not in ran.out, ran.err
    assert Recognizer.load("v/model").history[-1]["course"]["augmentation"]["mirror"] == 0
    labels = (swing > 0).astype(np.int64)  # now the two sides are two actions
    data = dataclasses.replace(data, labels=labels, classes=("left", "right"))
    write_npz(tmp_path / "arms.npz", data)
    ran = run(*SHRINK, "--keep", "60", "--out", "u")
    assert "left and right are not exchanged: mirrored, 'left' looks like 'right'" in ran.out


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_page_that_cannot_be_written_leaves_the_models(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def full(*_: object) -> int:
        raise TrellisError("cannot write 's t/report.html': No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("trellis.cli.report.write_page", full)
        ran = run(*SHRINK, "--keep", "60", "--out", "s t", *words)
    assert ran.status == 2 and (ran.out == "") == bool(words)
    assert ran.err.strip().endswith(
        "No space left on device; the models are written, and `trellis report 's t'` makes the page"
    )
    assert sorted(os.listdir("s t")) == ["dense", "model"]
    again = run("report", "s t", "--data", SOURCE)
    assert again.status == 0 and Path("s t/report.html").exists(), again.err


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_whoever_has_seen_enough_has_the_whole_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "trellis", *SHRINK, "--keep", "60", "--out", "s", *words]
    ran = shell(f"{shlex.join(command)} | true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert ran.returncode == 141
    assert all(": epoch " in line for line in ran.stderr.splitlines())  # progress, no complaint
    assert sorted(os.listdir(tmp_path / "s")) == ["dense", "model", "report.html"]


def test_a_page_that_has_no_place_is_said_at_once(run: Run) -> None:
    Path("s/report.html").mkdir(parents=True)
    ran = run(*SHRINK, "--keep", "60", "--out", "s")
    assert ran.status == 2 and "cannot write 's/report.html': it is a folder" in ran.err
    assert os.listdir("s") == ["report.html"]


def test_what_was_searched_before_is_gone_with_what_it_found(run: Run) -> None:
    assert run(*SHRINK, "--at-least", "0.4", "--out", "s").status == 0
    assert Path("s/curve.json").exists()
    assert run(*SHRINK, "--keep", "60", "--out", "s", "--overwrite").status == 0
    assert sorted(os.listdir("s")) == ["dense", "model", "report.html"]


def test_figures_for_programs_come_with_the_page_too(run: Run) -> None:
    ran = run(*SHRINK, "--keep", "60", "--out", "s", "--json")
    assert ran.status == 0 and ran.json["kept"] == 60
    assert Path(ran.json["report"]).read_text().startswith("<!doctype html>")


def test_several_rates_in_one_folder(run: Run) -> None:
    ran = run(*SHRINK, "--keep", "300", "40", "--out", "s")
    assert ran.status == 0, ran.err
    assert ran.out.count("nested") == 2 and "300" in ran.out
    rates = Recognizer.load("s/model").history[-1]["rates"]
    total = sum(p.numel() for p in Recognizer.load("s/dense").model.parameters())
    for keep, rate in ((300, rates[0]), (40, rates[-1])):
        sparsity = str(1 - (keep + 0.5) / total)  # between two whole numbers of connections
        told = run("evaluate", "s", "--data", SOURCE, "--sparsity", sparsity, "--json")
        assert told.status == 0, told.err
        assert told.json["top1"] == rate["metrics"]["top1"]
    out = run("export", "c", "s", "--sparsity", "0.9", "--out", "device", "--json")
    assert out.status == 0 and 0 < out.json["weights"] <= total // 10
    assert run("export", "onnx", "s", "--sparsity", "0.9", "--out", "m.onnx").status == 0
    for words in (("evaluate", "s", "--data", SOURCE), ("export", "c", "s", "--out", "device")):
        refused = run(*words, "--sparsity", "0.99")
        assert refused.status == 2 and "expected a sparsity from" in refused.err
        assert refused.err.count("\n") == 1
    one = run(*words[:2], "s/dense", "--out", "device", "--sparsity", "0.9")
    assert one.status == 2 and "holds one network" in one.err


def test_a_search_shows_what_it_tried(run: Run) -> None:
    ran = run(*SHRINK, "--at-least", "0.4", "--out", "s")
    assert ran.status == 0, ran.err
    points = json.loads(Path("s/curve.json").read_text())
    assert {"sparsity", "budget", "kept", "validation_top1"} == points[0].keys()
    for point in points:
        assert f"{point['kept']:,}" in ran.out and point["kept"] <= point["budget"]
    assert "the fewest of those tried that hold 40.0 %" in ran.out


def test_a_target_that_cannot_be_met_says_how_far(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_shares_right", lambda *_: [0.25])
    ran = run(*SHRINK, "--at-least", "0.9", "--out", "s")
    assert ran.status == 0, ran.err
    assert "no network of this kind held 90.0 %" in ran.out
    assert "the best had 25.0 %, 65.0 points short" in ran.out
    step = Recognizer.load("s/model").history[-1]
    assert (step["at_least"], step["met"], step["best"]) == (0.9, False, 0.25)
    page = Path("s/report.html").read_text()
    assert "No network of this kind held 90.0 % on the recordings held out" in page


def test_json(run: Run) -> None:
    ran = run(*SHRINK, "--keep", "60", "--out", "s", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["kept"] == 60 and ran.json["met"] is None and ran.json["curve"] == []
    assert ran.json["small"].keys() == {"top1", "mean_class", "train_top1"}


def test_killed_while_tuning_it_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = run(*SHRINK, "--keep", "60", "--out", "a", "--json")
    original = running._recognizer

    def killed(*_: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "_recognizer", killed)
    assert run(*SHRINK, "--keep", "60", "--out", "b", "--json").status == 130
    assert not Path("b/model").exists() and list(Path("b").glob(".*.safetensors"))
    monkeypatch.setattr(running, "_recognizer", original)
    Path("b/model").mkdir()
    Path("b/model/.model.safetensors.0badcafe").touch()  # as if killed while writing that
    resumed = run(*SHRINK, "--keep", "60", "--out", "b", "--json")
    other = {"out": "b", "report": "b/report.html", "resumed": True}
    assert resumed.json == straight.json | other and not straight.json["resumed"]
    assert not list(Path("b").glob(".*.safetensors")) and not list(Path("b/model").glob(".*"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "give one of --sparsity"),
        (("--sparsity", "0.9", "--keep", "60"), "give one of --sparsity"),
        (("--sparsity", "99"), "did you mean 0.99?"),
        (("--at-least", "90"), "did you mean 0.9?"),
        (("--keep", "3"), "keep 9 or more"),
        (("--keep", "60", "--length", "-1"), "--length -1.0: give a number above 0"),
        (("--keep", "60", "--length", "1e308"), "--length 1e+308: give a number above 0"),
        (("--keep", "9" * 400), "--keep 99999999999999999999… is too large"),
        (("--keep", "60", "--out", "n" * 300), "nnn': File name too long; name another"),
        (("--keep", "60", "--out", "n/" * 3000), "n': File name too long; name another"),
        (("--keep", "60", SOURCE), "expected SOURCE or --data SOURCE, got both"),
        (("--keep", "60", "--data", f"csv:{'n' * 300}"), "nnn' cannot be read: File name too long"),
        (("--keep", "60", "--out", "arms.npz"), "it is a file; name a folder"),
        (("--keep", "60", "--out", "arms.npz/s"), "arms.npz"),
        (("--keep", "60", "--fold", "9"), "--fold '9'"),
    ],
)
def test_one_line_for_what_cannot_be(run: Run, words: tuple[str, ...], text: str) -> None:
    ran = run(*SHRINK, *words)
    assert ran.status == 2
    assert text in ran.err and ran.err.count("\n") == 1
    assert not list(Path().glob("**/*.safetensors")) and not list(Path().glob("runs/*"))


def test_recordings_are_an_argument(run: Run) -> None:
    """As of `trellis train`; --data is the same."""
    ran = run("shrink", SOURCE, *SHRINK[3:], "--keep", "60", "--out", "s", "--json")
    same = run(*SHRINK, "--keep", "60", "--out", "t", "--json")
    assert ran.status == 0, ran.err
    assert ran.json | {"out": "t", "report": "t/report.html"} == same.json
    assert "got neither" in run("shrink", "--keep", "60").err


def test_train_and_tune_take_channels_and_augmentation(run: Run) -> None:
    words = ("--epochs", "5", "--augment", *SMALL)
    ran = run("train", SOURCE, "--out", "m", "--channels", "coordinates", "bones", *words)
    assert ran.status == 0, ran.err
    saved = Recognizer.load("m")
    assert saved.kinds == ("coordinates", "bones")
    assert saved.model.sizes["channels"] == 2 * 18
    assert saved.history[-1]["augmentation"]["crop"] == 0.75
    assert saved.inputs(load_dataset(SOURCE).sequences[:2]).shape == (2, 4, 36)
    assert run("prune", "m", "--sparsity", "0.5", "--out", "p").status == 0
    assert (
        run("tune", "p", "--data", SOURCE, "--out", "t", "--epochs", "3", "--augment").status == 0
    )
    assert Recognizer.load("t").kinds == saved.kinds
    assert run("evaluate", "t", "--data", SOURCE).status == 0


def test_what_is_refused_leaves_no_folder(run: Run) -> None:
    before = sorted(Path().iterdir())
    assert run(*SHRINK, "--keep", "0").status == 2
    assert sorted(Path().iterdir()) == before
