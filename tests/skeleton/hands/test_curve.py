"""Movement between keys: through all of them, never beyond them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trellis.skeleton.data.hands.recordings import through, wandering

GAPS = st.lists(st.floats(0.1, 3), min_size=2, max_size=8)
PLACES = st.lists(st.floats(-100, 100), min_size=9, max_size=9)


@given(GAPS, PLACES)
def test_it_passes_through_every_key_and_never_overshoots(
    gaps: list[float], places: list[float]
) -> None:
    times = np.cumsum([0.0, *gaps])
    values = np.array(places[: len(times)])[:, None]
    np.testing.assert_allclose(through(times, values, times), values, atol=1e-9)
    for i in range(len(gaps)):
        between = through(times, values, np.linspace(times[i], times[i + 1], 30))
        low, high = sorted(values[i : i + 2, 0])
        assert between.min() >= low - 1e-9 and between.max() <= high + 1e-9


def test_between_equal_keys_it_stays() -> None:
    path = through(np.arange(4.0), np.array([[0.0], [5], [5], [9]]), np.linspace(1, 2, 7))
    assert path.ravel().tolist() == [5.0] * 7


def test_four_keys_around_a_circle_give_a_round_one() -> None:
    keys = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]] * 3)
    path = through(np.arange(12.0), keys, np.linspace(2, 9, 200))
    radius = np.sqrt((path**2).sum(axis=1))
    assert radius.min() > 0.87 and radius.max() < 1.01


def test_wandering_starts_and_ends_at_its_knots() -> None:
    knots = np.array([[1.0, 2], [3, 4], [5, 0]])
    path = wandering(knots, 11)
    assert path.shape == (11, 2)
    np.testing.assert_allclose(path[[0, 5, 10]], knots)
