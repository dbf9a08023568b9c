"""Chunking against its definition, one frame and one chunk at a time."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trellis.errors import TrellisError
from trellis.skeleton import chunked

Array = NDArray[np.float32]


def literally(frames: Array, chunks: int) -> NDArray[np.float64]:
    """(frames, joints, 3) -> (joints, chunks * 3), in exact fractions of time."""
    count = len(frames)
    signal = np.zeros((frames.shape[1], chunks, 3))
    for chunk in range(chunks):
        mine = [frames[t] for t in range(count) if t * chunks // count == chunk]
        if mine:
            signal[:, chunk] = np.mean(np.array(mine, np.float64), axis=0)
            continue
        centre = min(Fraction(2 * chunk + 1, 2) * count / chunks, Fraction(count - 1))
        before = int(centre)
        after = min(before + 1, count - 1)
        weight = float(centre - before)
        signal[:, chunk] = (1 - weight) * frames[before] + weight * frames[after]
    return signal.reshape(frames.shape[1], chunks * 3)


def sequences(lengths: list[int], joints: int = 2, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=(n, joints, 3)).astype(np.float32) for n in lengths]


@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5),
    chunks=st.integers(1, 40),
    joints=st.integers(1, 3),
    seed=st.integers(0, 9),
)
@example(lengths=[1], chunks=32, joints=1, seed=0)
@example(lengths=[31, 32, 33], chunks=32, joints=1, seed=0)
@example(lengths=[1151, 7], chunks=32, joints=1, seed=0)
def test_as_defined(lengths: list[int], chunks: int, joints: int, seed: int) -> None:
    given_ = sequences(lengths, joints, seed)
    found = chunked(given_, chunks)
    assert found.shape == (len(lengths), joints, chunks * 3) and found.dtype == np.float32
    expected = np.array([literally(frames, chunks) for frames in given_])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@given(lengths=st.lists(st.integers(1, 50), min_size=2, max_size=4), chunks=st.integers(1, 40))
def test_all_at_once_is_one_at_a_time(lengths: list[int], chunks: int) -> None:
    many = sequences(lengths)
    alone = np.concatenate([chunked([frames], chunks) for frames in many])
    np.testing.assert_array_equal(chunked(many, chunks), alone)


@given(length=st.integers(1, 40), times=st.integers(1, 3))
def test_as_many_chunks_as_frames_changes_nothing(length: int, times: int) -> None:
    [frames] = sequences([length])
    found = chunked([frames], length)[0].reshape(2, length, 3).transpose(1, 0, 2)
    np.testing.assert_array_equal(found, frames)
    # And frames held for a while are averages of themselves.
    held = chunked([np.repeat(frames, times, axis=0)], length)
    np.testing.assert_allclose(held, chunked([frames], length), rtol=1e-6)


@given(length=st.integers(1, 60), chunks=st.integers(1, 40))
def test_a_still_skeleton_stays_still(length: int, chunks: int) -> None:
    pose = sequences([1])[0]
    found = chunked([np.repeat(pose, length, axis=0)], chunks).reshape(2, chunks, 3)
    np.testing.assert_allclose(found, np.repeat(pose.transpose(1, 0, 2), chunks, 1), rtol=1e-6)


@given(length=st.integers(1, 60), chunks=st.integers(1, 40))
def test_averages_stay_within_what_was_recorded(length: int, chunks: int) -> None:
    [frames] = sequences([length])
    found = chunked([frames], chunks)[0].reshape(2, chunks, 3)
    assert (found <= frames.max(axis=0)[:, None] + 1e-6).all()
    assert (found >= frames.min(axis=0)[:, None] - 1e-6).all()


@pytest.mark.parametrize("chunks", [0, -1, 2.0, True, "32"])
def test_counts_that_are_none(chunks: int) -> None:
    with pytest.raises(TrellisError, match="is not a whole number from 1 up"):
        chunked(sequences([3]), chunks)


def test_nothing_to_chunk() -> None:
    with pytest.raises(TrellisError, match="no recordings"):
        chunked([])
    with pytest.raises(TrellisError, match="recording 1 has no frames"):
        chunked([*sequences([3]), np.zeros((0, 2, 3), np.float32)])


def test_as_many_frames_as_fpha_has_take_no_two_seconds() -> None:
    many = [np.zeros((length, 21, 3), np.float32) for length in [89, 90] * 589]
    assert sum(map(len, many)) > 105_400
    began = time.process_time()
    chunked(many)
    assert time.process_time() - began < 2
