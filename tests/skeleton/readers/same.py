"""What was read against what was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.skeleton import Skeletons


def assert_same(data: Skeletons, made: Mapping[str, NDArray[Any]]) -> None:
    """The same recordings under the same names, to float32."""
    assert sorted(data.names) == sorted(made)
    for name, frames in zip(data.names, data.sequences, strict=True):
        assert frames.dtype == np.float32
        np.testing.assert_array_equal(frames, made[name].astype(np.float32))


def named(data: Skeletons, which: NDArray[np.int64]) -> set[str]:
    return {data.names[index] for index in which}
