"""A model with all that it expects of a recording."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trellis
from tests.skeleton.moving import ARM, CLASSES, arms
from trellis.errors import TrellisError
from trellis.skeleton import Layout, Normalization, Recognizer, chunked, evaluated, fit
from trellis.training import recipe_named

RECIPE = recipe_named("default", epochs=60, tune_epochs=40, tune_smoothing=0.02, rate=5e-3)
SIZES: dict[str, Any] = {"chunks": 6, "heads": 3, "filters": 8}


def fresh(**changes: Any) -> Recognizer:
    data = arms()
    return Recognizer.fresh(data, data.folds[0], **(SIZES | changes))


def test_inputs_are_chunks_normalised_by_the_training_recordings() -> None:
    data = arms()
    (fold,) = data.folds
    recognizer = fresh()
    learnt = Normalization.fit(chunked([data.sequences[i] for i in fold.train], 6), ARM)
    assert recognizer.normalization == learnt
    x = recognizer.inputs(data.sequences)
    assert x.shape == (48, 4, 18) and x.dtype == np.float32
    np.testing.assert_array_equal(x, learnt(chunked(data.sequences, 6)))
    shares = recognizer.probabilities(data.sequences)
    logits = recognizer.model(torch.from_numpy(x))
    np.testing.assert_allclose(shares, logits.softmax(1).detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)


def test_where_a_recording_took_place_does_not_matter() -> None:
    moved = [frames + np.array([5, -3, 2], np.float32) for frames in arms().sequences]
    recognizer = fresh()
    np.testing.assert_allclose(
        recognizer.probabilities(moved), recognizer.probabilities(arms().sequences), atol=1e-4
    )


def test_a_history_with_removed_settings_is_loaded(tmp_path: Path) -> None:
    course = {"teachers": 4, "agreement": 1.0, "weight": 0.8, "temperature": 2.0, "drop": 0.3}
    old = fresh().after(step="shrink", course=course, teachers=4, agreement=1.0)
    old.save(tmp_path / "m")
    assert Recognizer.load(tmp_path / "m").history == old.history


def test_saved_is_loaded(tmp_path: Path) -> None:
    data = arms()
    trained = fit(fresh(bias=True), data, data.folds[0], RECIPE, about={"protocol": "x"})
    trellis.prune(trained.model, torch.zeros(1, 4, 18), sparsity=0.5)
    trained.save(tmp_path / "m")
    loaded = Recognizer.load(tmp_path / "m")
    for field in ("chunks", "normalization", "classes", "layout", "history"):
        assert getattr(loaded, field) == getattr(trained, field)
    assert loaded.history[0]["protocol"] == "x" and loaded.history[0]["recipe"]["epochs"] == 60
    np.testing.assert_array_equal(
        loaded.probabilities(data.sequences), trained.probabilities(data.sequences)
    )
    assert trellis.masks_of(loaded.model) == trellis.masks_of(trained.model)


def test_fit_learns_and_says_how_well() -> None:
    data = arms()
    (fold,) = data.folds
    trained = fit(fresh(), data, fold, RECIPE)
    found = trained.history[-1]["metrics"]
    assert found["train_top1"] > 0.9 and found["top1"] > 0.8
    assert found["top1"] == evaluated(trained, data, fold.test).top1
    assert not trained.synthetic
    assert fit(fresh(), dataclasses.replace(data, synthetic=True), fold, RECIPE).synthetic


@pytest.mark.parametrize("bias", [False, True])
def test_tuning_touches_kept_connections_only(bias: bool) -> None:
    data = arms()
    (fold,) = data.folds
    trained = fit(fresh(bias=bias), data, fold, RECIPE)
    masks = trellis.prune(trained.model, torch.zeros(1, 4, 18), sparsity=0.8)
    before = masks.plain_state_dict(trained.model)
    tuned = fit(trained, data, fold, RECIPE, tune=True)
    assert [step["step"] for step in tuned.history] == ["train", "tune"]
    assert tuned.history[-1]["recipe"]["epochs"] == 40
    assert tuned.history[-1]["recipe"]["smoothing"] == 0.02
    assert trellis.masks_of(tuned.model) == masks
    after = masks.plain_state_dict(tuned.model)
    for name, mask in masks.items():
        assert (after[name][~mask] == 0).all()
        assert (after[name][mask] != before[name][mask]).float().mean() > 0.9


def test_tuned_without_what_is_empty_it_is_the_same() -> None:
    data = arms()
    (fold,) = data.folds
    found, units = [], []
    for little in (0.9, 0.0):  # of a network: what is worth leaving out the rest for
        recognizer = fresh()
        trellis.prune(recognizer.model, torch.zeros(1, 4, 18), sparsity=0.95)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("trellis.skeleton.model.gcn_stacks._LITTLE", little)
            tuned = fit(
                recognizer, data, fold, RECIPE, tune=True,
                watch=lambda each: units.append(each.weights["dense.weight"].shape[2]),
            )  # fmt: skip
        found.append(trellis.masks_of(tuned.model).plain_state_dict(tuned.model))
    assert set(units[40:]) == {4 * 3 * 8} and max(units[:40]) < 4 * 3 * 8
    for name, weight in found[0].items():
        torch.testing.assert_close(weight, found[1][name], rtol=1e-3, atol=1e-4)


def test_a_fit_that_fails_leaves_the_masks_on() -> None:
    data = arms()
    recognizer = fresh()
    masks = trellis.prune(recognizer.model, torch.zeros(1, 4, 18), sparsity=0.8)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(recognizer, data, data.folds[0], RECIPE, watch=stop)
    assert trellis.masks_of(recognizer.model) == masks


def test_labels_go_by_name() -> None:
    data = arms()
    turned = dataclasses.replace(data, classes=("grab", "unused", "wave", "point"))
    labels = np.array([2, 3, 0], np.int64)[data.labels]
    same = dataclasses.replace(turned, labels=labels)
    np.testing.assert_array_equal(fresh().labels(same), data.labels)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layout": Layout("arm", ARM.joints[:3], (-1, 0, 1))}, "has 3 joints .* trained on 4"),
        (
            {"layout": dataclasses.replace(ARM, joints=("shoulder", "elbow", "palm", "hand"))},
            "joint 2 of 'arms' is 'palm' and the model's is 'wrist'",
        ),
        ({"classes": ("wave", "point", "clap")}, "'clap', which the model does not know"),
    ],
)
def test_data_of_another_skeleton_or_other_classes(changes: dict[str, Any], message: str) -> None:
    data = arms()
    joints = len(changes.get("layout", ARM).joints)
    cut = tuple(frames[:, :joints] for frames in data.sequences)
    with pytest.raises(TrellisError, match=message):
        fresh().labels(dataclasses.replace(data, sequences=cut, **changes))


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (np.zeros((4, 3, 3), np.float32), r"has the shape \(4, 3, 3\); this model wants"),
        (np.zeros((0, 4, 3), np.float32), "at least one frame of 4 joints"),
        (np.full((4, 4, 3), np.nan, np.float32), "not finite"),
    ],
)
def test_recordings_that_do_not_fit(frames: Any, message: str) -> None:
    with pytest.raises(TrellisError, match=message):
        fresh().probabilities([frames])


def test_parts_that_do_not_fit_together() -> None:
    good = fresh()
    wrong: list[tuple[str, Any, str]] = [
        ("chunks", 7, "channels=21 for chunks=7, got channels=18"),
        ("classes", CLASSES[:2], "classes=2, got classes=3"),
        ("layout", Layout("one", ("a",), (-1,)), "nodes=1, one for each joint, got nodes=4"),
        ("normalization", Normalization((9,), 1.0), r"roots are \(9,\), of 4 joints"),
    ]
    for field, value, message in wrong:
        with pytest.raises(TrellisError, match=message):
            dataclasses.replace(good, **{field: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n: n.pop("chunks"), "expected the key 'chunks'"),
        (lambda n: n.update(chunks="six"), r"int at .*\.chunks, got 'six'"),
        (lambda n: n.update(classes="abc"), r"array at .*\.classes, got 'abc'"),
        (lambda n: n.update(normalisation={"roots": [0], "scale": 0}), "scale"),
        (lambda n: n.update(normalisation=[]), r"object at .*\.normalisation"),
        (lambda n: n.update(layout=[]), r"object at .*\.layout"),
        (lambda n: n["layout"].update(parents=[5, 5, 5, 5]), "parent of joint 0 is 5"),
        (lambda n: n.update(history=[1]), r"object at .*\.history\[0\]"),
        (lambda n: n.update(history=[{"step": ["x"]}]), r"history\[0\]\.step, got"),
        (lambda n: n.update(history=[{"course": [1]}]), r"history\[0\]\.course, got"),
        (lambda n: n.update(history=[{"recipe": "x"}]), r"history\[0\]\.recipe, got 'x'"),
        (lambda n: n.update(history=[{"length": "x"}]), r"history\[0\]\.length, got 'x'"),
        (
            lambda n: n.update(history=[{"course": {"agreement": True}}]),
            r"\.agreement, got True",
        ),
        (
            lambda n: n.update(history=[{"metrics": {"top1": "all"}}]),
            r"\.top1, got 'all'",
        ),
    ],
)
def test_notes_that_are_not_sound(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    fresh().save(tmp_path / "m")
    path = tmp_path / "m" / "model.json"
    description = json.loads(path.read_text())
    change(description["notes"]["recogniser"])
    path.write_text(json.dumps(description))
    with pytest.raises(TrellisError, match=message):
        Recognizer.load(tmp_path / "m")


def test_a_bare_model_is_no_recogniser(tmp_path: Path) -> None:
    trellis.save(fresh().model, tmp_path / "m")
    with pytest.raises(TrellisError, match="which says nothing about recordings"):
        Recognizer.load(tmp_path / "m")
