"""The command that makes a model again: it says whatever the command would not do by itself."""

from __future__ import annotations

import dataclasses
import inspect
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import trellis
from tests.paper.waves import waves
from trellis.cli.prune import prune
from trellis.methods.prune import Options
from trellis.report.history import PRUNE as OWN
from trellis.report.history import commands, exact
from trellis.report.model import Models, model_report
from trellis.skeleton import Recognizer, fit
from trellis.skeleton.shrink import course_named, shrink
from trellis.training import recipe_named
from trellis.training.checkpoint import hardware
from trellis.training.schedule import options_of


def told(tmp_path: Path, step: dict[str, Any], *, body: bool, **options: Any) -> dict[str, Any]:
    """The page of a model of joints that say, or do not, which way a body faces."""
    data = waves()
    layout = dataclasses.replace(data.layout, body=(0, 1, 2, 3) if body else None)
    data = dataclasses.replace(data, layout=layout)
    model = Recognizer.fresh(data, data.folds[0], **options)
    return model_report(Models(tmp_path, model.after(source="x", **step)), None, None)


def option(line: str, name: str) -> str | None:
    words = shlex.split(line)
    return words[words.index(name) + 1] if name in words else None


SHRINK = {"step": "shrink", "kept": 9, "recipe": {"name": "shrink quick"}}


@pytest.mark.parametrize(
    ("body", "frame"), [(False, "camera"), (True, "camera"), (True, "body")]
)  # fmt: skip
@pytest.mark.parametrize("basis", ["chunks", "cosines"])
def test_it_names_frame_and_basis_where_they_are_not_the_commands_own(
    tmp_path: Path, body: bool, frame: str, basis: str
) -> None:
    options: dict[str, Any] = {"body": body, "frame": frame, "basis": basis}
    trained = told(tmp_path, {"step": "train"}, **options)
    assert option(trained["command"], "--frame") == (None if frame == "camera" else frame)
    assert option(trained["command"], "--basis") == (None if basis == "chunks" else basis)
    shrunk = told(tmp_path, SHRINK, **options)
    own = "body" if body else "camera"
    assert option(shrunk["command"], "--frame") == (None if frame == own else frame)
    assert option(shrunk["command"], "--basis") == (None if basis == "cosines" else basis)
    for page in (trained, shrunk):
        seen = dict(page["facts"])["What it sees"]
        assert f"the basis of {basis}" in seen and f"the frame of the {frame}" in seen


@pytest.mark.parametrize("size", ["recorded", "alike"])
def test_it_names_the_size_where_it_is_not_the_commands_own(tmp_path: Path, size: str) -> None:
    trained = told(tmp_path, {"step": "train"}, body=False, size=size)
    assert option(trained["command"], "--size") == (None if size == "recorded" else size)
    shrunk = told(tmp_path, SHRINK, body=False, size=size)
    assert option(shrunk["command"], "--size") == (None if size == "alike" else size)
    words = {"recorded": "in the size that was recorded", "alike": "in one size"}
    for page in (trained, shrunk):
        assert words[size] in dict(page["facts"])["What it sees"]


@pytest.mark.parametrize("origin", ["recording", "frame"])
@pytest.mark.parametrize("recipe", ["paper", "default"])
def test_it_names_the_origin_where_it_is_not_the_recipes_own(
    tmp_path: Path, origin: str, recipe: str
) -> None:
    step = {"step": "train", "recipe": {"name": recipe}}
    page = told(tmp_path, step, body=False, origin=origin)
    usual = "frame" if recipe == "paper" else "recording"
    assert option(page["command"], "--origin") == (None if origin == usual else origin)
    seen = dict(page["facts"])["What it sees"]
    assert ("relative to its own roots" in seen) == (origin == "frame")


