"""Channels against their definition, one joint and one chunk at a time."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from trellis.errors import TrellisError
from trellis.skeleton import Channels, Layout
from trellis.skeleton.data.layouts import FPHA, LAYOUTS, SBU
from trellis.skeleton.data.preparation import cosine_transform, cosines

Floats = NDArray[np.float64]
KINDS = ("coordinates", "velocity", "bones")  # windows: test_windows.py
CHOICES = [kinds for count in (1, 2, 3) for kinds in permutations(KINDS, count)]

layouts = st.sampled_from(list(LAYOUTS.values()))
choices = st.sampled_from(CHOICES)


def recordings(layout: Layout, chunks: int, shape: tuple[int, ...] = (2,)) -> Floats:
    random = np.random.default_rng(chunks)
    return random.normal(size=(*shape, len(layout.joints), chunks * 3))


def literally(x: Floats, layout: Layout, kinds: tuple[str, ...]) -> Floats:
    """One recording, (joints, chunks * 3)."""
    chunks = x.shape[1] // 3
    rows = []
    for joint in range(len(layout.joints)):
        places = [x[joint, 3 * m : 3 * m + 3] for m in range(chunks)]
        parent = layout.parents[joint]
        row: dict[str, list[Floats]] = {
            "coordinates": places,
            "velocity": [places[m] - places[m - 1] for m in range(1, chunks)],
            "bones": [
                places[m] - (x[parent, 3 * m : 3 * m + 3] if parent != -1 else 0)
                for m in range(chunks)
            ],
        }
        rows.append(np.concatenate([part for kind in kinds for part in row[kind]]))
    return np.array(rows)


@given(layout=layouts, kinds=choices, chunks=st.integers(2, 32))
def test_as_defined(layout: Layout, kinds: tuple[str, ...], chunks: int) -> None:
    x = recordings(layout, chunks)
    before = x.copy()
    channels = Channels.of(layout, kinds)
    found = channels(x)
    assert found.shape == (2, len(layout.joints), channels.count(chunks))
    np.testing.assert_array_equal(found, np.array([literally(one, layout, kinds) for one in x]))
    np.testing.assert_array_equal(x, before)


@given(
    layout=layouts,
    kinds=choices,
    dtype=st.sampled_from([np.float32, np.float64]),
    shape=st.lists(st.integers(1, 3), max_size=3).map(tuple),
)
def test_tensors_and_arrays_of_any_shape_give_the_same(
    layout: Layout, kinds: tuple[str, ...], dtype: type, shape: tuple[int, ...]
) -> None:
    x: NDArray[Any] = recordings(layout, 5, shape).astype(dtype)
    channels = Channels.of(layout, kinds)
    array, tensor = channels(x), channels(torch.from_numpy(x))
    assert isinstance(array, np.ndarray) and isinstance(tensor, torch.Tensor)
    assert array.dtype == dtype and array.shape[:-1] == x.shape[:-1]
    np.testing.assert_array_equal(array, tensor.numpy())


def test_arrays_that_are_views_or_may_not_be_written() -> None:
    x = recordings(FPHA, 5)[::-1]
    x.flags.writeable = False
    channels = Channels.of(FPHA, KINDS)
    np.testing.assert_array_equal(channels(x)[0], literally(x[0], FPHA, KINDS))


def test_counts_at_the_paper_s_chunks() -> None:
    assert Channels.of(FPHA).count(32) == 96
    assert Channels.of(FPHA, ("coordinates", "velocity")).count(32) == 96 + 93
    assert Channels.of(FPHA, KINDS).count(32) == 96 + 93 + 96


def test_coordinates_alone_are_what_came() -> None:
    x = torch.zeros(2, 21, 96)
    assert Channels.of(FPHA)(x) is x


@given(layout=layouts, chunks=st.integers(1, 8))
def test_bones_alone_say_all_there_is(layout: Layout, chunks: int) -> None:
    """Added up from the root on they are the coordinates."""
    x = recordings(layout, chunks)
    bones = Channels.of(layout, ("bones",))(x)
    for joint, parent in enumerate(layout.parents):
        total, at = bones[:, joint].copy(), parent
        while at != -1:
            total, at = total + bones[:, at], layout.parents[at]
        np.testing.assert_allclose(total, x[:, joint], atol=1e-12)


@given(by=st.floats(-9, 9))
def test_velocity_and_bones_do_not_see_where_the_skeleton_is(by: float) -> None:
    x = recordings(SBU, 6)
    channels = Channels.of(SBU, ("velocity", "bones"))
    change = channels(x + by) - channels(x)
    tied = [joint for joint, parent in enumerate(SBU.parents) if parent != -1]
    np.testing.assert_allclose(change[:, tied], 0, atol=1e-12)
    np.testing.assert_allclose(change[..., : 3 * 5], 0, atol=1e-12)


def test_gradients_go_through() -> None:
    x = torch.randn(1, 21, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Channels.of(FPHA, KINDS), x)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("speed",), "channels 'speed' are unknown: they are coordinates, velocity, bones"),
        ((), "give one kind or more"),
        (("bones", "bones"), "each once"),
        ("bones", "give a list of kinds"),
    ],
)
def test_kinds_that_are_none(kinds: tuple[str, ...], said: str) -> None:
    with pytest.raises(TrellisError, match=said):
        Channels.of(FPHA, kinds)


@pytest.mark.parametrize("shape", [(96,), (20, 96), (2, 21, 95), (2, 21, 0)])
def test_recordings_that_do_not_fit(shape: tuple[int, ...]) -> None:
    with pytest.raises(TrellisError, match="channels are made of"):
        Channels.of(FPHA)(torch.zeros(shape))


def test_parents_that_are_not_there() -> None:
    with pytest.raises(TrellisError, match=r"\(5,\) are not among 1 joints"):
        Channels((5,))


@given(
    layout=layouts,
    kinds=st.sampled_from([("coordinates",), ("bones",), ("bones", "coordinates")]),
    chunks=st.integers(1, 9),
)
def test_waves_of_what_the_joints_do(layout: Layout, kinds: tuple[str, ...], chunks: int) -> None:
    """Every channel is the sum over chunks, one after another, with a wave's weights."""
    x = recordings(layout, chunks)
    found = Channels.of(layout, kinds, "cosines")(x).reshape(2, len(layout.joints), -1, chunks, 3)
    plain = Channels.of(layout, kinds)(x).reshape(found.shape)
    for k in range(chunks):
        total = np.zeros_like(found[..., 0, :])
        for m in range(chunks):
            wave = np.cos(np.pi * (2 * m + 1) * k / (2 * chunks))
            total += plain[..., m, :] * wave * np.sqrt((1 if k == 0 else 2) / chunks)
        np.testing.assert_allclose(found[..., k, :], total, atol=1e-12)


