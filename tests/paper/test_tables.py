"""The tables: ours and the paper's, and no way to mistake one for the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.paper.waves import small, waves
from trellis.paper import Data, Folder, Report, Settings, plan_of, report_of
from trellis.paper.settings import describe
from trellis.paper.tables import shown

BENCHMARK = replace(
    describe(waves()), train=(600,), test=(575,), joints=21, classes=45, source="fpha:x"
)


def filled(settings: Settings, data: Data, live: dict[str, int] | None = None) -> Folder:
    """A run in which every network got the same figures, without training any."""
    folder = Folder(Path("nowhere"), settings, data, {"torch": "2"})
    for cell in plan_of(settings, data).cells:
        folder.records[cell.key] = {
            "cell": cell.key, "row": cell.row.key, "seed": cell.seed, "fold": cell.fold,
            "device": "CPU", "kept": 100, "live": (live or {}).get(cell.row.key, 100),
            "correct": 495, "test": 575, "mean_class": 0.85, "train_correct": 600, "train": 600,
        }  # fmt: skip
    return folder


def columns(report: Report) -> dict[str, list[str]]:
    cells = zip(*(line.values for line in report.lines), strict=True)
    return {c.name: [shown(v) for v in values]
            for c, values in zip(report.columns, cells, strict=True)}  # fmt: skip


def full(table: str, **changes: Any) -> Settings:
    return Settings(table, "fpha:x", seeds=2, **changes)


def test_table_2_on_the_benchmark_has_the_papers_figures_beside_ours() -> None:
    found = columns(report_of(filled(full("table2"), BENCHMARK)))
    assert found["paper: accuracy (%)"][:5] == ["86.08"] * 5
    assert found["paper: kept"][0] == "1,967,616"
    assert found["top-1 (%)"][0] == "86.09 ± 0.00"
    mp = found["observation"].index("Standard MP")
    rows = list(zip(found["rate (%)"], found["observation"], found["paper: accuracy (%)"],
                    found["paper: live (%)"], strict=True))  # fmt: skip
    assert mp == 1
    assert ("99.9", "Stochastic MP", "NA", "0.0") in rows
    assert ("99", "TC MP", "83.47", "100.0") in rows
    assert ("99.9", "viterbi", "–", "–") in rows


def test_other_data_never_has_a_column_of_the_papers_that_could_be_its_own() -> None:
    for table in ("table1", "table2", "table3"):
        report = report_of(filled(small(table), describe(waves())))
        paper = [c.name for c in report.columns if "paper" in c.name]
        assert paper and all(name.startswith("FPHA, paper:") for name in paper)
        assert any("FPHA" in text for text in report.warnings)
        benchmark = report_of(filled(full(table), BENCHMARK))
        assert not benchmark.warnings


def test_table_3_on_the_benchmark() -> None:
    found = columns(report_of(filled(full("table3"), BENCHMARK)))
    assert found["1/α"] == ["local", "1", "1.5", "2.5", "7", "10", "20", "50"]
    assert found["paper: accuracy (%)"] == [
        "73.39", "69.56", "71.82", "72.34", "73.21", "76.17", "72.86", "66.60"
    ]  # fmt: skip


def test_table_1_ends_with_ours() -> None:
    found = columns(report_of(filled(full("table1"), BENCHMARK)))
    assert found["paper: accuracy (%)"][-2:] == ["86.08", "–"]
    assert found["top-1 (%)"][:-1] == ["–"] * 21
    assert found["top-1 (%)"][-1] == "86.09 ± 0.00"


def test_disconnected_where_no_path_is_left() -> None:
    folder = filled(small(), describe(waves()), {"mp@90": 0})
    found = columns(report_of(folder))
    row = found["observation"].index("Standard MP: disconnected")
    assert found["rate (%)"][row] == "90"
    assert found["top-1 (%)"][row] == found["training (%)"][row] == "NA"
    assert found["live (%)"][row] == "0.0 ± 0.0"
    folder.records["mp@90/seed-1/fold-0"]["live"] = 7
    some = columns(report_of(folder))
    assert "Standard MP: disconnected in 1 of 2 networks" in some["observation"]
    assert some["top-1 (%)"][row] != "NA"


@pytest.mark.parametrize("recipe", ["paper", "default"])
def test_what_was_done_is_said(recipe: str) -> None:
    from trellis.training import recipe_named

    settings = full("table2", recipe=recipe_named(recipe), precision="bf16")
    report = report_of(filled(settings, replace(BENCHMARK, left_out=3)))
    facts = dict(report.facts)
    assert facts["Recipe"].startswith(f"{recipe}: Adam")
    assert facts["Precision"] == "bf16" and facts["Hardware"] == "CPU"
    assert facts["Command"] == settings.command()
    assert "2,139,024 weights" not in facts["Network"] or settings.chunks == 32
    assert "600 to train on, 575 to test on" in facts["Data"] and "3 left out," in facts["Data"]
    notes = " ".join(report.notes)
    for words in ("confound", "k/575", "under-fits", "tuned", "sample standard deviation"):
        assert words in notes


@pytest.mark.parametrize("origin", ["frame", "recording"])
@pytest.mark.parametrize("recipe", ["paper", "default"])
def test_open_choices_are_stated(recipe: str, origin: str) -> None:
    from trellis.training import recipe_named

    settings = full("table1", recipe=recipe_named(recipe, origin=origin))
    notes = " ".join(report_of(filled(settings, BENCHMARK)).notes)
    assert ("relative to its own root" in notes) == (origin == "frame")
    assert ("mean position of the root joints over" in notes) == (origin == "recording")
    assert ("every tensor normal / sqrt(fan-in)" in notes) == (recipe == "paper")
    assert ("first rate (0.01 here)" in notes) == (recipe == "paper")


@pytest.mark.parametrize("table", ["table1", "table2", "table3"])
def test_the_fifth_fold_of_sbu_stands_beside_the_mean(table: str) -> None:
    names = tuple(f"fold {i}" for i in range(1, 6))
    data = replace(describe(waves()), folds=names, train=(600,) * 5, test=(575,) * 5)
    settings = replace(full(table), data="sbu:x")
    folder = filled(settings, data)
    for record in folder.records.values():
        record["correct"] = 230 if record["fold"] == 4 else 460
    report = report_of(folder)
    found = columns(report)
    row = -1 if table == "table1" else 0
    assert found["fold 5: top-1 (%)"][row] == "40.00 ± 0.00"
    assert found["top-1 (%)"][row] == "72.00 ± 0.00"
    assert any(note.startswith("fold 5 alone") for note in report.notes)
    other = report_of(filled(replace(settings, data="mine:x"), data))
    assert "fold 5: top-1 (%)" not in columns(other)


def test_one_epoch_is_not_several() -> None:
    from trellis.training import recipe_named

    for epochs, words in ((1, "1 epoch from"), (2000, "2,000 epochs from")):
        settings = full("table1", recipe=recipe_named("quick", epochs=epochs))
        assert words in dict(report_of(filled(settings, BENCHMARK)).facts)["Recipe"]


def test_synthetic_data_is_called_so_everywhere() -> None:
    report = report_of(filled(small(), describe(waves(synthetic=True))))
    assert report.synthetic
    assert report.warnings[0].startswith("SYNTHETIC DATA")
    assert "SYNTHETIC" in dict(report.facts)["Data"]
