"""What is drawn is what the paths, enumerated, run through."""

from __future__ import annotations

import base64
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.report.networks import network, networks
from tests.report.paths import Path, paths
from trellis.report import drawing as module
from trellis.report.drawing import drawing
from trellis.report.messages import messages_of
from trellis.report.multiplications import multiplications
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
            if number == 0:
                found["attention", attention].append(path)
            found[number, (path.heads[number], *kernel[1:])].append(path)
        head = 0 if summed else path.heads[-1]
        place = path.connections[-1][1][1] % filters
        found["dense", (head, place, node, path.label)].append(path)
    return found


@settings(max_examples=40, deadline=None)
@given(gcn=networks())
def test_every_line_on_a_path_is_drawn_and_no_other(gcn: GCN) -> None:
    found = drawing(messages_of(gcn), BRANCHES)
    assert found["mode"] == "paths"
    lines: dict[Any, list[int]]
    lines = {("attention", tuple(row[:3])): row[3:] for row in found["attention"]}
    lines |= {("dense", tuple(row[:4])): row[4:] for row in found["dense"]}
    for number, rows in enumerate(found["convolutions"]):
        lines |= {(number, tuple(row[:3])): row[3:] for row in rows}
    wanted = by_line(gcn)
    assert lines.keys() == wanted.keys()
    sums: dict[int, float] = defaultdict(float)
    for path in paths(gcn):
        sums[path.label] += path.weight
    strongest: dict[Any, float] = defaultdict(float)
    flows = {
        line: sum(p.weight / sums[p.label] for p in through) for line, through in wanted.items()
    }
    for line, flow in flows.items():
        strongest[line[0]] = max(strongest[line[0]], flow)
    for line, through in wanted.items():
        level, branch, joints, classes = lines[line]
        assert members(found["joint_sets"][joints]) == {path.joint for path in through}
        assert members(found["class_sets"][classes]) == {path.label for path in through}
        decades = 1 + math.log10(flows[line] / strongest[line[0]]) / 4
        assert abs(level - 99 * max(0, decades)) <= 0.51
        by_branch = [0.0, 0.0]
        for path in through:
            by_branch[BRANCHES[path.joint]] += path.weight / sums[path.label]
        assert by_branch[branch] == pytest.approx(max(by_branch))


@settings(max_examples=30, deadline=None)
@given(gcn=networks())
def test_multiplications_are_distinct_uses_on_paths(gcn: GCN) -> None:
    uses = {place for path in paths(gcn) for place in path.places}
    assert multiplications(messages_of(gcn)) == len(uses)


@pytest.mark.parametrize("options", [{}, {"blocks": 2}, {"combine": "sum"}, {"shared": True}])
def test_bundles_add_up_to_the_shares_of_paths(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    gcn = network(3, **options)
    found = drawing(messages_of(gcn), BRANCHES)
    assert found["mode"] == "bundles"
    wanted = np.zeros((3, 3, 2))
    filters = set()
    for path in paths(gcn):
        wanted[path.label, path.joint, path.heads[0]] += path.weight
        filters.add((path.heads[0], path.connections[1][1][2]))
    wanted /= np.maximum(wanted.sum((1, 2), keepdims=True), 1e-300)
    bundles = found["bundles"]
    levels = np.frombuffer(base64.b64decode(bundles["bytes"]), np.uint8).reshape(bundles["shape"])
    flow = (levels / 255.0) ** 2 * bundles["largest"]
    np.testing.assert_allclose(flow, wanted, atol=0.01)
    assert ((levels > 0) == (wanted > 0)).all()
    counts = [sum(head == k for head, _ in filters) for k in range(2)]
    assert bundles["filters"] == counts
