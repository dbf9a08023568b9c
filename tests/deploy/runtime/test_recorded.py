"""Recordings as inputs, in C: what numpy makes of them in double precision, to float rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.deploy.tools import tool
from trellis.deploy.format.encoding import checked_meta
from trellis.deploy.recording import BASES, Recording
from trellis.deploy.runtime import recorded
from trellis.errors import TrellisError
from trellis.skeleton import Normalization, chunked
from trellis.skeleton.data.preparation import BASES as OF_RECOGNISERS
from trellis.skeleton.data.preparation import cosines

JOINTS = ("hip", "knee", "foot", "hand")
ROOTS, SCALE, LENGTH = (1, 3), 0.37, 2.5
Array = NDArray[np.float32]
Body = tuple[int, ...] | None
Bones = tuple[tuple[int, int], ...]
BONES: Bones = ((0, 1), (1, 2), (0, 3))


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    tool("gcc", "clang", "cc")


def moving(frames: int, far: float) -> Array:
    rng = np.random.default_rng(frames)
    return (far + rng.normal(size=(frames, len(JOINTS), 3))).astype(np.float32)


def made(x: Array, chunks: int, basis: str, body: Body = None, bones: Bones = ()) -> Array:
    notes = Recording(JOINTS, chunks, ROOTS, SCALE, basis, body, bones, LENGTH).notes()
    return recorded(x, notes)


def wanted(x: Array, chunks: int, body: Body = None, bones: Bones = ()) -> Array:
    return Normalization(ROOTS, SCALE, body, bones, LENGTH)(chunked([x], chunks))[0]


def exactly(x: Array, chunks: int) -> NDArray[np.float64]:
    """By definition, in double precision: chunks are means of their frames, or lie between two."""
    frames, times = x.astype(np.float64), np.arange(len(x))
    means = np.empty((chunks, *x.shape[1:]))
    for chunk in range(chunks):
        own = times * chunks // len(x) == chunk
        at = min((chunk + 0.5) * len(x) / chunks, len(x) - 1)
        before, after = frames[int(at)], frames[min(int(at) + 1, len(x) - 1)]
        means[chunk] = frames[own].mean(0) if own.any() else before + (at % 1) * (after - before)
    origin = means[:, list(ROOTS)].mean(axis=(0, 1))
    return ((means - origin) / SCALE).transpose(1, 0, 2).reshape(x.shape[1], -1)


def rounding(x: Array) -> float:
    """Of one place, after normalisation."""
    return float(np.spacing(np.abs(x).max()) / SCALE)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 70), st.integers(1, 300), st.sampled_from([0.0, 10.0, -1e3, 1e6]),
)  # fmt: skip
@example(27, 245, 10.0)
def test_chunks(chunks: int, frames: int, far: float) -> None:
    """A place is rounded once on its way to a chunk; the origin may then be rounded otherwise. In
    Python, too: what is left, and what it is divided by, are rounded in turn, here and there."""
    x = moving(frames, far)
    found, right = made(x, chunks, "chunks"), wanted(x, chunks)
    assert np.abs(found - exactly(x, chunks)).max() <= 2.01 * rounding(x)
    in_turn = 4 * np.finfo(np.float32).eps * np.abs(right)
    assert (np.abs(found - right) <= 2 * rounding(x) + in_turn).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 300), st.sampled_from([0.0, 10.0, 1e3]))
def test_frames_relative_to_their_own_roots(chunks: int, frames: int, far: float) -> None:
    """By definition: first every frame loses the mean of its roots, then frames are averaged."""
    x = moving(frames, far)
    own = x.astype(np.float64) - x[:, list(ROOTS)].mean(axis=1, keepdims=True, dtype=np.float64)
    right = chunked([own.astype(np.float32)], chunks)[0] / np.float32(SCALE)
    python = Normalization(ROOTS, SCALE, origin="frame")(chunked([x], chunks))[0]
    notes = Recording(JOINTS, chunks, ROOTS, SCALE, origin="frame").notes()
    bound = 3 * rounding(x) + 1e-6 * np.abs(right).max()
    assert np.abs(python - right).max() <= bound
    assert np.abs(recorded(x, notes) - right).max() <= bound


def test_unknown_origins_are_refused() -> None:
    notes = Recording(JOINTS, 4, ROOTS, SCALE, origin="frame").notes()
    meta = {"values": "fp32", "inputs": [[4, 12]], "outputs": [[3]], "recording": notes}
    assert checked_meta(meta)["recording"]["origin"] == "frame"
    assert "origin" not in Recording(JOINTS, 4, ROOTS, SCALE).notes()  # as files were before
    with pytest.raises(TrellisError, match="unknown origin='wrist'"):
        Recording(JOINTS, 4, ROOTS, SCALE, origin="wrist")
    for wrong in ("wrist", None, 1):
        with pytest.raises(TrellisError, match="'recording'"):
            checked_meta(meta | {"recording": notes | {"origin": wrong}})


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 140), st.integers(1, 300))
@example(138, 141)
@example(130, 107)
def test_cosines(chunks: int, frames: int) -> None:
    """Places are rounded as above, however small their mean is, and then summed."""
    x = moving(frames, 0.0)
    places = wanted(x, chunks).reshape(len(JOINTS), chunks, 3).astype(np.float64)
    waves = np.einsum("km,jmx->jkx", cosines(chunks), places).reshape(len(JOINTS), -1)
    found = made(x, chunks, "cosines")
    sums = 2e-6 * max(np.abs(waves).max(), np.abs(places).max())
    assert np.abs(found - waves).max() <= sums + 2.01 * rounding(x)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.integers(1, 300), st.permutations(range(4)), st.floats(-50, 50))
def test_turned(chunks: int, frames: int, body: list[int], far: float) -> None:
    x = moving(frames, far)
    x[:, 1:] += 9 * np.eye(3, dtype=np.float32)  # apart, so that axes are sure
    right = wanted(x, chunks, tuple(body))
    found = made(x, chunks, "chunks", tuple(body))
    assert np.abs(right - wanted(x, chunks)).max() > 0.1
    assert np.abs(found - right).max() <= 1e-5 * np.abs(right).max()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 70), st.integers(1, 300), st.sampled_from([None, (0, 1, 2, 3)]),
    st.sampled_from([1.0, 50.0, 1e6]), st.sampled_from([0.0, 30.0]), st.sampled_from(BASES),
)  # fmt: skip
def test_of_one_size(
    chunks: int, frames: int, body: Body, size: float, far: float, basis: str
) -> None:
    x = moving(frames, 0.0)
    x[:, 1:] += 9 * np.eye(3, dtype=np.float32)
    x = ((x + far) * size).astype(np.float32)
    right, plain = wanted(x, chunks, body, BONES), wanted(x, chunks, body)
    assert np.abs(right - plain).max() > 0.1
    if basis == "cosines":
        places = right.reshape(len(JOINTS), chunks, 3)
        right = np.einsum("km,jmx->jkx", cosines(chunks), places).reshape(len(JOINTS), -1)
    found = made(x, chunks, basis, body, BONES)
    assert np.abs(found - right).max() <= 2e-5 * np.abs(right).max()


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.parametrize("share, lost", [(0.0, True), (1e-6, True), (0.049, True), (0.051, False)])
def test_a_skeleton_that_was_lost_stays_as_large_as_it_is(
    share: float, lost: bool, basis: str
) -> None:
    """Bones of such a share of the usual length."""
    x = np.zeros((9, 4, 3), np.float32)
    x[:, [1, 3], 0] = share * LENGTH
    x[:, 2, 0] = 2 * share * LENGTH
    right, found = wanted(x, 4, None, BONES), made(x, 4, "chunks", None, BONES)
    np.testing.assert_allclose(found, right, rtol=1e-5)
    assert (np.abs(made(x, 4, basis) - made(x, 4, basis, None, BONES)).max() > 0.1) == (not lost)


@pytest.mark.parametrize("body", [None, (0, 1, 2, 3)])
@pytest.mark.parametrize("far", [1e20, 1e30])
def test_lengths_beyond_all_numbers_are_seen(far: float, body: Body) -> None:
    """Squares of them are infinite: what comes of it must not pass for a recording."""
    x = np.float32(far) * moving(9, 0.0)
    for bones in (BONES, BONES[::-1]):
        assert not np.isfinite(made(x, 4, "chunks", body, bones)).all()
    if body:
        assert not np.isfinite(made(x, 4, "chunks", body)).all()


@pytest.mark.parametrize("other", [0, 1, 2])
def test_a_body_that_points_nowhere_is_not_turned(other: int) -> None:
    x = moving(9, 0.0)
    x[:, 3] = x[:, 0]  # from there to there, up or across; or all four in a line
    if other == 2:
        x[:] = x[:, :1] * np.arange(1, 5, dtype=np.float32)[:, None]
    body = [(0, 3, 1, 2), (1, 2, 0, 3), (0, 1, 2, 3)][other]
    for basis in BASES:
        np.testing.assert_array_equal(made(x, 4, basis, body), made(x, 4, basis))
    np.testing.assert_array_equal(wanted(x, 4, body), wanted(x, 4))


LINE = np.array([0.36, -0.48, 0.8])
ASIDE = np.array([0.8, 0.6, 0.0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("longer", [0.01, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize("aside, turns", [(0.0, False), (3e-5, False), (3e-4, True), (0.1, True)])
def test_python_and_c_agree_where_a_body_still_points_somewhere(
    seed: int, longer: float, aside: float, turns: bool
) -> None:
    """Up and across along one line, and a little aside, measured by the longer of the two."""
    rng = np.random.default_rng(seed)
    places = np.outer([0, 1, 0, longer], LINE)
    places[3] += aside * max(1.0, longer) * ASIDE
    x = (places + rng.normal(size=(9, 1, 3))).astype(np.float32)
    body = (0, 1, 2, 3)
    found, right = made(x, 4, "chunks", body), wanted(x, 4, body)
    assert (np.abs(right - wanted(x, 4)).max() > 0.1) == turns
    assert np.abs(found - right).max() <= 2e-3 * np.abs(right).max()  # of rounding, beside 3e-4


def test_a_body_of_no_height_is_not_turned() -> None:
    """Its top at its bottom, but for rounding: up could point anywhere."""
    x = moving(9, 0.0)
    x[:, 3] = 1e4 * ASIDE
    x[:, 1] = x[:, 0] + 0.01 * LINE
    np.testing.assert_array_equal(made(x, 4, "chunks", (0, 1, 2, 3)), made(x, 4, "chunks"))
    np.testing.assert_array_equal(wanted(x, 4, (0, 1, 2, 3)), wanted(x, 4))


@pytest.mark.parametrize("chunks", [1, 32])
@pytest.mark.parametrize("far", [0.0, 1e3, -1e6])
def test_a_hundred_thousand_frames(far: float, chunks: int) -> None:
    """Where plain sums in single precision are far off."""
    x = moving(100_000, far)
    right = wanted(x, chunks)
    assert np.abs(made(x, chunks, "chunks") - right).max() <= 1.01 * rounding(x)
    plain = np.cumsum(x, axis=0, dtype=np.float32)[-1] / np.float32(len(x))
    exact = x.mean(axis=0, dtype=np.float64)
    assert np.abs(plain - exact).max() > 2 * np.spacing(np.float32(np.abs(exact).max()))


def test_what_is_not_finite_stays_so() -> None:
    for value in (np.nan, np.inf, -np.inf):
        for chunks in (2, 5, 40):
            x = moving(20, 0.0)
            x[7, 2, 1] = value
            for basis in BASES:
                assert not np.isfinite(made(x, chunks, basis)).all()


def test_bases_are_those_of_recognisers() -> None:
    """Two lists, as neither room imports the other."""
    assert BASES == OF_RECOGNISERS


def test_other_bases_are_refused() -> None:
    with pytest.raises(TrellisError, match=r"unknown basis='waves'; known: 'chunks', 'cosines'"):
        Recording(JOINTS, 4, ROOTS, SCALE, "waves")
    notes = Recording(JOINTS, 4, ROOTS, SCALE, "cosines").notes()
    meta = {"values": "fp32", "inputs": [[4, 12]], "outputs": [[3]], "recording": notes}
    assert checked_meta(meta)["recording"]["basis"] == "cosines"
    assert "basis" not in Recording(JOINTS, 4, ROOTS, SCALE).notes()  # as files were before
    for body in ([0, 1, 2], [0, 1, 2, 4], [0, 1, 2, -1], "0123", [0, 1, 2, True]):
        with pytest.raises(TrellisError, match="'recording'"):
            checked_meta(meta | {"recording": notes | {"body": body}})
    for bones in ([], [[0]], [[0, 4]], [[0, 1, 2]], [0, 1], "01", [[0, -1]], [[0, True]]):
        with pytest.raises(TrellisError, match="'recording'"):
            checked_meta(meta | {"recording": notes | {"bones": bones, "length": 1.0}})
    assert checked_meta(meta | {"recording": notes | {"bones": [[0, 1]], "length": 2}})
    for length in (None, 0.0, -1.0, float("nan"), "1"):
        with pytest.raises(TrellisError, match="'recording'"):
            checked_meta(meta | {"recording": notes | {"bones": [[0, 1]], "length": length}})
    with pytest.raises(TrellisError, match="'recording'"):
        checked_meta(meta | {"recording": notes | {"bones": [[0, 1]]}})
    for wrong in ("waves", None, 3, ["cosines"]):
        with pytest.raises(TrellisError, match="'recording'"):
            checked_meta(meta | {"recording": notes | {"basis": wrong}})
