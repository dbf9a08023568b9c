"""One small run for all tests that need it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.report.runs import hands, made_run
from trellis.paper import Folder, Settings
from trellis.paper.settings import METHODS
from trellis.report import write_page
from trellis.report.run import run_report
from trellis.skeleton import Skeletons
from trellis.skeleton.data.hands import hands45

HOSTILE = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=alert(1)>",
    "quote\" and ' and `tick`",
    "👋🏽 wave — ünïcode \u2028 line",
    "x" * 200,
    "&amp; <b>bold</b> {{data}} ${1}",
    "=HYPERLINK(0)",
    "plain",
)


@dataclass(frozen=True, eq=False)
class Made:
    """A run on disk, its page, and what is in it."""

    folder: Folder
    data: Skeletons
    content: dict[str, Any]
    page: Path


def made(path: Path, data: Skeletons, **changes: Any) -> Made:
    options: dict[str, Any] = {
        "data": data.source, "seeds": 2, "heads": 3, "filters": 12, "chunks": 8,
        "rates": (50.0, 90.0, 99.0), "rows": ("mp", "tc", "lamp", "viterbi"),
    }  # fmt: skip
    folder = made_run(path / "run", Settings("table2", **options | changes), data)
    content = run_report(folder, lambda: data)
    write_page(path / "report.html", content)
    return Made(folder, data, content, path / "report.html")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A table of four methods, whose classes have names that would like to be run."""
    return made(tmp_path_factory.mktemp("small"), hands(HOSTILE, each=12))


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return full_table(tmp_path_factory.mktemp("full"))


def full_table(path: Path) -> Made:
    """Table 2 whole: fourteen methods, six rates, five seeds, the paper's network, hands45."""
    return made(
        path, hands45(), seeds=5, heads=16, filters=128, chunks=32,
        rates=(50.0, 75.0, 90.0, 95.0, 99.0, 99.9), rows=tuple(METHODS),
    )  # fmt: skip
