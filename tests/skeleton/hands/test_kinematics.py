"""A hand that is moved keeps its bones, and bends the way hands bend."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.skeleton.data.hands.hand import (
    ANGLES,
    FIST,
    FLAT,
    LATERAL,
    LAYOUT,
    LIMITS,
    OPEN,
    PINCH,
    TRIPOD,
    Anatomy,
    Chance,
    Floats,
    Grip,
    hand,
    key,
    placed,
    viewed,
)

ANATOMY = Anatomy.of(Chance(0, 0))
BONES = np.array(LAYOUT.bones)
WRIST, TTIP, ITIP, MMCP, MTIP = (
    LAYOUT.joints.index(name) for name in ("Wrist", "TTIP", "ITIP", "MMCP", "MTIP")
)


def held(grip: Grip) -> Floats:
    """(21, 3)."""
    return hand(grip.angles()[None], ANATOMY)[0]


def bones(joints: Floats) -> Floats:
    """(frames, 21, 3) -> lengths (frames, 20)."""
    difference = joints[:, BONES[:, 1]] - joints[:, BONES[:, 0]]
    return np.sqrt((difference**2).sum(axis=-1))


def any_pose(seed: int, frames: int = 5) -> Floats:
    """(frames, 28) within the limits."""
    low, high = LIMITS.T
    return low + (high - low) * Chance(seed).uniform(0, 1, frames, len(LIMITS))


@given(st.integers(0, 10**6))
def test_bones_keep_their_lengths_in_every_pose(seed: int) -> None:
    poses = any_pose(seed)
    joints = placed(hand(poses[:, :ANGLES], ANATOMY), poses[:, ANGLES:], ANATOMY.forearm)
    joints = viewed(joints, *Chance(seed, 1).uniform(-40, 40, 3, len(poses)))
    metacarpals = np.sqrt((ANATOMY.knuckles**2).sum(axis=-1))
    expected = np.concatenate([metacarpals, ANATOMY.bones.ravel()])
    np.testing.assert_allclose(bones(joints), np.tile(expected, (len(poses), 1)), atol=1e-9)


@given(st.integers(0, 10**6))
def test_the_arm_and_the_camera_move_the_hand_as_a_rigid_body(seed: int) -> None:
    poses = any_pose(seed)
    joints = hand(poses[:, :ANGLES], ANATOMY)
    moved = placed(joints, poses[:, ANGLES:], ANATOMY.forearm)
    seen = viewed(moved, *Chance(seed, 1).uniform(-40, 40, 3, len(poses)))
    for before, after in ((joints, moved), (moved, seen)):
        # Volumes keep their sign too: a right hand stays one.
        first, second = (at[:, [3, 5, 8]] - at[:, [WRIST]] for at in (before, after))
        np.testing.assert_allclose(np.linalg.det(first), np.linalg.det(second), atol=1e-6)
        np.testing.assert_allclose(bones(before), bones(after), atol=1e-9)


def test_a_straight_finger_adds_up_its_bones() -> None:
    joints = held(Grip((0, 0, 0, 0)))
    reach = ANATOMY.bones[2].sum()
    np.testing.assert_allclose(joints[MTIP] - joints[MMCP], reach * ANATOMY.axes[2, 0], atol=1e-9)


def test_a_finger_bent_at_its_knuckle_points_out_of_the_palm() -> None:
    joints = held(Grip((0, 0, 0, 0), middle=(90, 0)))
    np.testing.assert_allclose(
        joints[MTIP] - joints[MMCP], (0, 0, ANATOMY.bones[2].sum()), atol=1e-9
    )


def test_every_finger_has_three_axes_at_right_angles() -> None:
    products = np.einsum("fid,fjd->fij", ANATOMY.axes, ANATOMY.axes)
    np.testing.assert_allclose(products, np.broadcast_to(np.eye(3), (5, 3, 3)), atol=1e-12)


def apart(joints: Floats, first: int, second: int) -> float:
    return float(np.sqrt(((joints[first] - joints[second]) ** 2).sum()))


def test_a_pinch_closes_and_an_open_hand_does_not() -> None:
    assert apart(held(PINCH), TTIP, ITIP) < 20
    assert apart(held(TRIPOD), TTIP, ITIP) < 20 and apart(held(TRIPOD), TTIP, MTIP) < 25
    assert apart(held(LATERAL), TTIP, LAYOUT.joints.index("IPIP")) < 30
    assert apart(held(OPEN), TTIP, ITIP) > 100


def test_a_fist_brings_the_fingertips_to_the_palm() -> None:
    fist, flat = held(FIST), held(FLAT)
    for name in ("ITIP", "MTIP", "RTIP", "PTIP"):
        tip = LAYOUT.joints.index(name)
        assert apart(fist, tip, WRIST) < 0.5 * apart(flat, tip, WRIST)
        assert fist[tip, 2] > 0  # in front of the palm, not behind it


@pytest.mark.parametrize(
    ("arm", "joint", "axis", "sign"),
    [
        ({}, "TTIP", 1, -1),  # thumb up: the camera's y points down
        ({"turn": 80}, "TTIP", 0, -1),  # palm down: a right thumb points left
        ({"turn": -80}, "TTIP", 0, 1),  # palm up: it points right
        ({"flex": 60}, "MTIP", 0, -1),  # towards the palm, which looks left
        ({"deviate": 30}, "MTIP", 1, 1),  # to the little finger's side: down
        ({"pitch": 45}, "Wrist", 1, -1),  # the forearm up
        ({"yaw": 45}, "Wrist", 0, -1),  # the forearm inwards
    ],
)
def test_the_arm_turns_a_right_hand_as_its_names_say(
    arm: dict[str, float], joint: str, axis: int, sign: int
) -> None:
    pose = key(FLAT, **arm).pose()[None]
    joints = placed(hand(pose[:, :ANGLES], ANATOMY), pose[:, ANGLES:], ANATOMY.forearm)[0]
    origin = 0 if joint == "Wrist" else joints[WRIST, axis]
    assert sign * (joints[LAYOUT.joints.index(joint), axis] - origin) > 30
