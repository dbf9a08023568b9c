"""Pages of models of every kind, in a browser."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

import trellis
from tests.paper.waves import waves
from tests.report.browser import Browser
from trellis.report import write_page
from trellis.report.model import Models, model_report
from trellis.skeleton import Recognizer


@pytest.mark.parametrize(
    "options",
    [
        {"blocks": 3},
        {"basis": "cosines", "kinds": ("coordinates", "bones")},
        {"combine": "sum"},
        {"blocks": 2, "combine": "sum", "shared": True},
        {"kinds": ("coordinates", "velocity", "bones"), "bias": True},
    ],
    ids=str,
)
def test_every_kind_of_network_is_drawn(
    browser: Browser, tmp_path: Path, options: dict[str, Any]
) -> None:
    data = waves()
    fold = data.folds[0]
    model = Recognizer.fresh(data, fold, chunks=4, heads=3, filters=6, **options)
    example = torch.zeros(1, *model.inputs([data.sequences[0]]).shape[1:])
    masks = trellis.prune(model.model, example, sparsity=0.9)
    content = model_report(Models(tmp_path, model), data, fold)
    [network] = content["networks"].values()
    drawing = network["drawing"]
    lines = [*drawing["dense"], *chain(*drawing["attentions"], *drawing["convolutions"])]
    if not options.get("shared"):
        assert len(lines) == masks.kept  # nothing is dead, and every connection is one line
    assert all(sum(own) == 10_000 for own in (*network["joints"], *network["chunks"]))
    write_page(tmp_path / "page.html", content)
    with browser.opened(tmp_path / "page.html") as seen:
        assert seen.count("#network .line") == len(lines) > 0
        seen.page.locator("#network .class-mark").first.hover()
        assert seen.count("#network .lit-line") > 0 and seen.count("#network .joint.on") > 0
        assert seen.count("#confusion .cell") > 0 and seen.count("#curves") == 0
        seen.quiet()


def test_a_dense_model_is_drawn_in_bundles(browser: Browser, tmp_path: Path) -> None:
    data = waves()
    model = Recognizer.fresh(data, data.folds[0], chunks=32, heads=4, filters=24)
    content = model_report(Models(tmp_path, model), data, data.folds[0])
    assert content["networks"]["dense"]["drawing"]["mode"] == "bundles"
    write_page(tmp_path / "page.html", content)
    with browser.opened(tmp_path / "page.html") as seen:
        assert seen.count("#headline .card") == 1 and seen.count("#losses .loss") == 3
        assert seen.count("#network .line") > 0
        assert "dense" in seen.page.locator("#network h3").inner_text()
        seen.quiet()


def test_a_network_that_sees_waves_says_so(browser: Browser, tmp_path: Path) -> None:
    data = waves(synthetic=True)
    fold = data.folds[0]
    model = Recognizer.fresh(data, fold, chunks=12, heads=3, filters=6, basis="cosines")
    example = torch.zeros(1, *model.inputs([data.sequences[0]]).shape[1:])
    trellis.prune(model.model, example, sparsity=0.9)
    model = model.after(step="shrink", source="waves", synthetic=True, kept=9)
    content = model_report(Models(tmp_path, model), data, fold)
    assert content["basis"] == "cosines" and "--basis" not in content["command"]  # as shrink does
    [network] = content["networks"].values()
    assert all(sum(own) == 10_000 for own in (*network["waves"], *network["chunks"]))
    write_page(tmp_path / "page.html", content)
    with browser.opened(tmp_path / "page.html") as seen:
        told = seen.page.locator("#network .about").inner_text()
        assert "begin at the wave" in told and "slow waves on top" in told
        assert any("looks at wave" in text for text in seen.texts("#network .head title"))
        for figure in ("#class-shares", "#chunk-shares"):
            assert "spread over the moments by the wave's square" in (
                seen.page.locator(f"{figure} .about").inner_text()
            )
        seen.page.select_option("#class-picker", "1")
        assert seen.count("#class-shares .moment") == seen.count("#class-shares .wave") == 12
        first = seen.texts("#class-shares .wave title")[:3]
        assert [text.split(":")[1] for text in first] == [
            " the average place", " half a wave over the recording", " one wave over the recording",
        ]  # fmt: skip
        columns = seen.texts("#wave-shares .axis-name")
        assert [name.split("wave")[0] for name in columns] == [
            "average", "½", "1", "1½", "2", "2½–4", "4½–5½",
        ]  # fmt: skip
        seen.page.click("#class-shares .to-table")
        parts = seen.page.locator("#class-shares tbody td").all_inner_texts()
        assert sum(map(float, parts)) == pytest.approx(3)  # over joints, moments and waves
        seen.quiet()


def test_a_network_of_several_blocks_shows_them_all(browser: Browser, tmp_path: Path) -> None:
    data = waves()
    model = Recognizer.fresh(data, data.folds[0], chunks=8, heads=3, filters=6, blocks=3)
    content = model_report(Models(tmp_path, model), data, data.folds[0])
    write_page(tmp_path / "page.html", content)
    with browser.opened(tmp_path / "page.html") as seen:
        # Wherever it is many: joints, three columns of heads, classes; and between them bundles.
        assert content["networks"]["dense"]["drawing"]["mode"] == "paths"
        assert len(seen.texts("#network .headings text")) == 2 + 2 * 3
        assert seen.count("#network .head") == 3 + 2 * 3 + 2 * 3  # later ones have two sides
        assert "heads of later blocks" in seen.page.locator("#network .about").inner_text()
        seen.quiet()
    model = Recognizer.fresh(data, data.folds[0], chunks=8, heads=4, filters=32, blocks=2)
    content = model_report(Models(tmp_path, model), data, data.folds[0])
    write_page(tmp_path / "page.html", content)
    with browser.opened(tmp_path / "page.html") as seen:
        assert content["networks"]["dense"]["drawing"]["mode"] == "bundles"
        assert seen.count("#network .head") == 4 + 4
        assert "heads of all 2 blocks" in seen.page.locator("#network .about").inner_text()
        seen.page.locator("#network .class-mark").first.hover()
        assert seen.count("#network .lit-line") > 0
        seen.quiet()
