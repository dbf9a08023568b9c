"""The page of a result shows the run and the layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.browser import Browser
from trellis import TrellisError

from .tasks import batches, net, shrunk


def test_the_page_shows_the_run(browser: Browser, tmp_path: Path) -> None:
    found = shrunk(net(), validation=batches())
    place = found.report(tmp_path / "page.html")
    with browser.opened(place) as seen:
        assert seen.count("#history .series-line") == 3  # score, loss, kept
        assert seen.count("#flow .layer") == len(found.audit.layers)
        seen.page.click("#history .to-table")
        assert seen.count("#history tbody tr") == len(found.history)
        seen.quiet()


def test_the_page_of_several_rates_has_a_slider(browser: Browser, tmp_path: Path) -> None:
    found = shrunk(net(), sparsity=(0.5, 0.9), steps=30, validation=batches())
    place = found.report(tmp_path / "page.html")
    with browser.opened(place) as seen:
        seen.page.locator("#rates-slider").focus()
        for rate in found.rates[1:]:
            seen.page.keyboard.press("ArrowRight")
            assert f"{rate.kept} connections" in seen.texts(".rates output")[0]
        assert "asked for" in seen.texts(".rates output")[0]
        seen.quiet()


def test_a_folder_is_no_page(tmp_path: Path) -> None:
    found = shrunk(net(), steps=6)
    with pytest.raises(TrellisError, match="folder"):
        found.report(tmp_path)
