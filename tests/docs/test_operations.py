"""The lists of operations in docs/extending/rules.md are those of the registries."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import trellis.deploy.compact.relations
import trellis.graph.rules  # noqa: F401  (registers the rules)
from trellis.deploy.compact.relations.relation import RELATIONS
from trellis.deploy.tables.lower import lowered_operations
from trellis.graph.export import RULES

PAGE = Path(__file__).parents[2] / "docs" / "extending" / "rules.md"
ATEN = "aten::"
RULED = {name for name in RULES if name.startswith(ATEN)}  # before tests add theirs


def listed(title: str, missing: set[str]) -> str:
    """The paragraph of the page for these operations."""
    names = " ".join(sorted(name.removeprefix(ATEN) for name in missing))
    lines = textwrap.wrap(names, 105, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"{title}:", "", "```text", *lines, "```"])


@pytest.mark.parametrize(
    ("title", "known"),
    [("Without a relation", set(RELATIONS)), ("Without a lowering", lowered_operations())],
)
def test_the_page_lists_what_is_missing(title: str, known: set[str]) -> None:
    assert listed(title, RULED - known) in PAGE.read_text()
