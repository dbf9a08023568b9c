"""The page's charts, in a browser: what is drawn, read out, toggled and saved."""

from __future__ import annotations

import csv
import io
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.report.browser import Browser
from tests.report.conftest import HOSTILE, Made
from tests.report.saving import saved


def pruned(made: Made) -> list[dict[str, Any]]:
    return [row for row in made.content["rows"] if row["method"] != "dense"]


@pytest.mark.parametrize("chart", ["accuracy", "live"])
def test_a_mark_for_each_row_and_none_for_what_is_switched_off(
    browser: Browser, small: Made, chart: str
) -> None:
    with browser.opened(small.page) as seen:
        marks = f"#{chart} .series-mark"
        assert seen.count(marks) == len(pruned(small)) == 12
        value = "top1" if chart == "accuracy" else "live"
        spread = sum(row[value][1] > 0 for row in pruned(small))
        assert seen.count(f"#{chart} .whisker") == spread
        key = seen.page.locator(".key[data-method=tc]")
        key.click()
        assert key.get_attribute("aria-pressed") == "false"
        assert seen.count(marks) == 9 and seen.count(f"#{chart} .series[data-method=tc]") == 0
        seen.page.click(".legend >> text=none")
        assert seen.count(marks) == 0
        seen.page.click(".legend >> text=all")
        assert seen.count(marks) == 12
        seen.quiet()


def test_hovering_and_arrow_keys_read_the_same_values(browser: Browser, small: Made) -> None:
    at = {
        row["label"]: f"{row['top1'][0]:.1f} ± {row['top1'][1]:.1f} %"
        for row in pruned(small)
        if row["rate"] == 99
    }
    with browser.opened(small.page) as seen:
        cover = seen.page.locator("#accuracy .cover")
        box = cover.bounding_box()
        assert box is not None
        cover.hover(position={"x": box["width"] - 5, "y": 40})
        hovered = {
            line.locator("span").inner_text(): line.locator("b").inner_text()
            for line in seen.page.locator(".reader li").all()
        }
        assert hovered == at
        assert "99 % removed" in seen.page.locator(".reader strong").inner_text()
        seen.page.mouse.move(0, 0)
        cover.focus()
        for _ in range(3):
            seen.page.keyboard.press("ArrowRight")
        assert "99 % removed" in seen.page.locator(".reader strong").inner_text()
        spoken = cover.get_attribute("aria-valuetext")
        assert spoken is not None and all(label in spoken for label in at)
        seen.quiet()


def test_the_table_and_the_csv_are_the_charts_data(browser: Browser, small: Made) -> None:
    with browser.opened(small.page) as seen:
        assert not seen.page.locator("#accuracy .tabular").is_visible()
        seen.page.click("#accuracy .to-table")
        assert seen.page.locator("#accuracy .tabular").is_visible()
        assert not seen.page.locator("#accuracy .picture").is_visible()
        shown = seen.page.locator("#accuracy tbody tr").count()
        rows = list(csv.DictReader(io.StringIO(saved(seen, "#accuracy .to-csv"))))
        assert shown == len(rows) == len(small.content["rows"])
        for row, wanted in zip(rows, small.content["rows"], strict=True):
            assert float(row["top-1 (%)"]) == wanted["top1"][0]
            assert float(row["rate (%)"]) == wanted["rate"]
            assert row["measured on"] == wanted["on"] == "test"
        seen.page.click("#accuracy .to-table")
        assert seen.page.locator("#accuracy svg.chart").is_visible()
        seen.quiet()


# A mark's colour, how many corners it has, and where in its box the first of them lies.
LOOK = """mark => {
  const box = mark.getBBox(), d = mark.getAttribute('d');
  const [x, y] = d.match(/[0-9.]+/g).map(Number);
  const third = part => Math.round(2 * part);
  const names = [...mark.closest('.swatch, .dot, .series').classList];
  const colour = names.find(name => /^c[0-9]$/.test(name));
  const corners = d.includes('a') ? 'round' : d.split('L').length;
  return [colour, corners, third((x - box.x) / box.width), third((y - box.y) / box.height)].join();
}"""


def test_no_two_of_fourteen_methods_look_alike(browser: Browser, full: Made) -> None:
    """Even where a point stands alone, without a line that could be dashed."""
    labels = {method["key"]: method["label"] for method in full.content["methods"]}
    with browser.opened(full.page, width=1600) as seen:
        seen.page.click(".legend >> text=all")
        cover = seen.page.locator("#accuracy .cover")
        box = cover.bounding_box()
        assert box is not None
        cover.hover(position={"x": box["width"] - 5, "y": 40})
        assert sorted(seen.texts(".reader li span")) == sorted(labels.values())
        read = seen.page.locator(".reader .series-mark").all()
        swatches = dict(zip(seen.texts(".reader li span"), read, strict=True))
        looks = {}
        for key, label in labels.items():
            keys = seen.page.locator(f".key[data-method='{key}'] .series-mark").all()
            points = seen.page.locator(f"#accuracy [data-method='{key}'] .series-mark").all()
            assert len(keys) == 1 and len(points) == 6
            marks = {mark.evaluate(LOOK) for mark in (*keys, *points, swatches[label])}
            assert len(marks) == 1, label  # in the legend, in the chart and when read out
            looks[key] = marks.pop()
        assert len(set(looks.values())) == len(looks) == 14
        seen.quiet()


