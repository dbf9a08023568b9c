"""A Ray cluster that is not there, or flags that do not fit."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--ray", "127.0.0.1:1"), "127.0.0.1:1"),
        (("--ray", "nowhere"), "expected 'auto', HOST:PORT"),
        (("--ray", "127.0.0.1:1", "--cell-gpus", "1.5"), "share of a GPU"),
        (("--cell-cpus", "2"), "need --ray"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_error(
    fails: Callable[..., str], words: tuple[str, ...], expected: str
) -> None:
    pytest.importorskip("ray", reason="needs the extra [ray]")
    began = time.monotonic()
    assert expected in fails("shrink", "hands45", "--at-least", "0.9", *words)
    assert expected in fails("reproduce", "table2", "--device", "cpu", *words)
    assert time.monotonic() - began < 30  # Ray alone would try for minutes
