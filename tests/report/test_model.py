"""Pages of models of every kind, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import trellis
from tests.paper.waves import waves
from tests.report.browser import Browser
from trellis.report import write_page
from trellis.report.model import Models, model_report
from trellis.skeleton import Recogniser


@pytest.mark.parametrize(
    "options",
    [
        {"blocks": 2},
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
    model = Recogniser.fresh(data, fold, chunks=4, heads=3, filters=6, **options)
    example = torch.zeros(1, *model.inputs([data.sequences[0]]).shape[1:])
    masks = trellis.prune(model.model, example, sparsity=0.9)
    content = model_report(Models(tmp_path, model), data, fold)
    [network] = content["networks"].values()
    drawing = network["drawing"]
    lines = [*drawing["attention"], *drawing["dense"]]
    lines += [line for block in drawing["convolutions"] for line in block]
    if not options.get("shared") and options.get("blocks", 1) == 1:
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
    model = Recogniser.fresh(data, data.folds[0], chunks=32, heads=4, filters=24)
    content = model_report(Models(tmp_path, model), data, data.folds[0])
    assert content["networks"]["dense"]["drawing"]["mode"] == "bundles"
    write_page(tmp_path / "page.html", content)
    with browser.opened(tmp_path / "page.html") as seen:
        assert seen.count("#headline .card") == 1 and seen.count("#losses .loss") == 3
        assert seen.count("#network .line") > 0
        assert "dense" in seen.page.locator("#network h3").inner_text()
        seen.quiet()
