"""Coded numbers come back, and take about as little room as they can."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.deploy.format.encoding import decoded, encoded, unzigzag, zigzag
from trellis.errors import TrellisError

numbers = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2**31 - 1)), max_size=60)


@given(numbers, st.binary(max_size=9))
def test_there_and_back(values: list[int], before: bytes) -> None:
    data = before + encoded(np.array(values, np.int64)) + b"next"
    found, at = decoded(data, len(before), len(values))
    assert found.tolist() == values and data[at:] == b"next"


@given(st.lists(st.integers(-(2**30), 2**30 - 1)))
def test_zigzag(values: list[int]) -> None:
    coded = zigzag(np.array(values, np.int64))
    assert (coded >= 0).all() and unzigzag(coded).tolist() == values


def test_room() -> None:
    """Within a tenth of the entropy of geometric gaps, and one outlier costs a few bytes."""
    gaps = np.random.default_rng(0).geometric(0.1, 5000) - 1
    entropy = -(0.1 * np.log2(0.1) + 0.9 * np.log2(0.9)) / 0.1 * 5000 / 8
    assert len(encoded(gaps)) < 1.1 * entropy
    assert len(encoded(np.append(gaps, 1_000_000))) < len(encoded(gaps)) + 16


@given(numbers.filter(bool), st.data())
def test_damage_never_crashes(values: list[int], data: st.DataObject) -> None:
    good = bytearray(encoded(np.array(values, np.int64)))
    good[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found, _ = decoded(bytes(good), 0, len(values))
    except (TrellisError, ValueError, struct.error):
        return
    assert len(found) == len(values)


def test_too_short_is_told() -> None:
    with pytest.raises(TrellisError, match="too early"):
        decoded(encoded(np.arange(50))[:-3], 0, 50)
