"""The page of ``trellis live`` in a real Chromium whose camera is a film of a moving hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="needs the extra: pip install 'trellis-prune[live]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'trellis-prune[live]'")

from tests.live.camera import browsing, detector, film, next_part, photo, served, until
from trellis.skeleton import load_dataset

NAMES = ("sideways", "up and down", "nothing")  # of the parts of the film


def ready(page: Any, address: str) -> None:
    page.goto(address)
    until(page, "!document.getElementById('go').disabled")


SLOWEST = 6  # hands a second; the hand moves from side to side in 0.7 seconds


def paced(page: Any) -> None:
    """Skip the test where the machine finds too few hands a second to see how one moves."""
    until(page, "trellisLive.rates.length >= 20")
    found = page.evaluate("19 / (trellisLive.rates[19] - trellisLive.rates[0])")
    if found < SLOWEST:
        pytest.skip(f"this machine is too busy for a camera: {found:.1f} hands a second")


def count(name: str) -> str:
    return f"(trellisLive.server.gestures.find(g => g.name === '{name}')?.clips.length ?? 0)"


def test_two_gestures_are_recorded_trained_and_named_live(tmp_path: Path) -> None:
    hands, clip = detector(), film(tmp_path / "clip.mjpeg", photo("thumb_up.jpg"))
    requests: list[str] = []
    complaints: list[str] = []
    with served(tmp_path / "own", hands, 0.6) as (address, session), browsing(clip) as context:
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        ready(page, address)
        paced(page)
        for name in NAMES[:2]:
            page.fill("#name", name)
            page.press("#name", "Enter")
        for setting, value in (("#wait", "0"), ("#seconds", "1.5"), ("#row", "3")):
            page.select_option(setting, value)
        while any(page.evaluate(f"{count(name)} < 3") for name in NAMES):
            name = NAMES[next_part(page)]
            page.click(f'[data-gesture="{name}"]')
            before = page.evaluate(count(name))
            page.click("#go")
            done = f"{count(name)} >= {before + 3} || !!document.querySelector('#told.bad')"
            until(page, done, seconds=60)
            paced(page)
        page.click("#step-train")
        page.click("#start")
        until(
            page, "trellisLive.server.training.state === 'done' && !!trellisLive.stream", None, 240
        )
        assert page.text_content("#judged").startswith("of ")
        page.click("#step-try")
        named = "['sideways', 'up and down'].every(n => trellisLive.events.some(e => e.name === n))"
        try:
            until(page, named, None, 120)
        except AssertionError:
            paced(page)  # whether it is a fault of the page
            raise
        assert "µs" in page.text_content("#cost")
        assert page.evaluate("document.querySelector('#bars u').style.left").endswith("%")
        data = load_dataset(f"csv:{session.clips.folder}")  # which every other command reads
        assert set(data.classes) == set(NAMES)
    with served(tmp_path / "own", hands) as (later, _), browsing(clip) as context:
        page = context.new_page()
        page.goto(later)
        until(page, "!!trellisLive.stream")  # the network of the last training
    assert complaints == []
    assert all(url.startswith((address, "blob:", "data:")) for url in requests)


def test_messages_about_the_camera(tmp_path: Path) -> None:
    hands = detector()
    blank = film(tmp_path / "two.mjpeg", photo("thumb_up.jpg"), parts=1, moves=False)
    title = "document.getElementById('notice-title').textContent"
    with served(tmp_path / "own", hands) as (address, _):
        with browsing(None) as context:
            page = context.new_page()
            page.goto(address)
            until(page, f"{title} === 'No camera was found'")
            assert page.is_visible("#notice-button")
        with browsing(blank, allowed=False) as context:
            page = context.new_page()
            page.goto(address)
            until(page, f"{title} === 'The camera is blocked'")
            old = context.new_page()
            old.add_init_script("WebAssembly.validate = () => false")
            old.goto(address)
            until(old, f"{title} === 'This browser is too old'")


def test_two_hands_and_a_page_opened_twice(tmp_path: Path) -> None:
    hands = detector()
    clip = film(tmp_path / "two.mjpeg", photo("thumb_up.jpg"), parts=1, twice=True)
    title = "document.getElementById('notice-title').textContent"
    with served(tmp_path / "own", hands) as (address, _), browsing(clip) as context:
        first = context.new_page()
        ready(first, address)
        until(first, "document.getElementById('pill').textContent.startsWith('Two hands')")
        second = context.new_page()
        ready(second, address)
        first.bring_to_front()
        until(first, f"{title} === 'This page is open elsewhere'")
        first.click("#notice-button")
        until(first, "document.body.dataset.notice === '' && trellisLive.mine")
