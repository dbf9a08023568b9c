"""Keeping stdout for results and stderr for one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def aside() -> Iterator[None]:
    """Run the user's model: what it prints goes to stderr."""
    with redirect_stdout(sys.stderr):
        yield
