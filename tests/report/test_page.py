"""Pages as files and in a browser: whole in themselves, legible anywhere, and harmless."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from tests.report.browser import Browser, Seen
from tests.report.conftest import HOSTILE, Made, made
from tests.report.runs import hands
from trellis.pages import page
from trellis.report import write_page
from trellis.report.page import audit_report
from trellis.skeleton import Layout

ROOT = Path(trellis.__file__).parents[2]


def audited(path: Path) -> Path:
    """The page of a network with a layer cut off, and a name that would like to be run."""
    first, second, third = nn.Linear(6, 8), nn.Linear(8, 5), nn.Linear(5, 3)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)
    with torch.no_grad():
        first.weight[4:] = 0
        second.weight[:, :3] = 0
        third.weight[:, 1:] = 0
    found = trellis.audit(model, torch.zeros(1, 6))
    write_page(path, audit_report(found, HOSTILE[0], [("Weights", HOSTILE[1])]))
    return path


def test_the_built_page_is_that_of_its_sources() -> None:
    sources = ROOT / "report-page" / "src"
    if not sources.is_dir():
        pytest.skip("the page's sources are not part of an installed package")
    digest = hashlib.sha256()
    for path in sorted(sources.iterdir(), key=lambda p: p.name):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    for name in ("page.js", "page.css"):
        built = (ROOT / "src" / "trellis" / "pages" / name).read_text(encoding="utf-8")
        stamp = re.match(r"/\* built from report-page/src, (\w+) \*/", built)
        assert stamp is not None and stamp[1] == digest.hexdigest(), "npm run build in report-page/"
        assert len(built) < 300_000


def test_the_command_writes_a_full_table_and_it_is_not_large(full: Made, tmp_path: Path) -> None:
    """How long that takes: bench/page.py."""
    out = tmp_path / "report.html"
    subprocess.run(
        [sys.executable, "-m", "trellis", "report", str(full.folder.path), "--out", str(out)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True,
    )  # fmt: skip
    assert out.stat().st_size < 3_000_000
    assert out.read_bytes() == full.page.read_bytes()


def test_a_policy_lets_nothing_run_but_the_page_itself(small: Made) -> None:
    text = small.page.read_text(encoding="utf-8")
    head = text[: text.index("<style>")]
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', head)
    assert policy.startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe" not in policy and "http" not in policy
    assert text.count("<script") == 2 and text.count("</script") == 2
    [data] = re.findall(r'<script type="application/json" id="content">(.*?)</script>', text, re.S)
    assert json.loads(data) == json.loads(json.dumps(small.content))
    assert not set("<>&\u2028\u2029") & set(data)


@pytest.mark.parametrize("width", [390, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen_in_light_and_dark(
    browser: Browser, small: Made, tmp_path: Path, width: int, scheme: Any
) -> None:
    for path in (small.page, audited(tmp_path / "audit.html")):
        with browser.opened(path, width=width, color_scheme=scheme) as seen:
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
            assert shade(seen) == scheme
            assert small_texts(seen) == []
            button = seen.page.locator(".theme")
            button.click()
            assert shade(seen) == {"light": "dark", "dark": "light"}[scheme]
            button.click()
            assert shade(seen) == scheme
            seen.quiet()


def small_texts(seen: Seen, least: float = 9) -> list[str]:
    """Those in pictures that are smaller than so many pixels, as they are shown."""
    script = """() => [...document.querySelectorAll('svg text')]
      .filter(text => text.textContent && text.getBoundingClientRect().width > 0)
      .map(text => [text.textContent,
        parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a,
                                                                 text.getScreenCTM().b)])"""
    return [text for text, size in seen.page.evaluate(script) if size < least - 0.05]


@pytest.mark.parametrize("width", [390, 1600])
def test_forty_five_classes_and_fourteen_methods_fit_a_phone_and_the_dark(
    browser: Browser, full: Made, width: int
) -> None:
    with browser.opened(full.page, width=width, color_scheme="dark") as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert shade(seen) == "dark" and small_texts(seen) == []
        assert seen.count("#network .class-mark") == 45 and seen.count(".key") == 14
        assert seen.count("#confusion .matrix-row") == seen.count("#losses .loss") == 45
        assert seen.count("#confusion .heat-name") == (0 if width == 390 else 90)
        # Nothing sticks out of its picture, and no name lies on the next.
        outside = """() => [...document.querySelectorAll('figure svg text')].filter(text => {
          const own = text.getBoundingClientRect(), all = document.documentElement.clientWidth;
          return own.width > 0 && (own.left < -1 || own.right > all + 1);
        }).map(text => text.textContent)"""
        assert seen.page.evaluate(outside) == []
        for names in ("#network .class-name", "#losses .heat-name", "#joint-shares .heat-name"):
            places = seen.page.locator(names).evaluate_all(
                "texts => texts.map(text => text.getBoundingClientRect().y).sort((a, b) => a - b)"
            )
            assert len(places) == 45
            assert min(b - a for a, b in itertools.pairwise(places)) >= 9
        seen.page.locator("#confusion .matrix-row[data-class='44']").click()
        assert seen.page.locator("#class-picker").input_value() == "44"
        seen.quiet()


def test_the_full_table_prints(browser: Browser, full: Made) -> None:
    with browser.opened(full.page, color_scheme="dark") as seen:
        assert pages(seen.page.pdf(format="A4")) >= 3
        seen.page.emulate_media(media="print")
        assert shade(seen) == "light"
        for chart in ("accuracy", "live", "layers", "network", "losses", "confusion"):
            assert seen.page.locator(f"#{chart} svg.chart").last.is_visible()
        seen.quiet()


def pages(printed: bytes) -> int:
    assert printed.startswith(b"%PDF")
    return len(re.findall(rb"/Type /Page\b", printed))


def shade(seen: Seen) -> str:
    """Whether the ground is light or dark, and text the other way."""
    script = "() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"  # noqa: E501
    ground, ink = (
        sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in seen.page.evaluate(script)
    )
    assert abs(ground - ink) > 400
    return "light" if ground > ink else "dark"


def test_it_prints(browser: Browser, small: Made) -> None:
    with browser.opened(small.page, color_scheme="dark") as seen:
        assert pages(seen.page.pdf(format="A4")) >= 2
        seen.page.emulate_media(media="print")
        assert shade(seen) == "light"  # ink is dear
        assert not seen.page.locator(".buttons").first.is_visible()
        assert seen.page.locator("#network .lines").is_visible()
        seen.quiet()


def test_hostile_names_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    joints = tuple(f"{HOSTILE[i % 8]} {i}" for i in range(9))
    layout = Layout(HOSTILE[0], joints, (-1, 0, 1, 2, 0, 4, 5, 0, 7))
    data = hands(HOSTILE, layout, each=8, source=f"npz:{HOSTILE[1]}")
    run = made(tmp_path, data)
    with browser.opened(run.page) as seen:
        seen.page.wait_for_timeout(200)
        titles = seen.texts("#network .class-mark title")
        assert sorted(titles) == sorted(HOSTILE)
        assert seen.texts("#network .joint-mark title") == list(joints)
        for label, name in enumerate(HOSTILE):
            seen.page.select_option("#class-picker", str(label))
            assert name in (seen.page.locator(".readout").text_content() or "")
        assert HOSTILE[1] in (seen.page.locator("header").text_content() or "")
        assert seen.page.evaluate("window.pwned") is None
        assert seen.count("main img, main b:has(*), main script") == 0
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 1280
        seen.quiet()


def test_half_a_character_is_no_reason_to_fail(tmp_path: Path) -> None:
    text = page({"kind": "report", "title": "half \ud83d", "classes": ["\udc4b"]})
    (tmp_path / "page.html").write_text(text, encoding="utf-8")


def test_the_audit_page_tells_the_worst_first(browser: Browser, tmp_path: Path) -> None:
    with browser.opened(audited(tmp_path / "audit.html")) as seen:
        assert seen.count("#flow .layer") == 3
        names = "marks => marks.map(mark => mark.dataset.layer)"
        layers = seen.page.locator("#flow .layer")
        assert layers.evaluate_all(names) == ["0.weight", "2.weight", "4.weight"]
        assert seen.count("#flow .bar-dead") == 2 and seen.count("#flow .river") == 1
        worst = seen.page.locator(".words code").first.inner_text()
        seen.page.click(".sort")
        assert layers.evaluate_all(names)[0] == worst
        assert "dead" in seen.page.locator(".answer").inner_text()
        assert HOSTILE[0] in (seen.page.locator("header").text_content() or "")
        seen.page.click("#flow .to-table")
        assert seen.count("#flow tbody tr") == 3
        assert seen.page.evaluate("window.pwned") is None
        seen.quiet()
