"""A right and a wrong prediction of each class, as small moving skeletons."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.paper.waves import waves
from tests.report.browser import Browser
from tests.report.conftest import Made
from trellis.report import write_page
from trellis.report.model import FRAMES, GRID, Models, examples, from_fold, model_report, thinned
from trellis.skeleton import Fold, Recognizer, Skeletons


def shown_of(data: Skeletons, tested: list[int], said: list[int]) -> dict[str, Any]:
    fold = Fold("", np.arange(0), np.array(tested))
    labels = data.labels[tested].tolist()
    found: dict[str, Any] = examples(from_fold(data, fold), data.layout, labels, said)["classes"]
    return found


@settings(max_examples=30, deadline=None)
@given(said=st.lists(st.integers(0, 2), min_size=36, max_size=36), order=st.randoms())
def test_they_are_the_first_right_and_the_first_wrong_one(said: list[int], order: Any) -> None:
    data = waves()
    tested = list(range(36))
    order.shuffle(tested)
    found = shown_of(data, tested, said)
    for label in range(3):
        of_class = [(i, a) for i, a in zip(tested, said, strict=True) if data.labels[i] == label]
        for kind in ("right", "wrong"):
            ones = [(i, a) for i, a in of_class if (a == label) == (kind == "right")]
            shown = found[str(label)][kind]
            if not ones:
                assert shown is None
                continue
            recording, answer = ones[0]
            assert (shown["name"], shown["said"]) == (data.names[recording], answer)
            assert shown["length"] == len(data.sequences[recording])


def test_a_class_that_is_not_tested_has_none() -> None:
    data = waves()
    tested = [i for i in range(36) if data.labels[i] != 1]
    assert set(shown_of(data, tested, [0] * len(tested))) == {"0", "2"}


def test_the_bytes_are_the_recording_turned_centred_and_on_one_scale() -> None:
    data = waves()
    label = int(data.labels[4])
    shown = shown_of(data, [4], [label])[str(label)]["right"]
    frames = data.sequences[4]
    raw = np.frombuffer(base64.b64decode(shown["bytes"]), np.uint8).reshape(-1, 5, 3)
    assert len(raw) == shown["frames"] == len(frames) <= FRAMES
    points = raw.astype(float) - GRID
    # Distances are those of the recording, but for one scale and half a step of the grid each way.
    apart = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    true = np.linalg.norm(frames[:, :, None] - frames[:, None], axis=-1)
    scale = apart.sum() / true.sum()
    assert np.abs(apart - scale * true).max() < 2 * np.sqrt(3)
    assert np.linalg.norm(points, axis=-1).max() == pytest.approx(GRID, abs=1)
    for a, b in ((0, 3), (1, 4)):  # the second coordinate is up, as in the recording
        up = points[:, a, 1] - points[:, b, 1]
        assert np.abs(up - scale * (frames[:, a, 1] - frames[:, b, 1])).max() < 2


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 200), most=st.integers(2, 60))
def test_thinning_keeps_both_ends_and_an_even_pace(length: int, most: int) -> None:
    frames = np.linspace(0, 1, length, dtype=np.float32)[:, None, None] * np.ones((1, 2, 3))
    found = thinned(frames.astype(np.float32), most)
    assert len(found) == min(length, most)
    assert found[0, 0, 0] == frames[0, 0, 0] and found[-1, 0, 0] == frames[-1, 0, 0]
    np.testing.assert_allclose(np.diff(found[:, 0, 0], 2), 0, atol=1e-5)


def test_captions_say_what_the_network_said_of_the_chosen_class(
    browser: Browser, small: Made
) -> None:
    chosen, data = small.content["chosen"], small.data
    record = small.folder.records[f"{chosen}/seed-0/fold-0"]
    answers = list(zip(data.folds[0].test.tolist(), record["said"], strict=True))
    both, one_sided = 0, 0
    with browser.opened(small.page) as seen:
        for label in range(len(data.classes)):
            seen.page.select_option("#class-picker", str(label))
            own = [(i, said) for i, said in answers if data.labels[i] == label]
            right = next((i for i, said in own if said == label), None)
            wrong = next(((i, said) for i, said in own if said != label), None)
            texts = {kind: seen.page.locator(f".moving.{kind} figcaption").text_content() or ""
                     for kind in ("right", "wrong")}  # fmt: skip
            heading = seen.page.locator("#moving h3").text_content() or ""
            assert data.classes[label][:79] in heading
            if right is None:
                assert texts["right"] == "None of this class is named right."
            else:
                length = len(data.sequences[right])
                assert texts["right"] == f"named right{data.names[right]} · {length} frames"
            if wrong is None:
                assert texts["wrong"] == "None of this class is named wrong."
                assert seen.page.locator(".moving.wrong.empty").count() == 1
            else:
                recording, said = wrong
                length = len(data.sequences[recording])
                assert texts["wrong"].startswith(f"taken for {data.classes[said][:59]}")
                assert texts["wrong"].endswith(f"{data.names[recording]} · {length} frames")
            both += right is not None and wrong is not None
            one_sided += (right is None) != (wrong is None)
        assert both >= 2 and one_sided >= 1
        row = next(row for row in small.content["rows"] if row["key"] == chosen)
        about = seen.page.locator("#moving .about").text_content() or ""
        assert f"{row['label']} at {row['rate']:g} %" in about and "seed 0" in about
        seen.quiet()


def test_classes_are_counted_as_the_network_counts_them(browser: Browser, tmp_path: Path) -> None:
    """Recordings may have fewer classes than the network, and in another order."""
    data = waves(classes=("still", "slow", "fast", "never"), recordings=40)
    model = Recognizer.fresh(data, data.folds[0], chunks=4, heads=2, filters=4)
    order = ("fast", "still", "slow")
    some = [i for i in range(40) if data.classes[data.labels[i]] in order]
    names = [data.classes[data.labels[i]] for i in some]
    fewer = dataclasses.replace(
        data, sequences=tuple(data.sequences[i] for i in some), classes=order,
        labels=np.array([order.index(name) for name in names]),
        names=tuple(f"{name} {i}" for i, name in enumerate(names)),
        folds=(dataclasses.replace(data.folds[0], train=np.arange(9), test=np.arange(9, 30)),),
    )  # fmt: skip
    content = model_report(Models(tmp_path, model), fewer, fewer.folds[0])
    said = model.probabilities([fewer.sequences[i] for i in range(9, 30)]).argmax(1)
    by_name = {fewer.names[i]: model.classes[a] for i, a in zip(range(9, 30), said, strict=True)}
    for label, kinds in content["examples"]["classes"].items():
        for kind, shown in kinds.items():
            if shown is not None:
                assert shown["name"].split()[0] == model.classes[int(label)]
                assert model.classes[shown["said"]] == by_name[shown["name"]]
                assert (shown["said"] == int(label)) == (kind == "right")
    write_page(tmp_path / "page.html", content)
    with browser.opened(tmp_path / "page.html") as seen:
        assert seen.count("#moving") == 1
        seen.quiet()
