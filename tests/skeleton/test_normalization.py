"""Normalization: what it removes, what it keeps, and that it is part of a saved model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trellis.errors import TrellisError
from trellis.skeleton import Layout, Normalization, chunked
from trellis.skeleton.data.layouts import FPHA, NW_UCLA

ARM = Layout("arm", ("shoulder", "elbow", "hand"), (-1, 0, 1), roots=(0, 1))
Array = NDArray[np.float32]


def recordings(seed: int, count: int = 4, chunks: int = 5) -> Array:
    random = np.random.default_rng(seed)
    return random.normal(size=(count, 3, chunks * 3)).astype(np.float32)


def moved(x: Array, by: tuple[float, float, float]) -> Array:
    points = x.reshape(*x.shape[:2], -1, 3) + np.array(by, np.float32)
    return points.reshape(x.shape).astype(np.float32)


places = st.tuples(*[st.floats(-50, 50, width=16)] * 3)


@given(seed=st.integers(0, 99), by=places)
def test_where_it_took_place_does_not_matter(seed: int, by: tuple[float, float, float]) -> None:
    x = recordings(seed)
    fitted = Normalization.fit(x, ARM)
    np.testing.assert_allclose(fitted(moved(x, by)), fitted(x), atol=1e-4)
    assert Normalization.fit(moved(x, by), ARM).scale == pytest.approx(fitted.scale, rel=1e-4)


@given(seed=st.integers(0, 99), unit=st.sampled_from([0.001, 0.1, 25.4, 1000]))
def test_the_unit_of_length_does_not_matter(seed: int, unit: float) -> None:
    x = recordings(seed)
    inches = (x * np.float32(unit)).astype(np.float32)
    one, two = Normalization.fit(x, ARM), Normalization.fit(inches, ARM)
    np.testing.assert_allclose(one(x), two(inches), atol=1e-4)


@given(seed=st.integers(0, 99))
def test_roots_are_at_the_origin_on_average_and_the_spread_is_one(seed: int) -> None:
    x = recordings(seed)
    y = Normalization.fit(x, ARM)(x)
    roots = y.reshape(len(y), 3, -1, 3)[:, list(ARM.roots)]
    np.testing.assert_allclose(roots.mean(axis=(1, 2)), 0, atol=1e-5)
    assert y.std() == pytest.approx(1, rel=1e-4)


@given(seed=st.integers(0, 99))
def test_each_recording_is_treated_alone(seed: int) -> None:
    x = recordings(seed)
    fitted = Normalization.fit(x, ARM)
    np.testing.assert_array_equal(fitted(x)[1:2], fitted(x[1:2]))


def test_motion_of_the_whole_skeleton_is_kept() -> None:
    walk = np.zeros((10, 3, 3), np.float32)
    walk[:, :, 0] = np.arange(10)[:, None]
    y = Normalization((0,), 1.0)(chunked([walk], 10)).reshape(3, 10, 3)
    np.testing.assert_allclose(np.diff(y[:, :, 0], axis=1), 1)


@given(seed=st.integers(0, 99))
def test_saved_is_the_same(seed: int) -> None:
    fitted = Normalization.fit(recordings(seed), ARM)
    assert Normalization.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_that_are_none(scale: float) -> None:
    with pytest.raises(TrellisError, match="scale of the coordinates"):
        Normalization((0,), scale)


def test_a_skeleton_in_one_point_has_no_scale() -> None:
    with pytest.raises(TrellisError, match="all joints of all recordings in one place"):
        Normalization.fit(np.ones((2, 3, 6), np.float32), ARM)


@pytest.mark.parametrize("given_", [{}, {"roots": [0]}, {"roots": 0, "scale": 1}, {"roots": ["a"]}])
def test_what_is_no_normalisation(given_: dict[str, object]) -> None:
    with pytest.raises(TrellisError, match=r"expected .* at \$"):
        Normalization.from_dict(given_)


def turned(x: Array, seed: int) -> Array:
    """Seen by a camera that stands elsewhere."""
    turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    turn *= np.linalg.det(turn)
    return (x.reshape(*x.shape[:2], -1, 3) @ turn).reshape(x.shape).astype(np.float32)


def people(seed: int, chunks: int = 5) -> Array:
    """Bodies that stand, somehow: hips below, neck above, shoulders left and right."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(4, 20, chunks, 3))
    x[:, 2, :, 1] += 8
    x[:, 8, :, 0] += 9
    x[:, 4, :, 0] -= 9
    return x.reshape(4, 20, chunks * 3).astype(np.float32)


