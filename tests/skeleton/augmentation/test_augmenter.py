"""Augmentation against a plain loop over recordings, and what each of its parts leaves alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.skeleton.augmentation.literal import (
    ALL,
    CPU,
    NOTHING,
    TORSO,
    augmented,
    literally,
    points,
    recordings,
)  # fmt: skip
from trellis.errors import TrellisError
from trellis.skeleton import Augmentation, Augmenter, Layout
from trellis.skeleton.data.augmentation import COUNT, Draws, Times
from trellis.skeleton.data.layouts import NW_UCLA, SBU
from trellis.training.batches import Noise

strengths = st.builds(
    Augmentation,
    rotation=st.tuples(*[st.sampled_from([0.0, 20.0, 180.0])] * 3),
    scale=st.sampled_from([0.0, 0.2, 0.9]),
    warp=st.sampled_from([0.0, 0.3, 0.99]),
    crop=st.sampled_from([1.0, 0.8, 0.1]),
    noise=st.just(0.0),
    mirror=st.sampled_from([0.0, 0.5, 1.0]),
    left_right=st.integers(0, 2),
)


@given(
    asked=strengths,
    seeds=st.lists(st.integers(0, 2**40), min_size=1, max_size=3, unique=True),
    step=st.integers(0, 10**6),
    batch=st.integers(1, 5),
    chunks=st.sampled_from([1, 2, 3, 8, 32]),
)
def test_as_defined(
    asked: Augmentation, seeds: list[int], step: int, batch: int, chunks: int
) -> None:
    x = recordings(batch, chunks=chunks, dtype=torch.float64)
    before = x.clone()
    out = augmented(asked, x, seeds, step)
    drawn = Draws(seeds, CPU, torch.float64)(step, batch).numpy()
    for i in range(len(seeds)):
        for j in range(batch):
            expected = literally(asked, drawn[i, j], x[j].numpy(), TORSO)
            np.testing.assert_allclose(out[i, j], expected, atol=1e-9)
    assert torch.equal(x, before)


@pytest.mark.parametrize("layout", [NW_UCLA, SBU], ids=lambda layout: layout.name)
def test_single_precision_is_close_to_double(layout: Layout) -> None:
    """With numbers drawn in single precision, on skeletons of real data sets."""
    x = recordings(20, layout, chunks=32)
    asked = replace(ALL, noise=0)
    out = augmented(asked, x, (4,), 9, layout)[0]
    drawn = Draws([4], CPU, torch.float32)(9, 20)[0].double().numpy()
    assert out.dtype == torch.float32
    for j in range(20):
        expected = literally(asked, drawn[j], x[j].double().numpy(), layout)
        np.testing.assert_allclose(out[j], expected, atol=1e-4)


# What does not matter.


@given(dtype=st.sampled_from([torch.float32, torch.float64]), chunks=st.integers(1, 40))
def test_no_strength_changes_nothing(dtype: torch.dtype, chunks: int) -> None:
    x = recordings(chunks=chunks, dtype=dtype)
    out = augmented(NOTHING, x, seeds=(1, 2))
    assert torch.equal(out, x.expand_as(out)) and out.dtype == dtype


@pytest.mark.parametrize("chance", [0.0, 1e-12])
def test_moves_of_no_size_change_nothing_to_the_bit(chance: float) -> None:
    """Through all of the arithmetic, which the probability of a mirror switches on."""
    x = recordings(chunks=32)
    out = augmented(replace(NOTHING, mirror=chance), x, seeds=(1, 2))
    assert torch.equal(out, x.expand_as(out))


def test_noise_alone_is_what_plain_noise_gives() -> None:
    x = recordings()
    expected = torch.empty(3, *x.shape)
    Noise([5, 6, 7], 0.1, CPU).onto(expected, x, 4)
    assert torch.equal(augmented(replace(NOTHING, noise=0.1), x, (5, 6, 7), 4), expected)


@given(
    others=st.lists(st.integers(0, 9), max_size=4),
    place=st.integers(0, 4),
    step=st.integers(0, 10**9),
)
def test_the_stack_does_not_matter(others: list[int], place: int, step: int) -> None:
    x = recordings()
    place = min(place, len(others))
    stacked = augmented(ALL, x, [*others[:place], 77, *others[place:]], step)
    torch.testing.assert_close(stacked[place], augmented(ALL, x, [77], step)[0], rtol=0, atol=1e-6)


@given(ahead=st.integers(2, 7), steps=st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_planning_ahead_does_not_matter(ahead: int, steps: list[int]) -> None:
    """In any order of steps, as after an interruption, and with batches of other sizes between."""
    far = Augmenter([3, 4], ALL, TORSO, 7, CPU, ahead=ahead)
    for i, step in enumerate(steps):
        x = recordings(5 + i % 2)
        out = torch.empty(2, *x.shape)
        far.onto(out, x, step)
        torch.testing.assert_close(out, augmented(ALL, x, (3, 4), step), rtol=0, atol=1e-6)


def test_seeds_steps_and_recordings_differ() -> None:
    x = recordings(1).expand(2, -1, -1).contiguous()  # the same recording twice
    found = torch.cat([augmented(replace(ALL, noise=0), x, (1, 2), step) for step in (0, 1)])
    variants = found.flatten(0, 1).flatten(1)
    assert (torch.cdist(variants, variants) + torch.eye(8) > 0.1).all()


def test_the_strength_of_one_kind_leaves_the_others_as_they_are() -> None:
    x = recordings(dtype=torch.float64)
    scaled = augmented(replace(NOTHING, scale=0.3), x)
    turned_too = augmented(replace(NOTHING, scale=0.3, rotation=(50, 50, 50)), x)
    torch.testing.assert_close(points(scaled).norm(dim=-1), points(turned_too).norm(dim=-1))


# What each kind does.


@given(step=st.integers(0, 999), degrees=st.tuples(*[st.floats(0, 180)] * 3))
def test_rotation_keeps_distances_and_handedness(
    step: int, degrees: tuple[float, float, float]
) -> None:
    x = recordings(dtype=torch.float64)
    asked = replace(NOTHING, rotation=degrees)
    out = augmented(asked, x, step=step)[0]
    torch.testing.assert_close(distances(out), distances(x))
    torch.testing.assert_close(volume(out), volume(x))
    torch.testing.assert_close(points(out).norm(dim=-1), points(x).norm(dim=-1))  # about the origin


@given(step=st.integers(0, 999), scale=st.floats(0, 0.99))
def test_scale_multiplies_all_distances_of_a_recording_alike(step: int, scale: float) -> None:
    x = recordings(dtype=torch.float64)
    out = augmented(replace(NOTHING, scale=scale, rotation=(9, 9, 9)), x, step=step)[0]
    factors = (distances(out) / distances(x)).flatten(1)
    torch.testing.assert_close(factors, factors[:, :1].expand_as(factors))
    assert (factors >= 1 - scale - 1e-9).all() and (factors <= 1 + scale + 1e-9).all()


@given(axis=st.integers(0, 2), step=st.integers(0, 99))
def test_the_mirror_image_mirrored_is_the_original(axis: int, step: int) -> None:
    x = recordings()
    always = replace(NOTHING, mirror=1, left_right=axis)
    once = augmented(always, x, step=step)[0]
    assert torch.equal(augmented(always, once)[0], x)
    torch.testing.assert_close(volume(once), -volume(x[:, [0, 3, 2, 1]]))
    # The left hand's track is the right one's, on the other side.
    expected = points(x)[:, :, 3].clone()
    expected[..., axis] *= -1
    torch.testing.assert_close(points(once)[:, :, 1], expected)


@example(warp=0.75, chunks=51, shares=(1.0, 0.0))
@given(
    warp=st.floats(0, 0.999),
    chunks=st.integers(2, 64),
    shares=st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
)
def test_time_runs_from_the_first_chunk_to_the_last_and_never_back(
    warp: float, chunks: int, shares: tuple[float, float]
) -> None:
    a = warp * shares[0]
    b = (warp - abs(a)) * shares[1]
    times = Times(chunks, CPU, torch.float64)
    one, none = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    places = times(torch.tensor([a, b], dtype=torch.float64), one, none)
    assert places[0] == 0 and places[-1] == chunks - 1
    speed = places.diff()
    assert (speed >= 1 - warp - 1e-9).all() and (speed <= 1 + warp + 1e-9).all()


@given(step=st.integers(0, 999), warp=st.floats(0, 0.999), crop=st.floats(0.05, 1))
def test_what_rises_still_rises_and_what_is_still_stays(
    step: int, warp: float, crop: float
) -> None:
    rise = recordings(chunks=16, dtype=torch.float64).unflatten(-1, (-1, 3)).abs().cumsum(-2)
    asked = replace(NOTHING, warp=warp, crop=crop)
    out = augmented(asked, rise.flatten(-2), step=step)[0].unflatten(-1, (-1, 3))
    assert (out.diff(dim=-2) > 0).all()
    pose = rise[:, :, :1].expand_as(rise).flatten(-2)
    torch.testing.assert_close(augmented(asked, pose, step=step)[0], pose)


@given(step=st.integers(0, 999), warp=st.floats(0, 0.999))
def test_warp_leaves_the_first_and_last_moment_but_for_one_shift(step: int, warp: float) -> None:
    x = recordings(dtype=torch.float64)
    change = points(augmented(replace(NOTHING, warp=warp), x, step=step)[0] - x)
    shift = change[:, :1, :1].expand(-1, 1, 4, -1)
    torch.testing.assert_close(change[:, :1], shift)
    torch.testing.assert_close(change[:, -1:], shift)


@given(step=st.integers(0, 999), layout=st.sampled_from([TORSO, SBU]))
def test_the_root_stays_at_the_origin_on_average(step: int, layout: Layout) -> None:
    x = recordings(layout=layout, dtype=torch.float64)
    roots = list(layout.roots)
    x = (points(x) - points(x)[:, :, roots].mean((1, 2), keepdim=True)).transpose(1, 2).flatten(2)
    asked = replace(ALL, noise=0, mirror=0)
    found = points(augmented(asked, x, step=step, layout=layout)[0])[:, :, roots].mean((1, 2))
    torch.testing.assert_close(found, torch.zeros_like(found))


def distances(x: torch.Tensor) -> torch.Tensor:
    """Between joints at each chunk, each pair once."""
    found = torch.cdist(points(x), points(x), compute_mode="donot_use_mm_for_euclid_dist")
    one, other = torch.triu_indices(found.shape[-1], found.shape[-1], 1)
    return found[..., one, other]


def volume(x: torch.Tensor) -> torch.Tensor:
    """Of the first three joints from the fourth: its sign is the handedness."""
    where = points(x)
    return torch.linalg.det(where[..., :3, :] - where[..., 3:4, :])


# What is drawn.


def test_the_numbers_drawn_are_even_and_independent() -> None:
    drawn = Draws(range(20), CPU, torch.float64)(3, 2000).flatten(0, 1)
    assert drawn.min() >= -1 and drawn.max() < 1
    assert (drawn.mean(0).abs() < 0.01).all()
    torch.testing.assert_close(
        torch.cov(drawn.T), torch.eye(COUNT, dtype=torch.float64) / 3, atol=0.01, rtol=0
    )


def test_angles_sizes_and_mirrors_are_as_often_as_asked() -> None:
    """Seen in the result: the place of one point, with one kind switched on at a time."""
    x = torch.zeros(5000, 4, 3)
    x[..., 0] = 1
    about_z = augmented(replace(NOTHING, rotation=(0, 0, 40)), x, (1, 2))[..., 0, :].reshape(-1, 3)
    angle = torch.rad2deg(torch.atan2(about_z[:, 1], about_z[:, 0]))
    assert angle.abs().max() <= 40.001
    assert angle.mean().abs() < 1 and angle.std() == pytest.approx(40 / math.sqrt(3), rel=0.03)
    size = augmented(replace(NOTHING, scale=0.2), x)[..., 0, 0]
    assert size.mean() == pytest.approx(1, abs=0.01)
    assert size.std() == pytest.approx(0.2 / math.sqrt(3), rel=0.03)
    mirrored = augmented(replace(NOTHING, mirror=0.3), x)[..., 0, 0] < 0
    assert mirrored.double().mean() == pytest.approx(0.3, abs=0.02)
    noise = augmented(replace(NOTHING, noise=0.1, mirror=0.5), x) - augmented(
        replace(NOTHING, mirror=0.5), x
    )
    assert noise.mean().abs() < 0.002 and noise.std() == pytest.approx(0.1, rel=0.02)


def test_shares_kept_reach_from_the_least_to_all() -> None:
    ramp = torch.arange(33.0).repeat_interleave(3).expand(4000, 4, -1).contiguous()
    out = augmented(replace(NOTHING, crop=0.6), ramp)[0, :, 0, ::3]
    share = (out[:, -1] - out[:, 0]) / 32
    assert 0.6 <= share.min() < 0.605 and 0.995 < share.max() <= 1
    assert share.mean() == pytest.approx(0.8, abs=0.01)


def test_recordings_and_tensors_that_do_not_fit() -> None:
    augmenter = Augmenter([0, 1], ALL, TORSO, 7, CPU)
    x = recordings()
    with pytest.raises(TrellisError, match=r"shape \(6, 4, 20\): augmentation is for"):
        augmenter.onto(torch.empty(2, 6, 4, 20), x[..., :20], 0)
    with pytest.raises(TrellisError, match=r"for 2 networks do not go into .* \(1, 6, 4, 21\)"):
        augmenter.onto(torch.empty(1, *x.shape), x, 0)
    with pytest.raises(TrellisError, match=r"set up for torch.float32"):
        augmenter.onto(torch.empty(2, *x.shape, dtype=torch.float64), x.double(), 0)
