"""Freed memory that is kept: what is asked for again needs no new pages."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

PAGES = """
import resource
import numpy as np
from trellis.cli.data_arguments import keep_freed

kept = {keep} and keep_freed()
size = 64 << 20  # more than glibc keeps by itself, whatever it has seen

def new_pages() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(size, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

new_pages()
print(int(kept), new_pages())
"""


def counted(*, keep: bool) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", PAGES.replace("{keep}", str(keep))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    kept, pages = done.stdout.split()
    return int(kept), int(pages)


def test_freed_memory_is_used_again() -> None:
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("the C library is not glibc")
    kept, pages = counted(keep=True)
    assert kept and pages < 32
    assert counted(keep=False)[1] >= 32  # as it would be: 64 MiB, even in huge pages of 2 MiB


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from trellis.cli import data_arguments as memory

    for error in (OSError, TypeError):

        def none(_: object, error: type[Exception] = error) -> None:
            raise error

        monkeypatch.setattr(ctypes, "CDLL", none)
        assert not memory.keep_freed()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not memory.keep_freed()
