"""What a page's buttons save."""

from __future__ import annotations

from pathlib import Path

from tests.report.browser import Seen


def saved(seen: Seen, button: str) -> str:
    with seen.page.expect_download() as download:
        seen.page.click(button)
    return Path(download.value.path()).read_text(encoding="utf-8")
