"""Augmenting chunks against augmenting frames and chunking them, on made-up hands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.skeleton.augmentation.literal import (
    ALL,
    CPU,
    NOTHING,
    augmented,
    literally,
    moment,
    timing,
)  # fmt: skip
from trellis.skeleton import Layout, Normalization, chunked
from trellis.skeleton.data.augmentation import Draws
from trellis.skeleton.data.hands import hands45

Hands = tuple[Layout, list[NDArray[np.float32]]]


@pytest.fixture(scope="module")
def some_hands() -> Hands:
    data = hands45()
    return data.layout, [data.sequences[i] for i in range(0, len(data), 12)]


def test_turns_and_sizes_before_chunking_are_the_same(some_hands: Hands) -> None:
    layout, sequences = some_hands
    sequences = sequences[::6]
    x = chunked(sequences)
    normalization = Normalization.fit(x, layout)
    asked = replace(ALL, warp=0, crop=1, noise=0, mirror=0)
    out = augmented(asked, torch.from_numpy(normalization(x)), (3,), 8, layout)[0]
    drawn = Draws([3], CPU, torch.float32)(8, len(x))[0].double().numpy()
    before = [
        literally(asked, drawn[i], frames.transpose(1, 0, 2).reshape(21, -1).astype(float), layout)
        .reshape(21, -1, 3)
        .transpose(1, 0, 2)
        for i, frames in enumerate(sequences)
    ]
    np.testing.assert_allclose(
        out, normalization(chunked([f.astype(np.float32) for f in before])), atol=2e-4
    )


@pytest.mark.parametrize(
    ("warp", "crop", "most", "part"), [(0.3, 1.0, 0.035, 0.2), (0.0, 0.8, 0.035, 0.2),
                                       (0.3, 0.6, 0.045, 0.15)]
)  # fmt: skip
def test_time_on_chunks_is_near_time_on_frames(
    some_hands: Hands, warp: float, crop: float, most: float, part: float
) -> None:
    """In units of the spread, of which the noise takes a tenth by default: ``most``, and ``part``
    of what the move changes. Frames too are interpolated linearly, then chunked and normalized.
    """
    layout, sequences = some_hands
    x = chunked(sequences)
    normalization = Normalization.fit(x, layout)
    asked = replace(NOTHING, warp=warp, crop=crop)
    out = augmented(asked, torch.from_numpy(normalization(x)), (3,), 8, layout)[0].numpy()
    drawn = Draws([3], CPU, torch.float32)(8, len(x))[0].double().numpy()
    retimed = [
        frames_retimed(frames, timing(asked, drawn[i])) for i, frames in enumerate(sequences)
    ]
    expected = normalization(chunked(retimed))

    def spread(difference: NDArray[np.float32]) -> float:
        return float(np.sqrt(np.square(difference).mean()))

    error, change = spread(out - expected), spread(expected - normalization(x))
    assert error < most and error < part * change


def frames_retimed(
    frames: NDArray[np.float32], timed: tuple[float, float, float, float], chunks: int = 32
) -> NDArray[np.float32]:
    """As many frames, taken from where the warp says; u = 0 and 1 are the middles of the first
    and the last chunk, and t = 0 and 1 the beginning and the end of the recording."""
    count = len(frames)
    t = (np.arange(count) + 0.5) / count
    old = (0.5 + (chunks - 1) * moment((chunks * t - 0.5) / (chunks - 1), *timed)) / chunks
    place = np.clip(old * count - 0.5, 0, count - 1)
    before = np.floor(place).astype(int)
    after = np.minimum(before + 1, count - 1)
    weight = (place - before)[:, None, None]
    return ((1 - weight) * frames[before] + weight * frames[after]).astype(np.float32)
