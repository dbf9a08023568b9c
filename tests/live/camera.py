"""A camera that is a file: a photo of a hand, moved over a plain background, in three parts.

In the first part the hand moves from side to side, in the second up and down, in the third it
rests. The colour of a corner says which part it is.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.tools import tool
from tests.report.browser import chromium
from trellis.errors import TrellisError
from trellis.live import hands
from trellis.live.server import application, new_token, routes_of, serve
from trellis.live.session import Session

PHOTOS = Path(__file__).parents[2].parent / "shared" / "data" / "hand-photos"
PART = 9.8  # seconds; of a whole number of movements, so that the hand does not jump
COLOURS = ("red", "lime", "blue")


def photo(name: str) -> Path:
    """A photo beside the checkout; skips the test where it is not."""
    path = PHOTOS / name
    if not path.exists():
        pytest.skip(f"missing photo of a hand: {path}")
    return path


def detector() -> Path:
    """The hand detector; skips the test where npm cannot fetch it."""
    try:
        return hands.fetch()
    except TrellisError as error:
        pytest.skip(f"the hand detector is not here: {error}")


def film(
    target: Path, picture: Path, parts: int = 3, *, moves: bool = True, twice: bool = False
) -> Path:
    """Write the film, with one hand or with two."""
    wave = f"if(lt(t,{PART}),110*sin(2*PI*t/1.4),0)" if moves else "0"
    bounce = f"if(between(t,{PART},{2 * PART}),60*sin(2*PI*t/1.4),0)" if moves else "0"
    boxes = ",".join(
        f"drawbox=x=0:y=0:w=48:h=48:color={colour}:t=fill:enable='between(t,{i * PART},"
        f"{(i + 1) * PART})'"
        for i, colour in enumerate(COLOURS)
    )
    if twice:
        boxes = f"[a];[1]scale=290:-2,hflip[i];[a][i]overlay=x=330:y=100:shortest=1,{boxes}"
        wave = "-140"
    else:
        boxes = f",{boxes}"
    graph = (
        f"[1]scale=w='2*floor(145+7*sin(t))':h=-2:eval=frame,"
        f"rotate='0.1*sin(1.7*t)':c=0x9fb0bd:ow=iw*1.1:oh=ih*1.2[h];"
        f"[0][h]overlay=x='160+{wave}':y='100+{bounce}':shortest=1{boxes}"
    )
    back = f"color=c=0x9fb0bd:s=640x480:r=15:d={parts * PART}"
    subprocess.run(
        [
            tool("ffmpeg"), "-v", "error", "-y", "-f", "lavfi", "-i", back, "-loop", "1", "-i",
            str(picture), "-filter_complex", graph, "-q:v", "4", "-f", "mjpeg", str(target),
        ],
        check=True, timeout=120,
    )  # fmt: skip
    return target


@contextmanager
def served(folder: Path, detector: Path, length: float = 0.4) -> Iterator[tuple[str, Session]]:
    """A server of a folder: its address and its session."""
    from trellis.cli.live import bound

    session, token, sock = Session(folder, detector, length), new_token(), bound(0)
    port = sock.getsockname()[1]
    address = f"http://127.0.0.1:{port}/{token}/"
    app = application("page.html", routes_of(session), detector, token, port)
    up = threading.Event()
    ended = threading.Event()
    thread = threading.Thread(
        target=serve, args=(app, sock, up.set, ended), daemon=True
    )  # fmt: skip
    thread.start()
    assert up.wait(20)
    try:
        yield address, session
    finally:
        session.stop()
        ended.set()
        thread.join(20)


@contextmanager
def browsing(film: Path | None, *, allowed: bool = True, **options: Any) -> Iterator[Any]:
    """A page of a real Chromium whose camera is a film; without one there is no camera."""
    where = chromium()
    driver = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright to drive Chromium: pip install playwright"
    )
    words = [
        "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync",
    ]  # fmt: skip
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        words.append("--no-sandbox")
    if film is not None:
        words += ["--use-fake-device-for-media-stream", f"--use-file-for-fake-video-capture={film}"]
        words.append("--use-fake-ui-for-media-stream" + ("" if allowed else "=deny"))
    with driver.sync_playwright() as playwright:
        inner = playwright.chromium.launch(executable_path=where, args=words)
        try:
            context = inner.new_context(viewport={"width": 1280, "height": 860}, **options)
            context.set_default_timeout(120_000)
            yield context
        finally:
            inner.close()


# The part that the film is in, by its corner.
PART_NOW = """() => {
  const video = document.getElementById('video'), canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext('2d');
  pen.drawImage(video, 10, 10, 20, 20, 0, 0, 1, 1);
  const [r, g, b] = pen.getImageData(0, 0, 1, 1).data;
  return r > 150 && g < 110 ? 0 : g > 150 && b < 110 && r < 110 ? 1 : b > 150 && r < 110 ? 2 : -1;
}"""


def next_part(page: Any) -> int:
    """Wait for the beginning of a part, and return which it is."""
    before = page.evaluate(PART_NOW)
    while (now := page.evaluate(PART_NOW)) in (-1, before):
        page.wait_for_timeout(50)
    return int(now)


def until(page: Any, script: str, given: Any = None, seconds: float = 120) -> None:
    """Wait until a script is true. (The page's policy forbids Playwright's own way of waiting.)"""
    end = time.monotonic() + seconds
    while not page.evaluate(script, given):
        assert time.monotonic() < end, script
        page.wait_for_timeout(50)


def waited(check: Any, seconds: float = 120) -> None:
    """Wait until a check is true."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.1)