@given(seed=st.integers(0, 99), by=places)
def test_in_the_body_s_frame_it_does_not_matter_where_the_camera_stood(
    seed: int, by: tuple[float, float, float]
) -> None:
    x = people(seed)
    fitted = Normalization.fit(x, NW_UCLA, "body")
    seen = moved(turned(x, seed), by)
    np.testing.assert_allclose(fitted(seen), fitted(x), atol=2e-4)
    assert Normalization.fit(seen, NW_UCLA, "body").scale == pytest.approx(fitted.scale, rel=1e-4)
    assert np.abs(Normalization.fit(x, NW_UCLA)(seen) - fitted(x)).max() > 0.01


@given(seed=st.integers(0, 99))
def test_a_body_stands_upright_and_faces_the_same_way(seed: int) -> None:
    x = turned(people(seed), seed)
    y = Normalization.fit(x, NW_UCLA, "body")(x).reshape(4, 20, -1, 3).mean(2)
    up, across = y[:, 2] - y[:, 0], y[:, 8] - y[:, 4]
    np.testing.assert_allclose(up[:, [0, 2]], 0, atol=1e-4)
    np.testing.assert_allclose(across[:, 2], 0, atol=1e-4)
    assert (up[:, 1] > 0).all() and (across[:, 0] > 0).all()


@given(seed=st.integers(0, 99))
def test_turning_keeps_all_distances_at_all_times(seed: int) -> None:
    x = people(seed)
    fitted = Normalization.fit(x, NW_UCLA, "body")

    def distances(given_: Array) -> Array:
        points = given_.reshape(4, 20, -1, 3)
        apart: Array = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
        return apart

    np.testing.assert_allclose(distances(fitted(x)) * fitted.scale, distances(x), atol=1e-3)


@pytest.mark.parametrize("joint", [2, 8])
def test_a_body_that_points_nowhere_is_not_turned(joint: int) -> None:
    """Its top at its bottom, or its right at its left."""
    x = people(0)
    x[:, joint] = x[:, {2: 0, 8: 4}[joint]]
    plain, body = Normalization.fit(x, NW_UCLA), Normalization.fit(x, NW_UCLA, "body")
    np.testing.assert_array_equal(body(x), plain(x))


def test_frames_that_are_none() -> None:
    x = np.zeros((1, 21, 6), np.float32)
    with pytest.raises(TrellisError, match="frame='sun' is unknown: it is camera or body"):
        Normalization.fit(x, FPHA, "sun")
    with pytest.raises(TrellisError, match="'fpha' does not say which joints"):
        Normalization.fit(x, FPHA, "body")
    with pytest.raises(TrellisError, match=r"body is \(1, 2\): give four joints"):
        Normalization((0,), 1.0, (1, 2))


def sized(x: Array, sizes: Array) -> Array:
    """The same skeletons, each so many times as large, wherever it is."""
    return (x * sizes[:, None, None]).astype(np.float32)


@given(seed=st.integers(0, 99), by=places)
def test_alike_it_matters_neither_how_large_a_skeleton_is_nor_where(
    seed: int, by: tuple[float, float, float]
) -> None:
    x = people(seed)
    sizes = np.exp(np.random.default_rng(seed).uniform(-1, 1, len(x))).astype(np.float32)
    for frame in ("camera", "body"):
        fitted = Normalization.fit(x, NW_UCLA, frame, "alike")
        other = moved(sized(x, sizes), by)
        np.testing.assert_allclose(fitted(other), fitted(x), atol=2e-3)
        again = Normalization.fit(other, NW_UCLA, frame, "alike")
        np.testing.assert_allclose(again(other), fitted(x), atol=2e-3)
        assert np.abs(Normalization.fit(x, NW_UCLA, frame)(other) - fitted(x)).max() > 0.01


