"""The known layouts, against what their data sets say of themselves."""

from __future__ import annotations

import numpy as np
import pytest

from trellis.errors import TrellisError
from trellis.skeleton import Layout
from trellis.skeleton.data.layouts import FPHA, LAYOUTS, MEDIAPIPE_HAND, NW_UCLA, SBU, SHREC17


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_is_a_forest(layout: Layout) -> None:
    people = 2 if layout is SBU else 1
    assert len(set(layout.joints)) == len(layout.joints)
    assert len(layout.bones) == len(layout.joints) - people
    for joint in range(len(layout.joints)):
        steps = 0
        while layout.parents[joint] >= 0:
            joint, steps = layout.parents[joint], steps + 1
            assert steps < len(layout.joints)
    assert all(layout.parents[root] == -1 for root in layout.roots)
    assert len(layout.roots) == people


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_mirrors_swap_left_and_right_and_keep_bones(layout: Layout) -> None:
    if layout.mirror is None:
        assert layout in (FPHA, MEDIAPIPE_HAND, SHREC17)  # a left hand is no right hand
        return
    for joint, other in enumerate(layout.mirror):
        assert layout.mirror[other] == joint
        swapped = layout.joints[joint].replace("left", "?").replace("right", "left")
        assert layout.joints[other] == swapped.replace("?", "right")
        parent = layout.parents[joint]
        assert layout.parents[other] == (layout.mirror[parent] if parent >= 0 else -1)


def test_bones_of_sbu_are_those_its_authors_draw() -> None:
    drawn = "1-2 4-2 5-4 6-5 7-2 8-7 9-8 3-2 10-3 11-10 12-11 13-3 14-13 15-14"
    pairs = [frozenset(int(j) - 1 for j in bone.split("-")) for bone in drawn.split()]
    both = {*pairs, *(frozenset(15 + joint for joint in pair) for pair in pairs)}
    assert {frozenset(bone) for bone in SBU.bones} == both


def test_fpha_and_mediapipe_are_the_same_hand_in_two_orders() -> None:
    order = (0, 1, 6, 7, 8, 2, 9, 10, 11, 3, 12, 13, 14, 4, 15, 16, 17, 5, 18, 19, 20)
    place = {joint: at for at, joint in enumerate(order)}
    bones = {(place[parent], place[joint]) for parent, joint in FPHA.bones}
    assert bones == set(MEDIAPIPE_HAND.bones)


def test_the_bodies_have_two_arms_and_two_legs() -> None:
    ends = [j for j in range(20) if j not in NW_UCLA.parents]
    assert {NW_UCLA.joints[j] for j in ends} == {
        "head", "left hand", "right hand", "left foot", "right foot"
    }  # fmt: skip
    ends = [j for j in range(22) if j not in SHREC17.parents]
    assert {SHREC17.joints[j].split()[1] for j in ends} == {"tip"} and len(ends) == 5


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_adjacency_is_bones_both_ways_in_rows_that_sum_to_one(layout: Layout) -> None:
    graph = layout.adjacency()
    np.testing.assert_allclose(graph.sum(axis=1), 1, rtol=1e-6)
    joined = {(i, j) for i, j in np.argwhere(graph > 0) if i < j}
    assert joined == {(min(bone), max(bone)) for bone in layout.bones}
    assert (np.diag(graph) > 0).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"joints": (), "parents": ()}, "has no joints"),
        ({"parents": (-1, 0)}, "3 joints and 2 parents"),
        ({"parents": (-1, 1, 0)}, "the parent of joint 1 is 1"),
        ({"parents": (-1, 0, 3)}, "the parent of joint 2 is 3"),
        ({"roots": ()}, "roots are"),
        ({"roots": (3,)}, "roots are"),
        ({"mirror": (0, 0, 1)}, "mirror does not name every joint once"),
    ],
)
def test_layouts_that_are_none(options: dict[str, tuple[int, ...]], said: str) -> None:
    plain = {"joints": ("a", "b", "c"), "parents": (-1, 0, 1)}
    with pytest.raises(TrellisError, match=said):
        Layout("arm", **{**plain, **options})  # type: ignore[arg-type]
