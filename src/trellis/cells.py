"""Cells: independent pieces of work, such as the networks of a table.

A `Runner` says where cells are computed: `Here` in this process, `Processes` in others on this
machine, `trellis.integrations.ray.Cluster` on a Ray cluster. All have one contract. The driver
gives ``start`` and its arguments. Each worker calls it once, and calls its result for every job.
The driver alone writes results into the run's folder.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol

from .errors import TrellisError

Work = Callable[..., Any]  # (job, *shared values) -> result
Start = Callable[..., Work]


class Cells(Protocol):
    """Workers that are ready for jobs."""

    def share(self, value: Any) -> Any:
        """Return a handle of a value that several jobs read; pass it to `submit`.

        A cluster sends the value to each of its nodes at most once.
        """

    def submit(self, job: Any, *shared: Any) -> Future[Any]:
        """Begin a job. The work receives it and the shared values."""


class Runner(Protocol):
    """Where cells are computed."""

    @property
    def together(self) -> int:
        """The number of cells that are computed at the same time."""

    def cells(self, start: Start, *given: Any) -> AbstractContextManager[Cells]:
        """Make workers. Each calls ``start(*given)`` before its first job.

        Jobs that have not begun when the context ends are dropped.
        """


class _Here:
    def __init__(self, start: Start, given: tuple[Any, ...]) -> None:
        self.start, self.given = start, given
        self.work: Work | None = None

    def share(self, value: Any) -> Any:
        return value

    def submit(self, job: Any, *shared: Any) -> Future[Any]:
        found: Future[Any] = Future()
        try:
            if self.work is None:  # started when first needed
                self.work = self.start(*self.given)
            found.set_result(self.work(job, *shared))
        except Exception as error:
            found.set_exception(error)
        return found


@dataclass(frozen=True)
class Here:
    """Compute cells in this process, each when it is submitted.

    >>> with Here().cells(lambda base: lambda job: base + job, 10) as cells:
    ...     cells.submit(1).result()
    11
    """

    together: int = 1

    @contextmanager
    def cells(self, start: Start, *given: Any) -> Iterator[Cells]:
        """Yield workers of this process."""
        yield _Here(start, given)


@dataclass(frozen=True)
class Processes:
    """Compute cells in other processes of this machine.

    Args:
        together: The number of processes.
    """

    together: int

    @contextmanager
    def cells(self, start: Start, *given: Any) -> Iterator[Cells]:
        """Yield a pool of processes, which ends with the context."""
        with _no_code_from_here():
            # spawn: a process that has used a GPU or threads must not be forked.
            pool = ProcessPoolExecutor(
                self.together,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start,
                initargs=(start, given),
            )
            try:
                yield _Pool(pool)
            except BrokenProcessPool:
                raise TrellisError(
                    "a worker process was killed, perhaps for lack of memory; run again with fewer "
                    "processes, such as workers=1"
                ) from None
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class _Pool:
    pool: ProcessPoolExecutor

    def share(self, value: Any) -> Any:
        return value  # one machine: it is sent with each job

    def submit(self, job: Any, *shared: Any) -> Future[Any]:
        return self.pool.submit(_done, job, *shared)


_SAFE = "PYTHONSAFEPATH"


@contextmanager
def _no_code_from_here() -> Iterator[None]:
    """Start processes without the current folder on their path.

    Otherwise a ``struct.py`` in that folder would run in every worker. Python 3.10 ignores this
    setting.
    """
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE]
        if before is not None:
            os.environ[_SAFE] = before


_work: Work | None = None  # of a worker process


def _start(start: Start, given: tuple[Any, ...]) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the pool
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = start(*given)


def _end_with_parent() -> None:
    """End this worker when its parent is killed; otherwise it would wait forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _done(job: Any, *shared: Any) -> Any:
    assert _work is not None
    return _work(job, *shared)
