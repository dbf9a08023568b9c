"""A page opened in a real Chromium, with everything it asks for or complains of written down."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.tools import tool

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """Where it is; skips the test where it is not."""
    return tool(*NAMES)


@dataclass
class Seen:
    """A page, and what happened while it was open."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def choose(self, row: str) -> None:
        self.page.select_option("#network-picker", row)

    def count(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def texts(self, selector: str) -> list[str]:
        return list(self.page.locator(selector).all_text_contents())

    def quiet(self) -> None:
        """Nothing was fetched, nothing complained of, nothing run that should not be."""
        assert self.complaints == []
        assert self.requests == []
        assert self.dialogs == []


class Browser:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @contextmanager
    def opened(self, path: Path, width: int = 1280, **options: Any) -> Iterator[Seen]:
        """The page at this width; every request but that for the file itself is refused."""
        height = options.pop("height", 900)
        context = self.inner.new_context(viewport={"width": width, "height": height}, **options)
        try:
            page = context.new_page()
            seen = Seen(page)
            page.on("console", lambda m: seen.complaints.append(f"{m.type}: {m.text}"))
            page.on("pageerror", lambda error: seen.complaints.append(str(error)))
            page.on("dialog", lambda dialog: dismissed(seen, dialog))
            own = path.resolve().as_uri()

            def route(request: Any) -> None:
                if request.request.url == own:
                    request.continue_()
                else:
                    seen.requests.append(request.request.url)
                    request.abort()

            context.route("**/*", route)
            page.goto(own)
            yield seen
        finally:
            context.close()


def dismissed(seen: Seen, dialog: Any) -> None:
    seen.dialogs.append(dialog.message)
    dialog.dismiss()


@contextmanager
def launched() -> Iterator[Browser]:
    where = chromium()
    driver = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright to drive Chromium: pip install playwright"
    )
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with driver.sync_playwright() as playwright:
        inner = playwright.chromium.launch(
            executable_path=where, args=["--no-sandbox"] if root else []
        )
        try:
            yield Browser(inner)
        finally:
            inner.close()
