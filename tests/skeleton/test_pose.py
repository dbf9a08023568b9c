"""The mean pose of recordings that are turned, moved and scaled copies of one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trellis.skeleton.data.dataset import mean_pose


def rotation(random: np.random.Generator) -> np.ndarray:
    turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
    return turn * np.sign(np.linalg.det(turn))


@given(seed=st.integers(0, 10_000), copies=st.integers(1, 6))
def test_turned_moved_and_scaled_copies_average_to_the_one_they_are_of(
    seed: int, copies: int
) -> None:
    random = np.random.default_rng(seed)
    shape = random.normal(size=(7, 3))
    frames = [
        ((shape @ rotation(random) + random.normal(size=3)) * random.uniform(0.1, 10))[None]
        for _ in range(copies)
    ]
    found = mean_pose(frames, [2])

    def distances(points: np.ndarray) -> np.ndarray:
        between = np.linalg.norm(points[:, None] - points[None], axis=-1)
        return between / between.max()

    np.testing.assert_allclose(distances(found), distances(shape), atol=1e-6)
    # No mirror image: the volume that four joints span keeps its sign.
    volumes = [np.linalg.det(points[1:4] - points[0]) for points in (shape, found)]
    assert np.sign(volumes[0]) == np.sign(volumes[1])
    np.testing.assert_allclose(found[2], 0, atol=1e-12)


def test_a_skeleton_without_extent_stays_where_it_is() -> None:
    assert (mean_pose([np.ones((4, 2, 3), np.float32)], [0]) == 0).all()
