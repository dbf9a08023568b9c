"""``trellis export wasm``."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import trellis
from tests.cli.arms import SOURCE, trained  # noqa: F401  (a fixture)
from tests.cli.conftest import Run
from tests.deploy.wasm.node import under_node
from trellis import skeleton
from trellis.deploy.wasm import write as build
from trellis.deploy.wasm.write import toolchain
from trellis.skeleton import GCN, Normalization, Recognizer, read_recording

FILES = ["README.md", "index.html", "model.mjs", "model.wasm"]


@pytest.fixture
def small(run: Run, trained: Path, tmp_path: Path) -> Path:  # noqa: F811
    """A folder with a pruned model, its data and recordings."""
    for name in ("arms", "arms.npz", "wave.csv", "point.csv"):
        (tmp_path / name).symlink_to(trained / name)
    assert run("prune", "arms", "--sparsity", "0.8", "--out", "small").status == 0
    return tmp_path


def content(page: Path) -> dict[str, object]:
    [text] = re.findall(
        r'<script type="application/json" id="content">(.*?)</script>', page.read_text(), re.S
    )
    found: dict[str, object] = json.loads(text)
    return found


def test_a_recogniser_becomes_a_page(run: Run, small: Path) -> None:
    done = run("export", "wasm", "small", "--out", "page", "--data", SOURCE, "--show", "0", "5")
    assert done.status == 0, done.err
    assert sorted(path.name for path in Path("page").iterdir()) == FILES
    assert done.out.startswith("wrote page: ") and "2 recordings to show" in done.out
    recogniser, data = Recognizer.load("small"), skeleton.load_dataset(SOURCE)
    clips = content(Path("page/index.html"))["scene"]["clips"]  # type: ignore[index]
    assert [clip["name"] for clip in clips] == [data.names[0], data.names[5]]
    assert [clip["label"] for clip in clips] == [data.classes[data.labels[i]] for i in (0, 5)]
    for name in ("wave.csv", "point.csv"):
        frames = read_recording(name, recogniser.layout)
        [found] = under_node(small / "page", frames, "recorded")
        shares = torch.softmax(torch.from_numpy(found.copy()), 0).numpy()
        np.testing.assert_allclose(shares, recogniser.probabilities([frames])[0], atol=1e-5)


def test_a_page_of_waves(run: Run, small: Path) -> None:
    one = dataclasses.replace(Recognizer.load("small"), basis="cosines")
    one.save("waves")
    done = run("export", "wasm", "waves", "--out", "page", "--data", SOURCE)
    assert done.status == 0, done.err
    frames = read_recording("wave.csv", one.layout)
    [found] = under_node(small / "page", frames, "recorded")
    shares = torch.softmax(torch.from_numpy(found.copy()), 0).numpy()
    np.testing.assert_allclose(shares, one.probabilities([frames])[0], atol=1e-5)


def test_int8_and_json(run: Run, small: Path) -> None:
    words = ("export", "wasm", "small", "--out", "page", "--values", "int8", "--data", SOURCE)
    told = run(*words, "--json").json
    assert told["wasm_bytes"] == Path("page/model.wasm").stat().st_size
    assert told["page_bytes"] + told["recordings_bytes"] == Path("page/index.html").stat().st_size
    assert told["weights"] > 0 and told["values"] == "int8"


def test_hands_are_shown_without_data(run: Run, tmp_path: Path) -> None:
    """What is built in is shown to a model of such hands; recordings of people never are."""
    hands = skeleton.load_dataset("hands45")
    model = GCN(21, 12, 2, heads=2, filters=4)
    trellis.prune(model, torch.zeros(1, 21, 12), sparsity=0.9)
    classes = ("open_bottle", "something else")
    Recognizer(model, 4, Normalization((0,), 50.0), classes, hands.layout).save(tmp_path / "mine")
    done = run("export", "wasm", "mine", "--out", "page")
    assert done.status == 0, done.err
    assert "hands45 (synthetic)" in done.out
    clips = content(Path("page/index.html"))["scene"]["clips"]  # type: ignore[index]
    assert len(clips) == 4
    # A class that the model does not know is no truth to compare with.
    assert {clip["label"] for clip in clips} == {"open_bottle", None}


def test_other_skeletons_need_data(run: Run, small: Path) -> None:
    done = run("export", "wasm", "small", "--out", "page")
    assert done.status != 0 and "--data" in done.err and not Path("page").exists()
    done = run("export", "wasm", "small", "--out", "page", "--data", SOURCE, "--show", "no such")
    assert done.status != 0 and "has no recording 'no such'" in done.err


def test_any_model(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import torch\ndef net():\n    return torch.nn.Sequential(torch.nn.Linear(3, 2))\n"
    )
    words = ("export", "wasm", "shop:net", "--input", "1x3", "--out", "plain")
    done = run(*words)
    assert done.status == 0, done.err
    assert sorted(path.name for path in Path("plain").iterdir()) == [
        name for name in FILES if name != "index.html"
    ]
    done = run(*words, "--data", SOURCE)
    assert done.status != 0 and "does not describe recordings" in done.err
    done = run("export", "wasm", "shop:net", "--input", "1x3", "--out", "plain", "--fold", "1")
    assert done.status != 0 and "--fold divide --data" in done.err


def test_without_a_compiler_the_package_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain.cache_clear()
    monkeypatch.setattr(build, "zig", lambda: None)
    monkeypatch.setattr(build, "program", lambda name: None)
    done = run("export", "wasm", "any", "--out", "page")
    toolchain.cache_clear()
    assert done.status != 0 and "pip install ziglang" in done.err