@pytest.mark.parametrize(
    "odd", [{"mirror": ["x"]}, {"mirror": "x", "course": {"augmentation": None}}, {"mirror": 3}]
)
def test_what_a_stranger_wrote_of_mirrors_breaks_no_page(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    page = told(tmp_path, SHRINK | {"course": {"teachers": 0}} | odd, body=False)
    assert "Left and right" not in dict(page["facts"])


@pytest.mark.parametrize("given", ["many", ["a"], {"a": 1}, 1.5, 4])
def test_removed_settings_of_an_old_history_break_no_page(given: Any) -> None:
    course = {"teachers": given, "agreement": given, "weight": 0.8, "drop": 0.3}
    [line] = commands([SHRINK | {"course": course}], {}, {})
    assert option(line, "--teachers") is None and option(line, "--agreement") is None


COURSE = {"step": "train", "source": "x", "recipe": {"name": "shrink quick"}}
TRAIN, PRUNE, TUNE = {"step": "train"}, {"step": "prune", "budget": 9}, {"step": "tune"}


@pytest.mark.parametrize(
    ("history", "folders"),
    [
        ([SHRINK], [None]),
        ([COURSE], [None]),
        ([SHRINK, TUNE], ["shrunk", "shrunk/model", "tuned"]),
        ([SHRINK, PRUNE], ["shrunk", "shrunk/model", "pruned"]),
        ([COURSE, PRUNE, TUNE], ["shrunk", "shrunk/dense", "pruned", "pruned", "tuned"]),
        (
            [TRAIN, PRUNE, TUNE, {"step": "shown to a friend"}, PRUNE, TUNE, TUNE],
            ["dense", "dense", "pruned", "pruned", "tuned", "tuned", "pruned-2", "pruned-2",
             "tuned-2", "tuned-2", "tuned-3"],
        ),
    ],
)  # fmt: skip
def test_each_command_goes_on_from_what_the_one_before_it_wrote(
    history: list[dict[str, Any]], folders: list[str | None]
) -> None:
    found: list[str | None] = []
    for line in commands(history, {}, {}):
        words = shlex.split(line)
        found += [words[2]] if words[1] in ("prune", "tune") else []
        found.append(option(line, "--out"))
    assert found == folders


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "--method closed --scope balanced"),
        ({"method": "magnitude", "scope": "erk"}, "--method magnitude --scope erk"),
        ({"method": "magnitude", "consistent": True}, "--method magnitude --consistent yes"),
        ({"consistent": True}, "--method closed --scope balanced"),
        ({"consistent": False}, "--method closed --consistent no --scope balanced"),
        ({"stochastic": True, "seed": 5}, "--method closed --scope balanced --stochastic --seed 5"),
        ({"method": "chains", "surrogate": "global", "inverse_alpha": math.inf, "seed": 1,
          "row_normalize": True},
         "--method chains --surrogate global --inverse-alpha inf --row-normalize --seed 1"),
        ({"method": "chains", "inverse_alpha": 10 / 3},
         "--method chains --inverse-alpha 3.3333333333333335"),
        ({"cover_outputs": False}, "--method closed --scope balanced --no-cover-outputs"),
        ({"ignore": ["0.*", "a b"]},
         "--method closed --scope balanced --ignore '0.*' --ignore 'a b'"),
        ({"saliency": {"0.weight": torch.ones(4, 4)}},
         "--method closed --scope balanced --saliency FILE.safetensors"),
        ({"method": "random", "scope": {"0.weight": 4}},
         "--method random --scope FILE.json"),
    ],
)  # fmt: skip
def test_a_command_that_prunes_says_how_it_did(given: dict[str, Any], words: str) -> None:
    own = {"method": "closed"} | given
    scope = {"scope": "balanced"} if own["method"] == "closed" else {}  # as `trellis.prune` stores
    step = {"step": "prune", "budget": 4} | options_of({"consistent": None} | scope | own).record()
    assert commands([step], {}, {}) == [f"trellis prune dense --keep 4 {words} --out pruned"]


def test_a_step_of_an_earlier_release_holds_options_of_every_method() -> None:
    old = {"scope": "global", "surrogate": "global", "inverse_alpha": 5.0, "row_normalize": True}
    step = {"step": "prune", "budget": 4, "method": "viterbi", "seed": 2} | old
    told = "--method viterbi --seed 2"
    assert commands([step], {}, {}) == [f"trellis prune dense --keep 4 {told} --out pruned"]


def test_a_method_that_is_not_imported_is_named() -> None:
    step = {"step": "prune", "budget": 4, "method": "theirs", "strength": 3, "seed": 2}
    told = "--method theirs --seed 2"
    assert commands([step], {}, {}) == [f"trellis prune dense --keep 4 {told} --out pruned"]


def test_what_prune_takes_by_itself_is_what_its_command_takes() -> None:
    own = inspect.signature(prune).parameters
    assert {name: own[name].default for name in OWN} == OWN | {"ignore": ()}
    assert set(Options.__dataclass_fields__) == {*OWN, "method", "consistent"}


@pytest.mark.parametrize("number", [1.0, 0.5, 2 / 3, 0.123456789, 1234567.0, 1 / 3 * 1e-7, 1e30, 3])
def test_a_number_is_the_same_again(number: float) -> None:
    step = SHRINK | {"at_least": number, "length": number + 1}
    taught = TUNE | {"teacher": ["t"], "taught": {"weight": number, "temperature": number}}
    [shrunk, tuned] = commands([step, taught], {}, {})
    for line, name in (
        (shrunk, "--at-least"), (tuned, "--teacher-weight"),
        (tuned, "--temperature"),
    ):  # fmt: skip
        said = option(line, name)
        assert said is not None and float(said) == number and not said.endswith(".0")
    assert option(shrunk, "--length") == exact(number + 1)
    assert float(exact(number + 1)) == number + 1


