"""The Python in the README and in docs/ runs and prints what it says; names and links exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import trellis
from trellis.methods.method import METHODS

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))
}
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")
SNIPPETS = {name: BLOCK.findall(page) for name, page in PAGES.items()}
BESIDE_COMMANDS = "docs/tutorials/gestures.md"  # runs in test_commands.py: it needs what they write


@pytest.mark.parametrize(
    "page", [name for name, blocks in SNIPPETS.items() if blocks and name != BESIDE_COMMANDS]
)
def test_snippets_run_in_order(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # What a page registers is gone afterwards.
    monkeypatch.setattr(METHODS, "entries", trellis.methods.available())
    names: dict[str, Any] = {"__name__": "snippets"}
    for code, printed in SNIPPETS[page]:
        exec(compile(code, page, "exec", dont_inherit=True), names)
        out = capsys.readouterr().out
        assert not printed or out == printed


def test_every_tutorial_has_snippets() -> None:
    tutorials = [name for name in PAGES if name.startswith("docs/tutorials/")]
    assert tutorials and all(SNIPPETS[name] for name in (*tutorials, "README.md"))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_files_lead_somewhere(page: str) -> None:
    for target in LINK.findall(PAGES[page]):
        assert (ROOT / page).parent.joinpath(target).exists(), target
