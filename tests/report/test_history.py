"""The command that makes a model again: it says whatever the command would not do by itself."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.paper.waves import waves
from trellis.report.history import commands
from trellis.report.model import Models, model_report
from trellis.skeleton import Recogniser, fit
from trellis.skeleton.shrink import course_named, shrink
from trellis.train import recipe_named
from trellis.train.provenance import hardware


def told(tmp_path: Path, step: dict[str, Any], *, body: bool, **options: Any) -> dict[str, Any]:
    """The page of a model of joints that say, or do not, which way a body faces."""
    data = waves()
    layout = dataclasses.replace(data.layout, body=(0, 1, 2, 3) if body else None)
    data = dataclasses.replace(data, layout=layout)
    model = Recogniser.fresh(data, data.folds[0], **options)
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


@pytest.mark.parametrize(
    "odd", [{"mirror": ["x"]}, {"mirror": "x", "course": {"augmentation": None}}, {"mirror": 3}]
)
def test_what_a_stranger_wrote_of_mirrors_breaks_no_page(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    page = told(tmp_path, SHRINK | {"course": {"teachers": 0}} | odd, body=False)
    assert "Left and right" not in dict(page["facts"])


@pytest.mark.parametrize("given", ["many", ["a"], {"a": 1}, 1.5])
def test_what_a_stranger_wrote_of_teachers_breaks_no_page(given: Any) -> None:
    line = commands([SHRINK | {"course": {"teachers": given}}], {}, {})
    assert option(line[0], "--teachers") == str(given)


@pytest.mark.parametrize("teachers", [0, 1, 4])
def test_it_names_teachers(tmp_path: Path, teachers: int) -> None:
    for name in ("default", "quick"):
        course = course_named(name, teachers=teachers)
        step = SHRINK | {"course": course.to_dict(), "recipe": {"name": course.recipe.name}}
        page = told(tmp_path, step | {"teachers": teachers}, body=False, basis="cosines")
        own = name == "quick" and teachers == 0
        assert option(page["command"], "--teachers") == (None if own else str(teachers))
        by = {0: "labels alone", 1: "1 network with a hundredth", 4: "4 networks with a hundredth"}
        assert dict(page["facts"])["Taught by"].startswith(by[teachers])
    unasked = SHRINK | {"course": course_named("default").to_dict(), "teachers": 1}
    assert option(told(tmp_path, unasked, body=False)["command"], "--teachers") is None
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
    fresh = Recogniser.fresh(data, data.folds[0], chunks=4, heads=2, filters=4)
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
