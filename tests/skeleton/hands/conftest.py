"""The set, made once, and of another seed, for all its tests."""

import pytest

from trellis.skeleton import Skeletons
from trellis.skeleton.data.hands import hands45


@pytest.fixture(scope="package")
def hands() -> Skeletons:
    return hands45()


@pytest.fixture(scope="package")
def other_hands() -> Skeletons:
    return hands45(seed=1)