def test_what_a_small_network_reached_is_not_said_of_the_dense_one(tmp_path: Path) -> None:
    data = waves()
    model = Recognizer.fresh(data, data.folds[0], chunks=4, heads=2, filters=4)
    example = torch.zeros(1, *model.inputs([data.sequences[0]]).shape[1:])
    trellis.prune(model.model, example, keep=60)
    shrunk = model.after(source="x", metrics={"top1": 0.5}, **SHRINK)
    dense, small = model_report(Models(tmp_path, shrunk), None, None)["rows"]
    assert dense["top1"] is None and small["top1"] == [50.0, None]


@pytest.mark.parametrize("teachers", [0, 1, 4])
def test_it_names_teachers(tmp_path: Path, teachers: int) -> None:
    by = {0: "labels alone", 1: "1 network with a hundredth", 4: "4 networks with a hundredth"}
    for name in ("default", "quick"):
        course = course_named(name)
        step = SHRINK | {"course": course.to_dict(), "recipe": {"name": course.recipe.name}}
        page = told(tmp_path, step | {"teachers": teachers}, body=False, basis="cosines")
        assert dict(page["facts"])["Taught by"].startswith(by[teachers])
    before = SHRINK | {"course": {"teachers": 4}}  # a model of an earlier release
    assert dict(told(tmp_path, before, body=False)["facts"])["Taught by"].startswith("4 dense")


@pytest.mark.parametrize(
    ("step", "options", "words"),
    [
        ({}, {}, ""),
        ({"precision": "tf32"}, {}, "--precision tf32"),
        ({"augmentation": {"turn": 0.1}}, {}, "--augment"),
        ({"bones": "start"}, {}, "--bones start"),
        ({"bones": ["start"]}, {}, ""),
        ({}, {"edges": "limit"}, "--bones limit"),
        ({}, {"edges": "fixed"}, "--bones fixed"),
    ],
)
def test_it_names_what_else_was_chosen(
    tmp_path: Path, step: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    if options:
        options = options | {"adjacency": waves().layout.adjacency()}
    page = told(tmp_path, {"step": "train"} | step, body=False, **options)
    assert page["command"] == " ".join(["trellis train x", *words.split(), "--out dense"])


def test_the_dense_network_of_a_course_is_made_by_the_course() -> None:
    step = {"step": "train", "source": "x", "recipe": {"name": "shrink quick"}, "length": 0.5,
            "augmentation": {"turn": 0.1}, "mirror": "yes"}  # fmt: skip
    by_itself = {"basis": "cosines", "activation": "abs"}
    [line] = commands([step], by_itself | {"frame": "camera"}, by_itself)
    assert line == "trellis shrink --data x --sparsity 0.5 --course quick --length 0.5"
    old = {"basis": "cosines", "activation": "relu"}
    [line] = commands([step | {"mirror": None}], old, by_itself)
    assert line.endswith("--length 0.5 --no-mirror --activation relu")


def test_a_page_says_on_what_a_model_was_trained_and_how_long(tmp_path: Path) -> None:
    data = waves()
    fresh = Recognizer.fresh(data, data.folds[0], chunks=4, heads=2, filters=4)
    trained = fit(fresh, data, data.folds[0], recipe_named("quick", epochs=2))
    facts = dict(model_report(Models(tmp_path, trained), None, None)["facts"])
    assert facts["Hardware"] == hardware(torch.device("cpu")) and " to train" in facts["Time"]
    assert f"torch {torch.__version__}" in facts["Versions"]
    course = course_named("quick").times(0.05)
    small = shrink(fresh, data, data.folds[0], course, keep=60, folder=tmp_path)
    facts = dict(model_report(Models(tmp_path, small.small), None, None)["facts"])
    assert facts["Hardware"] == hardware(torch.device("cpu"))
    assert "1 block of rectified units" in facts["Network"]
    assert facts["Left and right"].startswith("not exchanged: layout ")
    assert facts["Time"].endswith(" to train, prune and tune")
    [first], [last] = small.dense.history, small.small.history
    assert 0 <= first["seconds"] <= last["seconds"]
    # Going on with what is finished takes no time, and the time that it took is still told.
    again = shrink(fresh, data, data.folds[0], course, keep=60, folder=tmp_path)
    assert again.small.history[-1]["seconds"] == pytest.approx(last["seconds"], abs=0.25)


def test_a_model_of_old_says_that_neither_was_recorded(tmp_path: Path) -> None:
    facts = dict(told(tmp_path, {"step": "train"}, body=False)["facts"])
    assert facts["Hardware"] == facts["Time"] == facts["Versions"] == "not recorded"
