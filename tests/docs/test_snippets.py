"""The Python in the README and in docs/ runs as written, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)\)")
SNIPPETS = {page.name: BLOCK.findall(page.read_text()) for page in PAGES}


@pytest.mark.parametrize("page", [name for name, blocks in SNIPPETS.items() if blocks])
def test_snippets_run_in_order(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippets"}
    for code, printed in SNIPPETS[page]:
        exec(compile(code, page, "exec"), names)
        out = capsys.readouterr().out
        assert not printed or out == printed


def test_there_are_snippets() -> None:
    assert [name for name, blocks in SNIPPETS.items() if blocks] == [
        "README.md", "compact.md", "gradual.md", "options.md", "rules.md", "ship.md",
        "skeletons.md", "train.md",
    ]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target
