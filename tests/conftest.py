"""What every test runs under: one thread, and random cases that CI can repeat."""

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from tests.report.browser import Browser, launched

torch.set_num_threads(1)

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests: its driver cannot be started twice in a process."""
    with launched() as found:
        yield found


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
