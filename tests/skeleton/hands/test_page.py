"""docs/hands45.md tells what the code does."""

import doctest
from pathlib import Path

from trellis.skeleton import Skeletons
from trellis.skeleton.data.hands import ACTIONS

PAGE = Path(__file__).parents[3] / "docs" / "hands45.md"


def test_its_example_runs() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 0 and failed == 0


def test_its_table_lists_every_action() -> None:
    rows = [f"| {i} | `{action.name}` | {action.does} |" for i, action in enumerate(ACTIONS)]
    assert "\n".join(rows) in PAGE.read_text()


def test_its_counts_are_the_sets(hands: Skeletons) -> None:
    page = PAGE.read_text()
    short = sum(len(frames) < 32 for frames in hands.sequences)
    assert f"| frames | {hands.frames:,};" in page
    assert f"{short} have fewer than 32" in page
    parts = [sorted(map(list(hands.labels[part]).count, range(45))) for part in
             (hands.folds[0].train, hands.folds[0].test)]  # fmt: skip
    (few, *_, many), (fewest, *_, most) = parts
    assert f"with {few} to {many} training and {fewest} to {most} test recordings" in page
