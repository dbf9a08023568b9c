"""The commands in docs/skeletons.md and docs/train.md run as written, and print what they say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from trellis import skeleton
from trellis.cli import main, reproduce, train, tune
from trellis.errors import TrellisError
from trellis.paper.methods import METHODS
from trellis.skeleton import GCN
from trellis.skeleton.source import BUILT_IN, FORMATS
from trellis.train import RECIPES

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(
    r"^```(python|sh)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
SKELETONS, TRAINING = ((DOCS / name).read_text() for name in ("skeletons.md", "train.md"))


def commands(page: str) -> list[list[str]]:
    return [words for kind, text, _ in BLOCK.findall(page) if kind == "sh" for words in lines(text)]


def lines(text: str) -> list[list[str]]:
    found = [shlex.split(line, comments=True) for line in text.splitlines()]
    assert all(words[0] == "trellis" for words in found)
    return found


def is_small(words: list[str]) -> bool:
    """Whether a command is on data that is here, and trains a small network."""
    line = " ".join(words)
    return "recordings" in line or "-arm" in line or "trial" in line


@pytest.mark.parametrize("page", [SKELETONS, TRAINING], ids=["skeletons.md", "train.md"])
def test_commands_on_small_data_run_in_order(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "snippets"}
    ran = 0
    for kind, text, printed in BLOCK.findall(page):
        if kind == "python" and page is SKELETONS:
            exec(compile(text, "page", "exec"), names)  # what commands read is made by these
        for words in filter(is_small, lines(text) if kind == "sh" else []):
            assert main(words[1:]) == 0, capsys.readouterr().err
            ran += 1
        out = capsys.readouterr().out
        assert not printed or out == printed
    assert ran == sum(map(is_small, commands(page))) > 1


@pytest.mark.parametrize(
    "words",
    [words for page in (SKELETONS, TRAINING) for words in commands(page) if not is_small(words)],
    ids=" ".join,
)
def test_other_commands_are_spelt_right(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They get as far as reading their data, or need a model that nobody has trained here."""

    def reads(*_: object, **__: object) -> NoReturn:
        raise TrellisError("it reads its data")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(skeleton, "load", reads)
    for module in (train, tune, reproduce):
        monkeypatch.setattr(module, "chosen_device", lambda *_: torch.device("cpu"))
    if words[1] in ("prune", "tune", "evaluate"):
        layout = skeleton.Layout("arm", ("shoulder", "hand"), (-1, 0))
        normalisation = skeleton.Normalisation((0,), 1.0)
        model = GCN(nodes=2, channels=96, classes=2, heads=2, filters=16)
        named = [words[2], *(word for at, word in enumerate(words) if words[at - 1] == "--teacher")]
        for folder in named:
            skeleton.Recogniser(model, 32, normalisation, ("a", "b"), layout).save(folder)
    status = main(words[1:])
    err = capsys.readouterr().err
    assert (status == 0 and words[1] == "prune") or err == "trellis: error: it reads its data\n"


def test_the_table_of_sources_names_every_source_and_protocol() -> None:
    rows = re.findall(r"^\| `([\w-]+)(?::PATH)?` \|(.*)\|$", SKELETONS, re.MULTILINE)
    assert {name for name, _ in rows} >= {*FORMATS, BUILT_IN}
    for name, about in FORMATS.items():
        told = next(text for row, text in rows if row == name)
        assert all(f"`{protocol}`" in told for protocol in about.protocols), name


def test_the_table_of_recipes_is_what_the_recipes_are() -> None:
    head, *rows = re.findall(r"^\| (?:`(\w+)`|setting) \|(.*)\|$", _recipes(), re.MULTILINE)
    order = re.findall(r"`(\w+)`", head[1])
    assert sorted(order) == sorted(RECIPES)
    told: dict[str, dict[str, Any]] = {name: {"name": name} for name in order}
    for setting, cells in rows:
        for name, cell in zip(order, cells.split("|"), strict=False):
            told[name][setting] = _value(cell.strip())
    assert told == {name: RECIPES[name].to_dict() for name in order}


def test_every_method_is_counted() -> None:
    assert len(METHODS) == 14 and "fourteen methods" in TRAINING


def _recipes() -> str:
    return TRAINING.partition("## Recipes")[2].partition("**`paper`**")[0]


def _value(cell: str) -> object:
    if cell in ("all", "as above"):
        return None
    return cell.strip("`") if cell.startswith("`") else float(cell.replace(",", ""))
