"""From package.module:factory to a model, and every way in which that fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from tests.cli.conftest import Run
from trellis.cli.model_arguments import load_model
from trellis.errors import TrellisError


@pytest.mark.parametrize("path", ["mlp", "Tied", "ready"])
def test_a_function_a_class_and_a_module_are_models(path: str) -> None:
    assert isinstance(load_model(f"tests.cli.models:{path}"), nn.Module)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("models", "names no model: write package.module:factory"),
        ("models:", "names no model"),
        (":mlp", "names no model"),
        ("../models.py:mlp", "names no model"),
        ("trained.pt", "give the file as --weights"),
        ("nowhere.models:mlp", "module 'nowhere' not found"),
        ("tests.cli.nothing:mlp", "module 'tests.cli.nothing' not found"),
        ("tests.cli.models:mpl", "module 'tests.cli.models' has no attribute 'mpl'; it has"),
        ("tests.cli.models:Tied.make", "has no attribute 'make'"),
        ("tests.cli.models:NOT_A_MODEL", "is of type int; it must be a torch.nn.Module, or"),
        ("tests.cli.models:number", "returned 3; it must return a torch.nn.Module"),
        ("tests.cli.models:raising", "raised RuntimeError: the disk is on fire"),
        ("tests.cli.models:leaving", "raised SystemExit: 0"),
        ("tests.cli.models:needs_an_argument", "cannot be called with no arguments"),
    ],
)
def test_what_is_no_model(fails: Callable[..., str], target: str, message: str) -> None:
    assert message in fails("audit", target, "--input", "1x16")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (", "SyntaxError"),
        ("raise SystemExit", "SystemExit"),
    ],
)
def test_a_module_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_shop.py").write_text(text)
    with pytest.raises(TrellisError, match=r"importing 'broken_shop' failed: ") as error:
        load_model("broken_shop:model")
    assert message in str(error.value)


def test_the_search_path_is_left_as_it_was(run: Run) -> None:
    before = list(sys.path)
    run("audit", "tests.cli.models:raising", "--input", "1x16")
    assert sys.path == before
