"""The page of nested networks has a slider over their sizes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.report.browser import Browser
from tests.skeleton.small import DATA, FOLD, made
from trellis.report import write_page
from trellis.report.model import model_report, models_in
from trellis.skeleton import evaluated


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nested")
    outcome = made(keep=(300, 120, 40))
    outcome.dense.save(path / "dense")
    outcome.small.save(path / "model", nested=outcome.nested)
    return path


def test_the_slider_shows_every_size(browser: Browser, folder: Path) -> None:
    models = models_in(folder)
    content = model_report(models, DATA, FOLD)
    rates = models.model.history[-1]["rates"]
    rows = {row["key"]: row for row in content["rows"]}
    keys = content["nested"]["keys"]
    assert [rows[key]["kept"][0] for key in keys] == [rate["kept"] for rate in rates]
    for key, rate in zip(keys, rates, strict=True):
        assert rows[key]["top1"][0] == pytest.approx(100 * rate["metrics"]["top1"], abs=1e-3)
        assert rows[key]["bytes"] == 8 * rate["kept"]
    assert content["nested"]["asked"] == ["model", "nested-120", "nested-40"]
    assert set(content["networks"]) == {"model", "nested-120", "nested-40"}
    write_page(folder / "page.html", content)
    with browser.opened(folder / "page.html") as seen:
        slider = seen.page.locator("#rates-slider")
        assert slider.get_attribute("max") == str(len(keys) - 1)
        slider.focus()
        for key in keys[1:]:
            seen.page.keyboard.press("ArrowRight")
            kept = f"{rows[key]['kept'][0]:,.0f}"
            assert f"{kept} connections" in seen.texts(".rates output")[0]
            assert kept in seen.texts(".card.pruned b")
            assert seen.page.locator("#network-picker").input_value() == key
        seen.choose(keys[0])
        assert slider.input_value() == "0"
        seen.quiet()


def test_figures_of_other_recordings_are_not_mixed(folder: Path) -> None:
    """Networks between those asked for are not measured again, so other data leaves them out."""
    models = models_in(folder)
    content = model_report(models, DATA, dataclasses.replace(FOLD, name="other"))
    assert [row["kept"][0] for row in content["rows"][1:]] == [300, 120, 40]
    smallest = content["rows"][-1]
    assert smallest["top1"][0] == pytest.approx(
        100 * evaluated(models.nested[-1][1], DATA, FOLD.test).top1, abs=1e-3
    )
