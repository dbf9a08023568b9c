"""Where joints are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.report.page import HANDS, drawn_pose
from trellis.skeleton import Layout
from trellis.skeleton.data.hands.hand import LAYOUT
from trellis.skeleton.data.layouts import LAYOUTS

KNOWN = {**LAYOUTS, "hand": LAYOUT}


@pytest.mark.parametrize("name", HANDS)
def test_a_hand_is_open_with_its_tips_on_top_and_the_thumb_aside(name: str) -> None:
    layout = KNOWN[name]
    points = np.array(drawn_pose(layout, None))
    assert points.min() == 0 and points.max() == 1
    assert len({tuple(point) for point in points}) == len(layout.joints)
    for parent, joint in layout.bones:
        assert points[joint, 1] < points[parent, 1]  # every bone leads up from the wrist
    tips = [j for j in range(len(points)) if j not in layout.parents]
    assert list(np.argsort(points[tips, 0])) == [0, 1, 2, 3, 4]  # thumb to little finger
    assert points[0, 1] == 1


def test_others_stand_as_their_recordings_do() -> None:
    body = LAYOUTS["nw-ucla"]
    mean = np.random.default_rng(0).normal(size=(20, 3))
    points = np.array(drawn_pose(body, mean.tolist()))
    # Its camera looks at people: right is left, and up is up.
    shown = np.stack([-mean[:, 0], -mean[:, 1]], axis=1)
    shown -= shown.min(axis=0)
    np.testing.assert_allclose(points, shown / shown.max(), atol=1e-3)


@pytest.mark.parametrize("parents", [(-1,), (-1, -1, -1), (2, 0, 1), (-1, 0, 0, 1), (-1, 0, -1, 2)])
def test_bones_of_any_kind_have_places(parents: tuple[int, ...]) -> None:
    layout = Layout("own", tuple(map(str, range(len(parents)))), parents)
    points = np.array(drawn_pose(layout, None))
    assert points.shape == (len(parents), 2) and np.isfinite(points).all()