@given(chunks=st.integers(1, 40))
def test_waves_lose_nothing(chunks: int) -> None:
    x = torch.from_numpy(recordings(FPHA, chunks))
    waves = cosine_transform(x).reshape(2, 21, chunks, 3)
    back = np.einsum("km,njkc->njmc", cosines(chunks), waves.numpy())
    np.testing.assert_allclose(back.reshape(x.shape), x.numpy(), atol=1e-12)


def test_bases_that_are_none() -> None:
    with pytest.raises(TrellisError, match="basis='sines' is unknown: it is chunks or cosines"):
        Channels.of(FPHA, basis="sines")
    with pytest.raises(TrellisError, match="channels coordinates, velocity in the basis 'cosines'"):
        Channels.of(FPHA, ("coordinates", "velocity"), "cosines")


def test_waves_are_not_rounded_as_products_are() -> None:
    """Nor is what comes out of another type, in whatever context."""
    x = torch.randn(2, 21, 96)
    wanted = cosine_transform(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(cosine_transform(x), wanted)
    with torch.inference_mode():
        cosine_transform(torch.randn(2, 21, 15))  # made here first, and used where gradients are
    y = torch.randn(2, 21, 15, requires_grad=True)
    cosine_transform(y).sum().backward()
    assert y.grad is not None
