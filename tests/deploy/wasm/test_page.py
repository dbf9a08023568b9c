"""The demo page in a real browser: the same probabilities as PyTorch, and harmless."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trellis
from tests.deploy.c.test_main import ARM, recogniser, recording
from tests.report.browser import Browser, Seen
from trellis.deploy.recording import Recording
from trellis.deploy.wasm import Clip, Scene
from trellis.skeleton import Recognizer

HOSTILE = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=alert(1)>\"'`${1}",
    "👋🏽 wave — ünïcode \u2028 @WASM@ {{data}}",
)
LENGTHS = (1, 3, 60, 700)


@pytest.fixture(scope="module")
def one() -> Recognizer:
    torch.manual_seed(0)
    return recogniser(basis="cosines")


@pytest.fixture(scope="module")
def scene() -> Scene:
    labels = (*HOSTILE, None)
    clips = [
        Clip(f"{HOSTILE[1]} {n}", recording(n), label)
        for n, label in zip(LENGTHS, labels, strict=True)
    ]
    return Scene(clips, ARM.bones, (0, 1, 2), source=HOSTILE[0])


@pytest.fixture(scope="module")
def page(one: Recognizer, scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    roots, scale = one.normalization.roots, one.normalization.scale
    trellis.export_wasm(
        one.model, torch.zeros(1, 3, 12), folder, classes=HOSTILE, scene=scene, title=HOSTILE[1],
        recording=Recording((HOSTILE[0], HOSTILE[1], "plain"), one.chunks, roots, scale, one.basis),
    )  # fmt: skip
    return folder / "index.html"


def ready(seen: Seen) -> None:
    appears(seen, "#timing", "µs")


def appears(seen: Seen, selector: str, text: str) -> None:
    seen.page.locator(selector).filter(has_text=re.compile(text)).wait_for()


def test_probabilities_are_those_of_pytorch(
    browser: Browser, page: Path, one: Recognizer, scene: Scene
) -> None:
    with browser.opened(page) as seen:
        ready(seen)
        for number, clip in enumerate(scene.clips):
            for frames in sorted({1, len(clip.frames) // 2 or 1, len(clip.frames)}):
                [wanted] = one.probabilities([clip.shown()[:frames]])
                script = f"trellis.choose({number}), trellis.classify({frames})"
                found = np.array(seen.page.evaluate(f"() => ({script})"))
                np.testing.assert_allclose(found, wanted, atol=1e-5)
        seen.quiet()


def test_it_tells_and_draws_what_it_classified(
    browser: Browser, page: Path, one: Recognizer, scene: Scene
) -> None:
    with browser.opened(page) as seen:
        ready(seen)
        seen.page.select_option("#clip", "2")
        seen.page.click("#play")
        assert seen.texts("#play") == ["Play"]
        [wanted] = one.probabilities([scene.clips[2].shown()])
        seen.page.fill("#frame", "60")
        order = np.argsort(-wanted)
        assert seen.texts("#bars span") == [HOSTILE[i] for i in order]
        assert seen.texts("#bars output") == [f"{100 * wanted[i]:.1f} %" for i in order]
        assert seen.texts("#best") == [HOSTILE[order[0]]]
        assert seen.texts("#count") == ["60 of 60"]
        assert seen.texts("#truth") == [f"It is: {HOSTILE[2]}"]
        before = drawn(seen)
        assert before > 100  # pixels that are not empty
        seen.page.fill("#frame", "1")
        assert seen.texts("#count") == ["1 of 60"]
        assert re.fullmatch(r"[\d.]+ µs an inference here; .*\.", seen.texts("#timing")[0])
        seen.quiet()


def drawn(seen: Seen) -> int:
    script = """() => {
      const stage = document.getElementById('stage'), pen = stage.getContext('2d');
      const {data} = pen.getImageData(0, 0, stage.width, stage.height);
      return data.filter((value, i) => i % 4 === 3 && value > 0).length;
    }"""
    return int(seen.page.evaluate(script))


def test_it_moves_by_itself_and_classifies_meanwhile(browser: Browser, page: Path) -> None:
    with browser.opened(page) as seen:
        ready(seen)
        seen.page.select_option("#clip", "3")
        appears(seen, "#count", r"^\d\d+ of 700")
        seen.quiet()
    with browser.opened(page, reduced_motion="reduce") as seen:  # whoever wants it still
        ready(seen)
        seen.page.select_option("#clip", "3")
        assert seen.texts("#play") == ["Play"]
        assert seen.texts("#count") == ["700 of 700"]
        seen.quiet()


def test_hostile_names_are_shown_and_never_run(browser: Browser, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<script") == 3 and text.count("</script") == 3
    with browser.opened(page) as seen:
        ready(seen)
        assert seen.texts("h1") == [HOSTILE[1]]
        assert HOSTILE[0] in seen.texts("#about")[0]
        assert seen.texts("#clip option") == [*HOSTILE, f"{HOSTILE[1]} 700"]
        assert sorted(seen.texts("#bars span")) == sorted(HOSTILE)
        assert seen.page.evaluate("window.pwned") is None
        assert seen.count("img, main script") == 0
        seen.quiet()


def test_a_policy_lets_nothing_run_but_the_page_itself(browser: Browser, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith(
        "default-src &#x27;none&#x27;; script-src &#x27;wasm-unsafe-eval&#x27;"
    )
    assert "unsafe-inline" not in policy and "http" not in policy
    with browser.opened(page) as seen:
        ready(seen)
        seen.page.evaluate("""() => {
          const script = document.createElement('script');
          script.textContent = 'window.pwned = 1'; document.body.append(script);
        }""")
        assert seen.page.evaluate("window.pwned") is None
        assert len(seen.complaints) == 1 and "Content Security Policy" in seen.complaints[0]


@pytest.mark.parametrize("width, scheme", [(390, "dark"), (1600, "light")])
def test_it_fits_every_screen(browser: Browser, page: Path, width: int, scheme: Any) -> None:
    with browser.opened(page, width=width, color_scheme=scheme) as seen:
        ready(seen)
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [
            seen.page.locator(part).bounding_box()
            for part in ("header", "#stage", "section", ".controls", "#hint")
        ]
        for i, one in enumerate(boxes):
            for other in boxes[i + 1 :]:
                apart_x = one["x"] + one["width"] <= other["x"] + 1
                apart_y = one["y"] + one["height"] <= other["y"] + 1
                assert apart_x or apart_y  # nothing lies on anything else
        seen.quiet()