@given(seed=st.integers(0, 99))
def test_alike_all_have_bones_of_the_usual_mean_length_and_the_spread_is_one(seed: int) -> None:
    x = people(seed)
    fitted = Normalization.fit(x, NW_UCLA, size="alike")

    def mean_lengths(given_: Array) -> Array:
        points = given_.reshape(4, 20, -1, 3)
        each = [np.linalg.norm(points[:, a] - points[:, b], axis=-1) for a, b in NW_UCLA.bones]
        found: Array = np.mean(each, axis=(0, 2))
        return found

    np.testing.assert_allclose(mean_lengths(fitted(x)), fitted.length / fitted.scale, rtol=1e-4)
    assert fitted.length == pytest.approx(np.median(mean_lengths(x)), rel=1e-5)
    assert fitted(x).std() == pytest.approx(1, rel=1e-4) and fitted.size == "alike"
    assert Normalization.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


@pytest.mark.parametrize("left", [0.0, 1e-6, 0.04])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_a_skeleton_that_was_lost_stays_as_small_and_spoils_no_other(
    left: float, unit: float
) -> None:
    """Joints that nearly fall into one: not blown up, however small, nor is the scale."""
    x = people(0)
    sound = Normalization.fit(sized(x, np.full(4, unit)), NW_UCLA, size="alike")
    x[1] = x[1, :1] + left * (x[1] - x[1, :1])
    x = sized(x, np.full(4, unit))
    alike = Normalization.fit(x, NW_UCLA, size="alike")
    plain = Normalization(alike.roots, alike.scale)
    np.testing.assert_array_equal(alike(x)[1], plain(x)[1])
    assert 0.5 * sound.scale < alike.scale < 1.5 * sound.scale
    x[:3] = x[1]
    if left == 0:
        with pytest.raises(TrellisError, match="bones of most training recordings have no length"):
            Normalization.fit(x, NW_UCLA, size="alike")


def test_sizes_that_are_none() -> None:
    x = recordings(0)
    with pytest.raises(TrellisError, match="size='tall' is unknown: it is recorded or alike"):
        Normalization.fit(x, ARM, size="tall")
    dots = Layout("dots", ("a", "b", "c"), (-1, -1, -1))
    with pytest.raises(TrellisError, match="'dots' has no bones to tell a skeleton's size by"):
        Normalization.fit(x, dots, size="alike")


def test_a_model_saved_before_sizes_were_told_has_them_as_recorded() -> None:
    old = {"roots": [0], "scale": 2.0, "body": None}
    assert Normalization.from_dict(old) == Normalization((0,), 2.0)
    assert Normalization((0,), 2.0).to_dict() == old  # so that what it began goes on
    for bones in ([[0]], [[0, "a"]], 3, [[0, 1, 2]]):
        with pytest.raises(TrellisError, match=r"at \$\.bones"):
            Normalization.from_dict(old | {"bones": bones, "length": 1.0})
    with pytest.raises(TrellisError, match="expected the key 'length'"):
        Normalization.from_dict(old | {"bones": [[0, 1]]})
    with pytest.raises(TrellisError, match=r"bones are .*: give pairs of joints"):
        Normalization((0,), 2.0, bones=((0, 1, 2),))  # type: ignore[arg-type]
    for length in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(TrellisError, match="long: give a finite length above 0"):
            Normalization((0,), 2.0, bones=((0, 1),), length=length)


@given(seed=st.integers(0, 99))
def test_the_root_of_every_frame_is_the_origin(seed: int) -> None:
    x = recordings(seed)
    fitted = Normalization.fit(x, ARM, origin="frame")
    y = fitted(x)
    roots = y.reshape(*y.shape[:2], -1, 3)[:, list(ARM.roots)]
    np.testing.assert_allclose(roots.mean(axis=1), 0, atol=1e-5)
    assert y.std() == pytest.approx(1, rel=1e-4)
    assert Normalization.from_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted


def test_origins() -> None:
    old = {"roots": [0], "scale": 2.0, "body": None}
    assert Normalization.from_dict(old).origin == "recording"
    for wrong in ("wrist", 3, None):
        with pytest.raises(TrellisError, match="origin"):
            Normalization.from_dict(old | {"origin": wrong})
    with pytest.raises(TrellisError, match="origin='wrist' is unknown"):
        Normalization.fit(recordings(0), ARM, origin="wrist")
