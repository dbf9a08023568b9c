"""What every test runs under: one thread, and random cases that CI can repeat."""

import os

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
