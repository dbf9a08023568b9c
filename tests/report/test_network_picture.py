"""The surviving network, in a browser: every line is there, and classes and joints light up."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from tests.report.browser import Browser, Seen
from tests.report.conftest import Made


def lit(seen: Seen, kind: str) -> set[int]:
    """Which joints or classes are lit."""
    if kind == "joint":
        script = "dots => dots.flatMap((dot, i) => dot.classList.contains('on') ? [i] : [])"
        return set(seen.page.locator("#network .joint").evaluate_all(script))
    script = "marks => marks.map(mark => Number(mark.dataset.class))"
    return set(seen.page.locator("#network .class-mark.on").evaluate_all(script))


def lines(drawing: dict[str, Any]) -> int:
    return len(drawing["dense"]) + sum(
        map(len, [*drawing["attentions"], *drawing["convolutions"]])
    )  # fmt: skip


def members(text: str) -> set[int]:
    return {i for i in range(80) if int(text, 16) >> i & 1}


@pytest.mark.parametrize("row", ["tc@99", "mp@99"])
def test_every_live_connection_is_a_line(browser: Browser, small: Made, row: str) -> None:
    drawing = small.content["networks"][row]["drawing"]
    assert drawing["mode"] == "paths"
    with browser.opened(small.page) as seen:
        seen.choose(row)
        assert seen.count("#network .line") == lines(drawing) > 0
        assert seen.count("#network .joint") == 21
        assert seen.count("#network .class-mark") == 8
        seen.quiet()


def test_a_class_lights_the_joints_it_listens_to_and_a_joint_the_classes(
    browser: Browser, small: Made
) -> None:
    network = small.content["networks"]["tc@99"]
    drawing, shares = network["drawing"], network["joints"]
    with browser.opened(small.page) as seen:
        seen.choose("tc@99")
        for label, own in enumerate(shares):
            seen.page.locator(f"#network .class-mark[data-class='{label}']").hover()
            assert lit(seen, "joint") == {j for j, part in enumerate(own) if part}
            assert lit(seen, "class") == {label}
            rows = [*drawing["dense"], *chain(*drawing["attentions"], *drawing["convolutions"])]
            wanted = sum(label in members(drawing["class_sets"][row[-1]]) for row in rows)
            counted = seen.page.locator("#network .lit-line").evaluate_all(
                "marks => marks.reduce((sum, mark) => sum + Number(mark.dataset.lines), 0)"
            )
            assert counted == wanted
        seen.page.mouse.move(0, 0)
        assert lit(seen, "joint") == set() and seen.count("#network .lit-line") == 0
        for joint in (0, 4, 20):
            seen.page.locator(f"#network .joint-mark[data-joint='{joint}']").hover()
            assert lit(seen, "class") == {o for o, own in enumerate(shares) if own[joint]}
            assert lit(seen, "joint") == {joint}
        seen.quiet()


def test_the_keyboard_does_what_the_mouse_does(browser: Browser, small: Made) -> None:
    shares = small.content["networks"]["tc@99"]["joints"]
    with browser.opened(small.page) as seen:
        seen.choose("tc@99")
        marks = seen.page.locator("#network .class-mark")
        order = marks.evaluate_all("marks => marks.map(mark => Number(mark.dataset.class))")
        stops = marks.evaluate_all("marks => marks.filter(mark => mark.tabIndex === 0).length")
        assert stops == 1  # one stop of the Tab key, whatever the number of classes
        marks.first.focus()
        seen.page.keyboard.press("ArrowDown")
        label = order[1]
        assert lit(seen, "class") == {label}
        assert lit(seen, "joint") == {j for j, part in enumerate(shares[label]) if part}
        name = small.content["classes"][label]
        assert name in seen.page.locator(".readout").inner_text()
        seen.page.keyboard.press("Enter")
        seen.page.locator("#network .to-table").focus()
        assert lit(seen, "class") == {label}  # kept
        assert seen.page.locator("#class-picker").input_value() == str(label)
        marks.nth(1).focus()
        seen.page.keyboard.press("Escape")
        seen.page.locator("#network .to-table").focus()
        assert lit(seen, "class") == set()
        seen.quiet()


def test_shares_of_the_chosen_class_are_drawn_and_add_up_to_one(
    browser: Browser, small: Made
) -> None:
    network = small.content["networks"]["viterbi@99"]
    for own in (*network["joints"], *network["chunks"]):
        assert sum(own) in (0, 10_000)
    with browser.opened(small.page) as seen:
        seen.choose("viterbi@99")
        seen.page.select_option("#class-picker", "7")
        heard = sum(part > 0 for part in network["joints"][7])
        assert seen.count("#class-shares .bar-live") == min(10, heard)
        assert seen.count("#class-shares .moment") == 8
        cells = sum(part > 0 for own in network["joints"] for part in own)
        assert seen.count("#joint-shares .heat") == cells
        seen.page.click("#class-shares .to-table")
        parts = seen.page.locator("#class-shares tbody td").all_inner_texts()
        assert sum(map(float, parts)) == pytest.approx(2)  # over joints, and over moments
        seen.quiet()


def test_many_connections_are_bundled_and_answer_a_hover(browser: Browser, full: Made) -> None:
    networks = full.content["networks"]
    row = next(key for key in networks if key.endswith("@99"))
    assert networks[row]["drawing"]["mode"] == "bundles"
    with browser.opened(full.page, width=1600) as seen:
        seen.choose(row)
        assert 0 < seen.count("#network .line") <= 1500
        marks = seen.page.locator("#network .class-mark")
        marks.first.hover()
        assert lit(seen, "joint") == {
            j for j, part in enumerate(networks[row]["joints"][
                int(marks.first.get_attribute("data-class") or -1)]) if part
        }  # fmt: skip
        seen.quiet()


CHANGES = """async selector => {
  const network = document.querySelector('#network');
  const marks = [...network.querySelectorAll(selector)];
  let changes = [];
  new MutationObserver(found => changes.push(...found)).observe(
    document.body, {subtree: true, childList: true, attributes: true, characterData: true});
  const most = {records: 0, added: 0, lines: 0};
  for (const mark of marks) {
    changes = [];
    mark.dispatchEvent(new PointerEvent('pointerenter'));
    await new Promise(done => setTimeout(done));
    const added = changes.flatMap(one => [...one.addedNodes]).filter(node => node.nodeType === 1);
    most.records = Math.max(most.records, changes.length);
    most.added = Math.max(most.added, added.length);
    most.lines += changes.filter(one => one.target.closest?.('.line, .filter')).length;
  }
  return most;
}"""


@pytest.mark.parametrize(
    ("mode", "ending"), [("bundles", "@90"), ("bundles", "@99"), ("paths", "@99.9")]
)
def test_a_hover_touches_what_is_lit_and_nothing_else(
    browser: Browser, full: Made, mode: str, ending: str
) -> None:
    """However many lines and names there are, they stay as they were painted: they only fade, each
    as one layer, and what is lit is drawn above them in a few paths."""
    networks = full.content["networks"]
    row = next(
        row for row, n in networks.items() if n["drawing"]["mode"] == mode and row.endswith(ending)
    )
    with browser.opened(full.page, width=1600) as seen:
        seen.choose(row)
        seen.page.mouse.move(0, 0)
        assert seen.count("#network .line") > 300
        for layer in ("lines", "marks"):
            assert seen.page.locator(f"#network .{layer}").evaluate(
                "layer => layer.localName === 'svg' && getComputedStyle(layer).willChange"
            ) == "opacity"  # fmt: skip
        # From one class to the next: two marks, the joints that listen, a few paths and names.
        of_class = seen.page.evaluate(CHANGES, ".class-mark")
        assert of_class["lines"] == 0
        assert of_class["records"] <= 2 + 2 * 21 + 10 and of_class["added"] <= 100
        # A joint may be heard by every class: its mark and its share, with the one before taken.
        of_joint = seen.page.evaluate(CHANGES, ".joint-mark")
        assert of_joint["lines"] == 0
        assert of_joint["records"] <= 2 * 45 + 2 * 21 + 10 and of_joint["added"] <= 100
        seen.quiet()


# How far the end of the page moves with each hover.
MOVED = """selector => {
  const place = () => document.querySelector('footer').getBoundingClientRect().top;
  const before = place();
  return [...document.querySelectorAll(selector)].map(mark => {
    mark.dispatchEvent(new PointerEvent('pointerenter'));
    const apart = Math.abs(place() - before);
    mark.dispatchEvent(new PointerEvent('pointerleave'));
    return apart;
  });
}"""


@pytest.mark.parametrize("width", [390, 1000, 1600])
def test_a_hover_moves_nothing_else(browser: Browser, full: Made, width: int) -> None:
    """What is read out has its room from the start: were the rest of the page to move with every
    hover, it would have to be painted again, too."""
    with browser.opened(full.page, width=width) as seen:
        seen.page.mouse.move(0, 0)
        moved = seen.page.evaluate(MOVED, "#network .class-mark, #network .joint-mark")
        assert len(moved) == 45 + 21 and set(moved) == {0}
        # Nor does a class's share of the joint stand beyond the picture's edge.
        seen.page.locator("#network .joint-mark[data-joint='8']").hover()
        ends = seen.page.locator("#network .lit-name").evaluate_all(
            "names => names.map(name => name.getBoundingClientRect().right)"
        )
        edge = seen.page.locator("#network .picture").bounding_box()
        assert len(ends) > 20 and max(ends) <= edge["x"] + edge["width"]
        seen.quiet()
