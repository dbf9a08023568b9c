"""``trellis data``: what people see of recordings."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Run
from tests.report.browser import Browser, Seen
from tests.skeleton.folders import FPHA_LIST, csv_folder, fpha_folder, motion, mtm1_folder, write
from trellis.cli.data import GRID, page
from trellis.skeleton import Layout, Skeletons, load_dataset, read_recording
from trellis.skeleton.data.dataset import branches, placed
from trellis.skeleton.data.layouts import FPHA, LAYOUTS, SBU
from trellis.skeleton.data.readers.reader import HALVES
from trellis.skeleton.data.readers.recording import csv_text

Fails = Callable[..., str]


def content(text: str) -> Any:
    """What a page draws."""
    [found] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found)


def test_info_counts_what_is_there(run: Run, tmp_path: Path) -> None:
    made = fpha_folder(tmp_path)
    ran = run("data", "info", f"fpha:{tmp_path}")
    assert ran.status == 0 and ran.err == ""
    frames = sum(map(len, made.values()))
    assert f"4 recordings of 2 classes, {frames} frames" in ran.out
    assert "lengths: 3 to 6 frames, median 4.5" in ran.out
    assert "joints: 21 (fpha), 20 bones, centred on Wrist" in ran.out
    assert re.search(r"1:1 +2 +2", ran.out) and re.search(r"pour_milk +2 +11", ran.out)
    assert "left out" not in ran.out


def test_info_for_programs_is_the_same(run: Run, tmp_path: Path) -> None:
    made = fpha_folder(tmp_path)
    found = run("data", "info", f"fpha:{tmp_path}", "--protocol", "subjects", "--json").json
    assert found["recordings"] == len(made) and found["frames"] == sum(map(len, made.values()))
    assert found["lengths"] == {"shortest": 3, "median": 4.5, "longest": 6}
    assert [item["recordings"] for item in found["classes"]] == [2, 2]
    assert found["folds"][0] == {"name": "Subject_1", "train": 2, "test": 2}
    assert found["layout"]["joints"] == list(FPHA.joints)
    assert found["left_out"] == [] and found["synthetic"] is False


def test_info_says_what_was_left_out(run: Run, fails: Fails, tmp_path: Path) -> None:
    fpha_folder(tmp_path)
    write(tmp_path / "Hand_pose_annotation_v1" / FPHA_LIST[1][0] / "skeleton.txt", "0 1 2\n")
    source = f"fpha:{tmp_path}"
    assert "skeleton.txt:1: expected 64 numbers" in fails("data", "info", source)
    ran = run("data", "info", source, "--skip-bad")
    assert ran.status == 0
    assert "left out: 1\n" in ran.out and f"- {FPHA_LIST[1][0]}: " in ran.out
    [left] = run("data", "info", source, "--skip-bad", "--json").json["left_out"]
    assert left["name"] == FPHA_LIST[1][0] and "skeleton.txt:1" in left["why"]


def test_info_says_that_the_split_was_drawn(run: Run, tmp_path: Path) -> None:
    csv_folder(tmp_path / "mine", ["walk/1.csv", "walk/2.csv"])
    assert HALVES in run("data", "info", f"csv:{tmp_path / 'mine'}").out


def test_info_of_many_left_out_points_to_json(run: Run, tmp_path: Path) -> None:
    names = [f"walk/{number}.csv" for number in range(20)]
    csv_folder(tmp_path / "mine", names)
    for name in names[4:]:
        write(tmp_path / "mine" / name, "")
    out = run("data", "info", f"csv:{tmp_path / 'mine'}", "--skip-bad").out
    assert "left out: 16" in out and "and 6 more (see --json)" in out


def test_names_cannot_act_on_the_terminal(run: Run, tmp_path: Path) -> None:
    csv_folder(tmp_path / "mine", ["\x1b[2J[red]/1.csv", "\x1b[2J[red]/2.csv"])
    out = run("data", "info", f"csv:{tmp_path / 'mine'}").out
    assert "\x1b" not in out and "\\x1b[2J[red]" in out


def test_show_writes_a_page(run: Run, tmp_path: Path) -> None:
    fpha_folder(tmp_path)
    ran = run("data", "show", f"fpha:{tmp_path}", "2", "--out", "hand.html", "--view", "top")
    assert ran.status == 0
    assert ran.out == "wrote hand.html: Subject_2/open_bottle/1, open_bottle, 4 frames\n"
    drawn = content((tmp_path / "hand.html").read_text("utf-8"))
    assert drawn["view"] == "top" and drawn["fps"] == 30
    assert drawn["bones"] == [list(bone) for bone in FPHA.bones]
    assert drawn["joints"] == list(FPHA.joints)


def test_show_by_name_and_without_a_file_name(run: Run, tmp_path: Path) -> None:
    mtm1_folder(tmp_path)
    data = load_dataset(f"mtm1:{tmp_path}")
    assert run("data", "show", f"mtm1:{tmp_path}", data.names[3]).status == 0
    assert (tmp_path / "recording-3.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["4"], "has no recording '4'"),
        (["-1"], "data"),
        (["Subject_2/open_bottle/2"], "did you mean 'Subject_2/open_bottle/1'?"),
        (["0", "--out", "a.gif"], "ends in .html"),
        (["0", "--out", "none/a.html"], "there is no folder"),
        (["0", "--fps", "0"], "--fps 0.0: expected a number"),
        (["0", "--fps", "nan"], "--fps nan: expected a number"),
    ],
)
def test_show_refuses(run: Run, tmp_path: Path, words: list[str], said: str) -> None:
    fpha_folder(tmp_path)
    ran = run("data", "show", f"fpha:{tmp_path}", *words)
    assert ran.status == 2 and said in ran.err
    assert not list(tmp_path.glob("*.html"))


def test_no_subcommand_and_help(run: Run) -> None:
    assert run("data").status == 2
    assert run("data", "fly").status == 2
    for words in (["data", "--help"], ["data", "info", "--help"], ["data", "show", "--help"]):
        ran = run(*words)
        assert ran.status == 0 and "\n  trellis data" in ran.out


def skeletons(name: str = "one", label: str = "walk", layout: Layout = FPHA) -> Skeletons:
    frames = motion(3, len(layout.joints)).astype(np.float32)
    folds: tuple[Any, ...] = ()
    return Skeletons("csv:x", (frames,), np.array([0]), (label,), (name,), layout, folds)


HOSTILE = '</script><script>alert(1)</script><img src="x" onerror=alert(2)>&amp;{{data}}\u2028'


def test_hostile_names_are_text() -> None:
    layout = Layout("own", (HOSTILE, "b"), (-1, 0))
    text = page(skeletons(HOSTILE, HOSTILE, layout), 0)
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text and "{{" not in text.replace(html.escape("{{data}}"), "")
    assert content(text)["joints"][0].startswith(("'</script>", "</script>"))


@given(name=st.text(), label=st.text())
def test_any_name_makes_a_page(name: str, label: str) -> None:
    text = page(skeletons(name, label), 0)
    text.encode("utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert len(content(text)["frames"]) == 3


def test_the_page_fetches_nothing_and_knows_the_dark() -> None:
    text = page(skeletons(), 0)
    assert not re.search(r"(https?:|//[a-z]|\bsrc=|\bhref=|\bimport\b|url\()", text)
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text and "prefers-reduced-motion" in text


def written(folder: Path, frames: int = 40, **options: Any) -> Path:
    """A page of two joints, all of whose names would like to be run."""
    layout = Layout("own", (HOSTILE, f"{HOSTILE} too"), (-1, 0))
    data = dataclasses.replace(
        skeletons(HOSTILE, HOSTILE, layout), sequences=(motion(frames, 2).astype(np.float32),)
    )
    (folder / "page.html").write_text(page(data, 0, **options), encoding="utf-8")
    return folder / "page.html"


def picture(seen: Seen) -> str:
    return str(seen.page.evaluate("() => document.getElementById('stage').toDataURL()"))


def test_the_page_plays_and_steps_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    with browser.opened(written(tmp_path)) as seen:
        assert seen.texts("#play") == ["Pause"]
        seen.page.wait_for_function("() => Number(document.getElementById('frame').value) > 2")
        seen.page.click("#play")
        assert seen.texts("#play") == ["Play"]
        seen.page.fill("#frame", "38")
        assert seen.texts("#count") == ["39 of 40"]
        pictures = [picture(seen)]
        seen.page.locator("#play").blur()
        seen.page.locator("#frame").blur()
        for key, count in (("ArrowRight", 40), ("ArrowRight", 1), ("ArrowLeft", 40)):
            seen.page.keyboard.press(key)
            assert seen.texts("#count") == [f"{count} of 40"]
            pictures.append(picture(seen))
        assert pictures[1] == pictures[3] and len(set(pictures)) == 3
        seen.page.select_option("#speed", "2")
        seen.page.locator("#speed").blur()
        seen.page.keyboard.press("Space")
        seen.page.wait_for_function("() => Number(document.getElementById('frame').value) < 30")
        assert seen.texts("#play") == ["Pause"]
        seen.quiet()


def test_the_page_turns_in_a_browser_and_names_joints(browser: Browser, tmp_path: Path) -> None:
    with browser.opened(written(tmp_path, view="side"), reduced_motion="reduce") as seen:
        assert seen.texts("#play") == ["Play"]  # whoever wants it still
        assert seen.texts("#views button[aria-pressed=true]") == ["side"]
        pictures = [picture(seen)]
        for view in ("front", "top"):
            seen.page.click(f"#views button[data-view={view}]")
            assert seen.texts("#views button[aria-pressed=true]") == [view]
            pictures.append(picture(seen))
        box = seen.page.locator("#stage").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        seen.page.mouse.move(x, y)
        seen.page.mouse.down()
        seen.page.mouse.move(x + 90, y + 30)
        seen.page.mouse.up()
        seen.page.mouse.move(x, box["y"] - 5)
        assert seen.count("#views button[aria-pressed=true]") == 0
        pictures.append(picture(seen))
        assert len(set(pictures)) == 4
        seen.page.click("#views button[data-view=front]")
        [frame] = [content((tmp_path / "page.html").read_text("utf-8"))["frames"][0]]
        zoom = seen.page.evaluate("() => state.zoom")
        seen.page.mouse.move(x + zoom * frame[0], y - zoom * frame[1])
        assert picture(seen) != pictures[1]  # a name is drawn beside the joint
        seen.quiet()


def test_hostile_names_do_nothing_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    with browser.opened(written(tmp_path, frames=1), width=390) as seen:
        assert seen.texts("#count") == ["1 of 1"]
        assert all("</script>" in text for text in seen.texts("h1, h1 + p"))
        assert seen.count("img") == 0 and seen.count("script") == 2
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
        seen.page.locator("#play").blur()
        seen.page.keyboard.press("ArrowLeft")
        assert seen.texts("#count") == ["1 of 1"]
        seen.quiet()


def test_the_page_says_synthetic_where_it_is() -> None:
    real = skeletons()
    fields = {name: getattr(real, name) for name in real.__dataclass_fields__}
    assert "synthetic" not in page(real, 0)
    assert "synthetic" in page(Skeletons(**fields | {"synthetic": True}), 0)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("up", [None, "x", "y", "z", "x-down", "y-down", "z-down"])
def test_what_is_up_points_up_and_distances_stay(layout: Layout, up: str | None) -> None:
    drawn = np.array(content(page(skeletons(layout=layout), 0, up=up))["frames"])
    points = drawn.reshape(3, -1, 3).astype(float)
    assert np.abs(points).max() <= GRID
    frames = skeletons(layout=layout).sequences[0].astype(float)
    if up is not None:
        axis, sign = "xyz".index(up[0]), -1 if up.endswith("down") else 1
        along = sign * frames[..., axis]
        assert np.corrcoef(along.ravel(), points[..., 1].ravel())[0, 1] > 0.9999
        # All distances by one factor, and no mirror: the sign of a volume stays.
        ratio = np.linalg.norm(np.diff(points, axis=1), axis=-1) / np.linalg.norm(
            np.diff(frames, axis=1), axis=-1
        )
        assert ratio.std() / ratio.mean() < 0.02
        volumes = [np.linalg.det(p[0, 1:4] - p[0, 0]) for p in (frames, points)]
        assert volumes[0] * volumes[1] > 0


def test_one_point_and_one_frame_can_be_drawn() -> None:
    assert placed(np.ones((1, 1, 3), np.float32), np.eye(3), GRID).tolist() == [[0, 0, 0]]


def test_colours_go_by_finger_and_by_person() -> None:
    assert len(set(branches(FPHA))) == 6
    assert branches(SBU) == [0] * 15 + [1] * 15
    assert branches(Layout("ring", ("a", "b", "c"), (2, 0, 1))) == [0, 1, 2]


def test_an_exported_recording_is_read_to_the_same_bits(run: Run, tmp_path: Path) -> None:
    ran = run("data", "export", "hands45", "167", "--out", "wave.csv")  # as the README has it
    assert ran.status == 0 and ran.out.startswith("wrote wave.csv: subject_1/wave/2, wave, ")
    data = load_dataset("hands45")
    found = read_recording(tmp_path / "wave.csv", data.layout)
    np.testing.assert_array_equal(found, data.sequences[167])


@given(names=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3, unique=True))
def test_recordings_of_any_joints_can_be_exported(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    path = tmp_path_factory.mktemp("names") / "a.csv"
    frames = np.random.default_rng(0).normal(size=(3, len(names), 3)).astype(np.float32)
    try:
        path.write_text(csv_text(frames, names), encoding="utf-8")
    except UnicodeEncodeError:
        return
    layout = Layout("own", tuple(names), (-1,) * len(names))
    np.testing.assert_array_equal(read_recording(path, layout), frames)
