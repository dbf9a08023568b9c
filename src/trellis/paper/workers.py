"""Pruning many cells: in this process, or in several beside it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait

import torch

from ..errors import TrellisError
from .network import Architecture
from .pruning import Bench, Job, Selection

# Takes jobs, and returns a function that waits for what becomes of them, in their order.
Begin = Callable[[Sequence[Job]], Callable[[], list[Selection]]]
_SAFE = "PYTHONSAFEPATH"
_WORTH = 100_000  # connections: a smaller network is pruned before another process has started


@contextmanager
def pruning(architecture: Architecture, workers: int) -> Iterator[Begin]:
    """A way to prune cells, with ``workers`` processes if that pays."""
    if workers < 2 or architecture.connections < _WORTH:
        yield _here(architecture)
        return
    with _no_code_from_here():
        # Not forked: a process that has used a GPU or threads must not be.
        pool = ProcessPoolExecutor(
            workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(architecture,),
        )

        def begin(jobs: Sequence[Job]) -> Callable[[], list[Selection]]:
            begun = [pool.submit(_select, job) for job in jobs]
            return lambda: _results(begun)

        try:
            yield begin
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _no_code_from_here() -> Iterator[None]:
    """Have processes begin without the current folder on their path: before a worker is told its
    parent's path, a ``struct.py`` in that folder would run. Python 3.10 does not know how."""
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE]
        if before is not None:
            os.environ[_SAFE] = before


def _results(begun: Sequence[Future[Selection]]) -> list[Selection]:
    try:
        return [future.result() for future in begun]
    except BrokenProcessPool:
        raise TrellisError(
            "a process that was pruning ended without a word, perhaps for lack of memory: run "
            "again with fewer of them, such as --workers 1"
        ) from None


def _here(architecture: Architecture) -> Begin:
    bench: list[Bench] = []

    def begin(jobs: Sequence[Job]) -> Callable[[], list[Selection]]:
        def finish() -> list[Selection]:
            if not bench:  # traced when first needed: a finished run needs no trace
                bench.append(Bench(architecture))
            return [bench[0].select(job) for job in jobs]

        return finish

    return begin


_bench: Bench | None = None  # of a worker process


def _start(architecture: Architecture) -> None:
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _bench = Bench(architecture)


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _select(job: Job) -> Selection:
    assert _bench is not None
    return _bench.select(job)