@pytest.mark.parametrize(
    "chart",
    ["accuracy", "live", "layers", "network", "class-shares", "joint-shares", "chunk-shares",
     "losses", "confusion"],
)  # fmt: skip
def test_every_chart_says_that_its_data_is_synthetic_and_so_does_its_file(
    browser: Browser, small: Made, chart: str
) -> None:
    with browser.opened(small.page) as seen:
        label = f"synthetic data: {small.data.source}"
        assert seen.texts(f"#{chart} .synthetic-label") == [label]
        file = ElementTree.fromstring(saved(seen, f"#{chart} .to-svg"))
        texts = ["".join(e.itertext()) for e in file.iter() if e.tag.endswith("}text")]
        assert label in texts
        assert seen.page.locator(f"#{chart} h3").inner_text() in texts
        assert not [e for e in file.iter() if e.tag.endswith(("script", "foreignObject"))]
        seen.quiet()


def test_a_spreadsheet_finds_no_formula_in_a_name(browser: Browser, small: Made) -> None:
    with browser.opened(small.page) as seen:
        rows = list(csv.reader(io.StringIO(saved(seen, "#losses .to-csv"))))
        names = {row[0] for row in rows[1:]}
        assert names == {f"'{n}" if n.startswith("=") else n for n in HOSTILE}


def test_dead_connections_have_their_own_bars(browser: Browser, small: Made) -> None:
    with browser.opened(small.page) as seen:
        seen.choose("mp@99")
        rows = [row for row in pruned(small) if row["rate"] == 99]
        assert seen.count("#layers .bar") == 3 * len(rows)
        dead = sum(kept > live for row in rows for kept, live in row["layers"].values())
        assert seen.count("#layers .bar-dead") == dead > 0
        assert seen.count("#layers [data-row='viterbi@99'] .bar-dead") == 0
        assert "at 99 %" in seen.page.locator("#layers h3").inner_text()
        seen.quiet()


def test_the_matrix_has_a_cell_for_each_pair_and_its_rows_choose_a_class(
    browser: Browser, small: Made
) -> None:
    with browser.opened(small.page) as seen:
        seen.choose("tc@99")
        cells = small.content["confusions"]["tc@99"]
        assert seen.count("#confusion .cell") == len(cells) // 3
        diagonal = sum(cells[i] == cells[i + 1] for i in range(0, len(cells), 3))
        assert seen.count("#confusion .cell.right") == diagonal
        seen.page.locator("#confusion .matrix-row[data-class='2']").click()
        assert seen.page.locator("#class-picker").input_value() == "2"
        losses = seen.page.locator("#losses .loss").evaluate_all(
            "marks => marks.map(mark => Number(mark.dataset.class))"
        )
        assert losses == worst_first(small, "tc@99")
        seen.quiet()


def worst_first(made: Made, row: str) -> list[int]:
    def accuracy(key: str) -> dict[int, float]:
        cells = made.content["confusions"][key]
        right: dict[int, int] = {}
        every: dict[int, int] = {}
        for i in range(0, len(cells), 3):
            truth, said, count = cells[i : i + 3]
            every[truth] = every.get(truth, 0) + count
            right[truth] = right.get(truth, 0) + count * (truth == said)
        return {label: 100 * right[label] / every[label] for label in sorted(every)}

    dense, now = accuracy("dense"), accuracy(row)
    return sorted(now, key=lambda label: (now[label] - dense[label], now[label]))


def test_skeletons_move_unless_motion_is_unwelcome(browser: Browser, small: Made) -> None:
    place = "document.querySelector('.moving.right .joint').getAttribute('cx')"
    with browser.opened(small.page) as seen:
        seen.page.locator("#moving").scroll_into_view_if_needed()
        first = seen.page.evaluate(place)
        assert any(seen.page.evaluate(place) != first for _ in range(50))
        assert seen.count(".moving.right .joint") == 21
        seen.quiet()
    with browser.opened(small.page, reduced_motion="reduce") as seen:
        seen.page.locator("#moving").scroll_into_view_if_needed()
        before = seen.page.evaluate(place)
        seen.page.wait_for_timeout(250)
        assert seen.page.evaluate(place) == before
        seen.page.locator("#moving input").fill("500")
        assert seen.page.evaluate(place) != before
        seen.quiet()
