"""Random numbers: whole-number arithmetic on words that numpy never changes."""

import numpy as np

from trellis.skeleton.data.hands.hand import Chance


def test_normal_adds_up_the_quarters_of_a_word() -> None:
    words = np.random.PCG64(np.random.SeedSequence((3, 4))).random_raw(50)
    expected = [
        (sum((int(word) >> shift) % 65536 for shift in (0, 16, 32, 48)) - 2 * 65535)
        * (3**0.5 / 65536)
        for word in words
    ]
    assert Chance(3, 4).normal(50).tolist() == expected


def test_normal_has_mean_0_and_deviation_1() -> None:
    drawn = Chance(0).normal(200_000)
    assert abs(drawn.mean()) < 0.01
    assert abs(drawn.std() - 1) < 0.01
    assert abs(drawn).max() < 3.5


def test_uniform_fills_its_range() -> None:
    drawn = Chance(0).uniform(-2, 3, 100_000)
    assert drawn.min() >= -2 and drawn.max() < 3
    assert np.histogram(drawn, 5, (-2, 3))[0].min() > 19_000


def test_whole_reaches_both_ends() -> None:
    chance = Chance(1)
    assert {chance.whole(2, 4) for _ in range(100)} == {2, 3, 4}


def test_shuffled_is_a_permutation() -> None:
    order = Chance(2).shuffled(100)
    assert sorted(order) == list(range(100)) and order.tolist() != list(range(100))


def test_streams_of_other_names_are_others() -> None:
    assert Chance(0, 1).normal(4).tolist() != Chance(1, 0).normal(4).tolist()
