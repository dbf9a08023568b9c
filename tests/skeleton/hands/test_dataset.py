"""hands45: the same bytes everywhere, FPHA's shape, a hand's anatomy."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from trellis.errors import TrellisError
from trellis.skeleton import Skeletons
from trellis.skeleton.data.hands import ACTIONS, hands45
from trellis.skeleton.data.hands.hand import LAYOUT, LIMITS, Chance
from trellis.skeleton.data.hands.recordings import filmed, lengths, moved, takes

TAKES = takes(Chance(0, 0))


def digest(data: Skeletons) -> str:
    """Of all coordinates in little-endian order, labels and split."""
    bytes_of = hashlib.sha256()
    for frames in data.sequences:
        bytes_of.update(frames.astype("<f4").tobytes())
    for numbers in (data.labels, data.folds[0].train, data.folds[0].test):
        bytes_of.update(numbers.astype("<i8").tobytes())
    return bytes_of.hexdigest()


def test_seed_0_is_these_bytes(hands: Skeletons) -> None:
    assert digest(hands) == "9c7494ae68533fbcd95efdf2457d32f7ed065795ad482660575d8639b5b1a1d7"


def test_another_seed_is_another_set_of_the_same_shape(
    hands: Skeletons, other_hands: Skeletons
) -> None:
    assert digest(other_hands) != digest(hands)
    assert other_hands.classes == hands.classes and len(other_hands) == len(hands)


def test_variety_is_how_far_people_are_from_one_another(hands: Skeletons) -> None:
    """Given the same action: none, the usual, twice as much."""
    spread = []
    for variety in (0.0, 1.0, 2.0):
        data = hands45(0, variety)
        assert (data.labels == hands.labels).all() and data.names == hands.names
        means = np.array([sequence.mean(axis=(0, 1)) for sequence in data.sequences])
        assert np.isfinite(means).all()
        spread.append(np.mean([means[data.labels == each].std(axis=0) for each in range(45)]))
    assert digest(hands45(0, 1)) == digest(hands)
    assert spread[0] < 0.5 * spread[1] and spread[1] < 0.7 * spread[2]


@pytest.mark.parametrize("variety", [-0.1, 3.1, float("nan"), "2", True, None])
def test_a_variety_that_is_none_is_refused(variety: object) -> None:
    with pytest.raises(TrellisError, match="variety="):
        hands45(0, variety)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, 0.5, "0", True, None])
def test_a_seed_that_is_none_is_refused(seed: object) -> None:
    with pytest.raises(TrellisError, match="seed="):
        hands45(seed)  # type: ignore[arg-type]


def test_it_has_the_shape_of_fpha(hands: Skeletons) -> None:
    (fold,) = hands.folds
    assert (len(fold.train), len(fold.test)) == (600, 575)
    assert sorted([*fold.train, *fold.test]) == list(range(1175))
    assert hands.classes == tuple(action.name for action in ACTIONS)
    assert hands.synthetic and hands.layout is LAYOUT
    frames = np.array([len(sequence) for sequence in hands.sequences])
    assert (frames.min(), np.median(frames), frames.max()) == (7, 77, 1151)
    assert 100_000 < hands.frames < 110_000


def test_all_six_do_everything_at_least_twice_in_both_parts(hands: Skeletons) -> None:
    for part in (hands.folds[0].train, hands.folds[0].test):
        done = Counter(hands.names[i].rsplit("/", 1)[0] for i in part)
        assert len(done) == 6 * 45 and set(done.values()) == {2, 3}
    assert len(set(hands.names)) == len(hands)
    for name, label in zip(hands.names, hands.labels, strict=True):
        assert name.split("/")[1] == hands.classes[label]


def test_coordinates_are_hundredths_of_a_millimetre_within_reach(hands: Skeletons) -> None:
    everything = np.concatenate(hands.sequences)
    assert everything.dtype == np.float32
    hundredths = everything.astype(np.float64) * 100
    assert abs(hundredths - np.rint(hundredths)).max() < 0.01  # float32's own precision
    assert abs(everything).max() < 1200


def test_angles_keep_to_the_limits_of_a_hand() -> None:
    moves, views, frames = moved(TAKES, seed=0)
    assert len(moves) == len(views) == frames.sum()
    assert (moves >= LIMITS[:, 0]).all() and (moves <= LIMITS[:, 1]).all()
    assert abs(views).max() <= 45


def test_bones_are_a_subjects_own_in_all_that_they_do() -> None:
    joints, frames = filmed(TAKES, seed=0)
    parents, children = np.array(LAYOUT.bones).T
    lengths_of = np.sqrt(((joints[:, children] - joints[:, parents]) ** 2).sum(axis=-1))
    subjects = np.repeat([take.subject for take in TAKES], frames)
    hands_of = []
    for subject in range(6):
        bones = lengths_of[subjects == subject]
        np.testing.assert_allclose(bones, np.broadcast_to(bones[0], bones.shape), atol=1e-9)
        assert (bones[0] > 14).all() and (bones[0] < 110).all()
        hands_of.append(bones[0])
    sizes = np.stack(hands_of).sum(axis=1)
    assert sizes.max() / sizes.min() > 1.05  # people differ


def test_the_sensor_is_off_by_millimetres_and_at_times_by_centimetres(hands: Skeletons) -> None:
    joints, _ = filmed(TAKES, seed=0)
    wrong = np.concatenate(hands.sequences) - joints
    off = np.sqrt((wrong**2).sum(axis=-1))
    assert 2 < np.median(off) < 6
    assert 0.001 < (off > 20).mean() < 0.05


def test_the_longer_it_takes_the_more_frames_it_has() -> None:
    beats = Chance(5).uniform(1, 9, 1175)
    assert (np.diff(lengths(beats)[np.argsort(beats)]) >= 0).all()
