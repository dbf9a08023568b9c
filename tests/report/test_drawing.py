"""What is drawn is what the paths, enumerated, run through."""

from __future__ import annotations

import base64
import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.report.networks import network, networks
from tests.report.paths import Path, paths
from trellis.report import drawing as module
from trellis.report.drawing import drawing
from trellis.report.gcn_paths import messages_of, multiplications, weights_of
from trellis.skeleton import GCN

BRANCHES = [0, 1, 1]


def members(text: str) -> set[int]:
    return {i for i in range(64) if int(text, 16) >> i & 1}


def by_line(gcn: GCN) -> dict[Any, list[Path]]:
    """All paths, by what the picture draws as one line: kind, then its units."""
    found: dict[Any, list[Path]] = defaultdict(list)
    filters, summed = gcn.sizes["filters"], gcn.sizes["combine"] == "sum"
    for path in paths(gcn):
        node = path.connections[-1][1][1] // (filters * (1 if summed else gcn.sizes["heads"]))
        for number in range(gcn.sizes["blocks"]):
            (_, attention), (_, kernel) = path.connections[2 * number : 2 * number + 2]
            found["attention", (number, path.heads[number], *attention[1:])].append(path)
            found["convolution", (number, path.heads[number], *kernel[1:])].append(path)
        head = 0 if summed else path.heads[-1]
        place = path.connections[-1][1][1] % filters
        found["dense", (head, place, node, path.label)].append(path)
    return found


def column(line: Any) -> Any:
    """Lines that are drawn side by side: of one kind and one block."""
    return line[0] if line[0] == "dense" else (line[0], line[1][0])


def by_branch(through: Iterable[Path], sums: dict[int, float]) -> Any:
    """The part of these paths that begins in each branch, every class counting one."""
    found = np.zeros(2)
    for path in through:
        found[BRANCHES[path.joint]] += path.weight / sums[path.label]
    return found / max(found.sum(), 1e-300)


@settings(max_examples=30, deadline=None)
@given(gcn=networks())
def test_every_line_on_a_path_is_drawn_and_no_other(gcn: GCN) -> None:
    found = drawing(messages_of(weights_of(gcn)), BRANCHES)
    assert found["mode"] == "paths"
    lines: dict[Any, list[int]]
    lines = {("dense", tuple(row[:4])): row[4:] for row in found["dense"]}
    for number, rows in enumerate(found["attentions"]):
        lines |= {("attention", (number, *row[:3])): row[3:] for row in rows}
    for number, rows in enumerate(found["convolutions"]):
        lines |= {("convolution", (number, *row[:3])): row[3:] for row in rows}
    wanted = by_line(gcn)
    assert lines.keys() == wanted.keys()
    sums: dict[int, float] = defaultdict(float)
    for path in paths(gcn):
        sums[path.label] += path.weight
    usual = by_branch(paths(gcn), sums)
    strongest: dict[Any, float] = defaultdict(float)
    flows = {
        line: sum(p.weight / sums[p.label] for p in through) for line, through in wanted.items()
    }
    for line, flow in flows.items():
        strongest[column(line)] = max(strongest[column(line)], flow)
    for line, through in wanted.items():
        level, branch, joints, classes = lines[line]
        assert members(found["joint_sets"][joints]) == {path.joint for path in through}
        assert members(found["class_sets"][classes]) == {path.label for path in through}
        decades = 1 + math.log10(flows[line] / strongest[column(line)]) / 4
        assert abs(level - 99 * max(0, decades)) <= 0.51
        # The colour is of the branch that a line carries more of than the others do.
        more = by_branch(through, sums) - usual
        assert more[branch] == pytest.approx(max(more), abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(gcn=networks())
def test_multiplications_are_distinct_uses_on_paths(gcn: GCN) -> None:
    uses = {place for path in paths(gcn) for place in path.places}
    assert multiplications(messages_of(weights_of(gcn))) == len(uses)


@pytest.mark.parametrize(
    "options",
    [{}, {"blocks": 3}, {"combine": "sum"}, {"blocks": 2, "combine": "sum"}, {"shared": True}],
    ids=str,
)
def test_bundles_add_up_to_the_shares_of_paths(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    gcn = network(3, **options)
    found = drawing(messages_of(weights_of(gcn)), BRANCHES)
    assert found["mode"] == "bundles"
    assert len(found["blocks"]) == gcn.sizes["blocks"]
    every = list(paths(gcn))
    sums = np.zeros(3)
    for path in every:
        sums[path.label] += path.weight
    for number, block in enumerate(found["blocks"]):
        wanted, of_class, of_joint = (np.zeros((3, 3, 2)), *np.zeros((2, 3, 2, 2)))
        filters = set()
        for path in every:
            part, head = path.weight / sums[path.label], path.heads[number]
            wanted[path.label, path.joint, head] += part
            filters.add((head, path.connections[2 * number + 1][1][2]))
            before = path.heads[max(0, number - 1)]
            of_class[path.label, before, head] += part
            of_joint[path.joint, before, head] += part
        same(block["flow"], wanted)
        if number:
            same(block["of_class"], of_class)
            same(block["of_joint"], of_joint)
        assert block["filters"] == [sum(head == k for head, _ in filters) for k in range(2)]


def same(told: dict[str, Any], wanted: Any) -> None:
    """As near as a byte can be; and nothing where, and only where, there is nothing."""
    levels = np.frombuffer(base64.b64decode(told["bytes"]), np.uint8).reshape(told["shape"])
    np.testing.assert_allclose((levels / 255.0) ** 2 * told["largest"], wanted, atol=0.015)
    assert ((levels > 0) == (wanted > 0)).all()
