"""The commands in the README and in docs/ are spelt right; those on small data run as written."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from trellis.cli import main
from trellis.paper.settings import METHODS
from trellis.skeleton.data.readers.reader import READERS
from trellis.training import RECIPES

# As it is before tests and examples add theirs.
SOURCES = {name: found for name in READERS.names() if (found := READERS.get(name))}
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"^```(python|sh)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
RUN = {  # page: the commands that run, by what is in them
    "tutorials/gestures.md": "trellis",
    "guides/paper-tables.md": "trial",
    "guides/recordings.md": "npz:recordings.npz",
}
# Data that is not there, so that a command which is spelt right ends in an error about that.
ABSENT = {
    "my-gestures": "/dev/null",
    "hands45": "csv:absent",
    "cuda": "cpu",
    "bf16": "fp32",
    "$ROWS": "mp",
}


def commands(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("trellis ")]


def every_command() -> list[list[str]]:
    pages = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    found = {
        tuple(words)
        for page in pages
        for kind, text, _ in BLOCK.findall(page.read_text())
        for words in (commands(text) if kind == "sh" else [])
    }
    return sorted(map(list, found))


@pytest.mark.parametrize("page", RUN)
def test_commands_on_small_data_run_in_order(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippets"}
    ran = 0
    for kind, text, printed in BLOCK.findall((DOCS / page).read_text()):
        if kind == "python":
            exec(compile(text, page, "exec"), names)
        for words in commands(text) if kind == "sh" else []:
            if RUN[page] in " ".join(words):
                assert main(words[1:]) == 0, capsys.readouterr().err
                ran += 1
        out = capsys.readouterr().out
        assert not printed or out == printed
    assert ran > 0


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_commands_are_spelt_right(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    status = main([ABSENT.get(word, word) for word in words[1:]])
    err = capsys.readouterr().err
    assert status == 2 and err.startswith("trellis: error: "), err  # a misspelt option is in a box


def test_the_table_of_sources_names_every_source_and_protocol() -> None:
    page = (DOCS / "guides" / "recordings.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)(?::PATH)?` \|(.*)\|$", page, re.MULTILINE)
    assert {name for name, _ in rows} >= set(SOURCES)
    for name, about in SOURCES.items():
        told = next(text for row, text in rows if row == name)
        assert all(f"`{protocol}`" in told for protocol in about.protocols), name


def test_the_table_of_recipes_is_what_the_recipes_are() -> None:
    page = (DOCS / "guides" / "train.md").read_text()
    table = page.partition("## Recipes")[2].partition("**`paper`**")[0]
    head, *rows = re.findall(r"^\| (?:`(\w+)`|setting) \|(.*)\|$", table, re.MULTILINE)
    order = re.findall(r"`(\w+)`", head[1])
    assert sorted(order) == sorted(RECIPES)
    told: dict[str, dict[str, Any]] = {name: {"name": name} for name in order}
    for setting, cells in rows:
        for name, cell in zip(order, cells.split("|"), strict=False):
            told[name][setting] = _value(cell.strip())
    assert told == {name: dataclasses.asdict(RECIPES[name]) for name in order}


def test_every_method_is_counted() -> None:
    page = (DOCS / "guides" / "paper-tables.md").read_text()
    assert len(METHODS) == 14 and "fourteen methods" in page


def _value(cell: str) -> object:
    if cell in ("all", "as above"):
        return None
    return cell.strip("`") if cell.startswith("`") else float(cell.replace(",", ""))
