"""``trellis reproduce`` as a person meets it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.paper.waves import waves
from trellis.paper import Progress

WORDS = (
    "--data", "npz:waves.npz", "--seeds", "2", "--device", "cpu", "--epochs", "4",
    "--tune-epochs", "3", "--chunks", "4", "--heads", "2", "--filters", "4",
)  # fmt: skip


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    data = waves()
    np.savez(
        tmp_path / "waves.npz",
        frames=np.concatenate(data.sequences),
        lengths=np.array([len(sequence) for sequence in data.sequences]),
        labels=data.labels,
    )
    return tmp_path


@pytest.mark.parametrize("table", ["table1", "table2", "table3"])
def test_a_table_is_printed_and_written(run: Run, recordings: Path, table: str) -> None:
    rates = () if table == "table1" else ("--rates", "80")
    rows = ("--rows", "mp", "tc", "viterbi") if table == "table2" else ()
    ran = run("reproduce", table, *WORDS, *rates, *rows, "--out", "run")
    assert ran.status == 0, ran.err
    assert ran.out.startswith(f"Table {table[-1]}: ")
    assert "trellis reproduce" in ran.out
    text = (recordings / "run" / "table.txt").read_text()
    assert text.splitlines() == [line.rstrip() for line in ran.out.splitlines()[:-2]]
    again = run("reproduce", table, "--out", "run", "--table-only")
    assert again.out == ran.out
    assert {p.suffix for p in (recordings / "run").glob("table.*")} == {
        ".txt",
        ".md",
        ".csv",
        ".tex",
    }


def test_the_folder_is_named_after_the_settings(run: Run, recordings: Path) -> None:
    assert run("reproduce", "table1", *WORDS).status == 0
    [folder] = [p for p in recordings.iterdir() if p.is_dir()]
    assert folder.name.startswith("table1-npz-waves-npz-default-")
    assert run("reproduce", "table1", *WORDS, "--table-only").status == 0
    assert len([p for p in recordings.iterdir() if p.is_dir()]) == 1


def test_another_run_in_the_folder_is_refused(
    run: Run, fails: Callable[..., str], recordings: Path
) -> None:
    run("reproduce", "table1", *WORDS, "--out", "run")
    message = fails("reproduce", "table1", *WORDS, "--out", "run", "--heads", "3")
    assert "heads is 2 there and 3 now" in message


def test_another_table_is_not_shown_for_the_one_that_is_asked_for(
    run: Run, fails: Callable[..., str], recordings: Path
) -> None:
    assert run("reproduce", "table1", *WORDS, "--out", "run").status == 0
    before = (recordings / "run" / "table.txt").read_bytes()
    error = fails("reproduce", "table2", "--table-only", "--out", "run")
    assert "'run' holds table1, not table2: ask for `trellis reproduce table1 --table" in error
    assert (recordings / "run" / "table.txt").read_bytes() == before


def test_refusals_are_one_line(fails: Callable[..., str], recordings: Path) -> None:
    assert "'none' holds no run" in fails("reproduce", "table2", "--out", "none", "--table-only")
    assert "row 'best'" in fails("reproduce", "table2", *WORDS, "--rows", "best")
    assert "expected a rate in percent, above 0 and below 100, got 100.0" in fails(
        "reproduce", "table2", *WORDS, "--rates", "100"
    )
    assert "nowhere.npz" in fails("reproduce", "table1", "--data", "npz:nowhere.npz")
    assert not [p for p in recordings.iterdir() if p.is_dir()]


def test_a_terminal_has_a_bar_and_a_log_has_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trellis.cli.reproduce import live_bar

    with live_bar() as watch:
        watch(Progress("tuning 4 networks", 2, 9, 0.5, 0.75, 55, 10, 100))
    line = "stack 2 of 9, tuning 4 networks: 50.0 % of the run done  loss 0.500"
    assert capsys.readouterr().err.startswith(line)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with live_bar() as watch:
        assert watch is not None
        watch(Progress("tuning 4 networks", 2, 9, 0.5, 0.75, 30, 10, 100))
        watch(Progress("pruning 4 networks", 3, 9, None, None, 30, 10, 100))
    shown = capsys.readouterr().err
    assert "stack 3 of 9: pruning 4 networks" in shown


@pytest.mark.parametrize("name", ["seeds", "workers", "chunks", "heads", "epochs"])
def test_absurd_counts_are_refused_at_once(
    fails: Callable[..., str], recordings: Path, name: str
) -> None:
    told = fails("reproduce", "table2", *WORDS, f"--{name}", "1000000000", "--out", "run")
    assert f"{name}=1000000000: expected at most" in told
    assert not (recordings / "run").exists()
