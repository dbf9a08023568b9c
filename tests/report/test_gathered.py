"""What a page is given, of runs whole, unfinished, old, and on the paper's own benchmark."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.paper.waves import small as small_settings
from tests.paper.waves import waves
from tests.report.browser import Browser
from tests.report.conftest import Made, made
from tests.report.runs import hands, made_run
from tests.report.saving import saved
from trellis.errors import TrellisError
from trellis.paper import reproduce, stored
from trellis.paper.published import TABLE2, TABLE3
from trellis.paper.settings import Settings
from trellis.report import write_page
from trellis.report.run import run_report


def test_a_real_run_is_told_as_its_table_tells_it(tmp_path: Path, browser: Browser) -> None:
    data = waves(synthetic=True)
    folder = reproduce(small_settings(), data, tmp_path / "run")
    found = run_report(stored(tmp_path / "run"), lambda: data, "tc@90")
    for row in found["rows"]:
        cells = [r for r in folder.records.values() if r["row"] == row["key"]]
        mean = sum(100 * r["correct"] / r["test"] for r in cells) / len(cells)
        if row["top1"] is not None:
            assert row["top1"][0] == pytest.approx(mean, abs=1e-3)
        for name, (kept, live) in row["layers"].items():
            assert kept == pytest.approx(sum(r["layers"][name] for r in cells) / 2)
            assert live == pytest.approx(sum(r["live_layers"][name] for r in cells) / 2)
        counts = found["confusions"][row["key"]]
        assert sum(counts[2::3]) == sum(r["test"] for r in cells)
        right = sum(n for t, s, n in zip(*[iter(counts)] * 3, strict=True) if t == s)
        assert right == sum(r["correct"] for r in cells)
    assert set(found["networks"]) == {"mp@90", "tc@90", "lamp@90"} and found["missing"] == []
    write_page(tmp_path / "report.html", found)
    with browser.opened(tmp_path / "report.html") as seen:
        assert seen.count("#network .network") == 1
        seen.quiet()


def test_without_recordings_the_page_says_so_and_shows_the_rest(
    small: Made, tmp_path: Path, browser: Browser
) -> None:
    found = run_report(small.folder)
    assert found["examples"] is None
    assert [m["how"] for m in found["missing"]] == [
        f"trellis report … --data SOURCE, where {small.data.source} is"
    ]
    assert found["networks"] == small.content["networks"]
    assert found["confusions"] == small.content["confusions"]
    write_page(tmp_path / "report.html", found)
    with browser.opened(tmp_path / "report.html") as seen:
        assert seen.count("#moving") == 0 and seen.count("#network") == 1
        assert "moving skeletons" in seen.page.locator(".missing").inner_text()
        seen.quiet()


def test_other_recordings_are_refused(small: Made) -> None:
    with pytest.raises(TrellisError, match="not the recordings of this run"):
        run_report(small.folder, lambda: hands(each=2))


def test_a_run_of_old_is_shown_as_far_as_it_goes(tmp_path: Path, browser: Browser) -> None:
    run = made(tmp_path, hands(("a", "b", "c")))
    folder = run.folder.path
    (folder / "recordings.json").unlink()
    for path in (folder / "networks").iterdir():
        path.unlink()
    lines = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    for line in lines:
        del line["said"], line["live_layers"]
    (folder / "cells.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = run_report(stored(folder))
    assert found["classes"] is None and found["networks"] == {} and found["confusions"] == {}
    told = " ".join(m["what"] for m in found["missing"])
    for word in ("names", "draw", "taken for which", "moving", "dead"):
        assert word in told
    # Where all is live, it is live in every layer.
    by_key = {row["key"]: row for row in found["rows"]}
    assert all(kept == live for kept, live in by_key["tc@99"]["layers"].values())
    assert all(live is None for _, live in by_key["mp@99"]["layers"].values())
    named = run_report(stored(folder), lambda: run.data)
    assert named["classes"] == ["a", "b", "c"]
    write_page(tmp_path / "old.html", found)
    with browser.opened(tmp_path / "old.html") as seen:
        assert seen.count("#accuracy .series-mark") == 12
        assert seen.count("#layers .bar-unknown") > 0
        seen.quiet()


@pytest.mark.parametrize("lines", [0, 1, 5])
def test_an_unfinished_run_can_be_looked_at(tmp_path: Path, browser: Browser, lines: int) -> None:
    run = made(tmp_path, hands(("a", "b", "c")))
    path = run.folder.path / "cells.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    found = run_report(stored(run.folder.path), lambda: run.data)
    assert "UNFINISHED" in " ".join(found["warnings"])
    write_page(tmp_path / "part.html", found)
    with browser.opened(tmp_path / "part.html") as seen:
        assert "UNFINISHED" in seen.page.locator(".warnings").inner_text()
        seen.quiet()


def test_the_papers_points_stand_only_beside_its_benchmark(
    tmp_path: Path, browser: Browser
) -> None:
    options: dict[str, Any] = {"seeds": 1, "heads": 2, "filters": 4, "chunks": 4,
                               "rows": ("mp", "tc", "viterbi"), "rates": (90.0, 99.9)}  # fmt: skip
    other = made(tmp_path / "other", hands(size=(600, 575), each=1), **options)
    assert other.content["published"] == []
    fpha = hands(size=(600, 575), source="fpha:/somewhere", synthetic=False)
    own = made(tmp_path / "fpha", fpha, **options)
    points = {(p["method"], p["rate"]): p for p in own.content["published"]}
    assert points["mp", 99.9]["top1"] == TABLE2["mp"][99.9].accuracy
    assert len(points) == 5  # two methods at two rates, and the dense network
    with browser.opened(own.page) as seen:
        assert seen.count("#accuracy .published") == len(points) == seen.count("#live .published")
        assert seen.count("#live .published[data-method=dense]") == 1
        assert seen.count(".synthetic-label") == 0
        seen.page.click(".legend >> text=none")
        assert seen.count("#accuracy .published") == 1  # the dense network is always there
        rows = list(csv.DictReader(io.StringIO(saved(seen, "#accuracy .to-csv"))))
        for row, ours in zip(rows, own.content["rows"], strict=True):
            point = points.get((ours["method"], ours["rate"]))
            told = [row[f"paper: {name}"] for name in ("kept (%)", "live (%)", "top-1 (%)")]
            if point is None:
                assert ours["method"] == "viterbi" and told == ["", "", ""]
            else:
                assert [float(text) for text in told] == pytest.approx(
                    [100 * point["kept"], point["live"], point["top1"]], rel=1e-3
                )
        seen.page.click("#live .to-table")
        assert "paper: top-1 (%)" in seen.texts("#live thead th")
        seen.quiet()
    with browser.opened(other.page) as seen:
        assert seen.count("#accuracy .published") == seen.count("#live .published") == 0
        assert "paper" not in saved(seen, "#accuracy .to-csv")
        seen.quiet()


@pytest.mark.parametrize("table", ["table1", "table3"])
def test_the_other_tables_have_a_page_too(tmp_path: Path, browser: Browser, table: str) -> None:
    data = hands(size=(600, 575), source="fpha:/somewhere", synthetic=False)
    settings = Settings(table, data=data.source, seeds=2, heads=2, filters=4, chunks=4)
    folder = made_run(tmp_path / "run", settings, data)
    found = run_report(folder, lambda: data)
    write_page(tmp_path / "report.html", found)
    with browser.opened(tmp_path / "report.html") as seen:
        if table == "table1":
            assert seen.count("#curves") == 0
        else:
            assert seen.count("#accuracy .series[data-method=alpha] .series-mark") == len(TABLE3)
            assert seen.count("#accuracy .published") == len(TABLE3)
            told = csv.DictReader(io.StringIO(saved(seen, "#accuracy .to-csv")))
            beside = {float(row["1/α"]): float(row["paper: top-1 (%)"]) for row in told
                      if row["1/α"]}  # fmt: skip
            assert beside == dict(TABLE3)
        seen.quiet()


def test_it_opens_with_the_most_pruned_network_near_the_dense_one(small: Made) -> None:
    rows = {row["key"]: row for row in small.content["rows"]}
    dense = rows["dense"]["top1"][0]
    chosen = rows[small.content["chosen"]]
    near = [r for r in rows.values() if r["top1"] and r["top1"][0] >= dense - 5 and r["rate"] > 0]
    most = max(row["rate"] for row in near)
    best = [row for row in near if row["rate"] == most and row["live"][0] == 100]
    assert chosen["rate"] == most
    assert chosen["key"] == max(best, key=lambda row: row["top1"][0])["key"]
    asked = run_report(small.folder, network="mp@50")
    assert asked["chosen"] == "mp@50" and asked["rule"] == "as asked for"
    with pytest.raises(TrellisError, match=r"unknown --network 'mp@51'; known: .*mp@50"):
        run_report(small.folder, network="mp@51")
