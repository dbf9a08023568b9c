"""Cells on a Ray cluster: the tables, searches and benchmarks of one machine, on many.

The driver alone writes into the run's folder, so that a run continues as it does on one machine.
Ray computes a cell again if its worker or its whole node dies.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cells import Cells, Start, Work
from ..errors import TrellisError

_PATIENCE = 3.0  # seconds to wait for a connection
_RETRIES = 5  # of a cell whose worker or node died


@dataclass(frozen=True)
class Cluster:
    """Compute cells on a Ray cluster.

    Args:
        address: "auto" for the cluster that this machine belongs to, HOST:PORT of its head, or
            ray://HOST:PORT of a Ray client server.
        cpus: Cores of a cell.
        gpus: GPUs of a cell; 0.25 puts four cells on a GPU.
        code: A folder with modules that the work needs; Ray copies it to every node.
    """

    address: str = "auto"
    cpus: int = 1
    gpus: float = 0.0
    code: Path | None = None

    def __post_init__(self) -> None:
        if self.address not in ("auto", "local") and not _place(self.address):
            raise TrellisError(
                f"expected 'auto', HOST:PORT or ray://HOST:PORT, got {self.address!r:.100}"
            )
        if self.cpus < 1 or self.gpus < 0 or (self.gpus > 1 and self.gpus % 1):
            raise TrellisError(
                "expected at least one core per cell, and a share of a GPU or whole GPUs, got "
                f"cpus={self.cpus} and gpus={self.gpus:g}"
            )

    @property
    def together(self) -> int:
        """The number of cells that the cluster computes at the same time.

        Raises:
            TrellisError: The cluster does not exist, or none of its nodes has room for a cell.
        """
        with self._connected() as ray:
            return self._room(ray)

    @property
    def has_gpus(self) -> bool:
        """Whether a node of the cluster has a GPU.

        Raises:
            TrellisError: The cluster does not exist.
        """
        with self._connected() as ray:
            return any(node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"])

    @contextmanager
    def cells(self, start: Start, *given: Any) -> Iterator[Cells]:
        """Yield workers on the cluster.

        Raises:
            TrellisError: The cluster does not exist, or none of its nodes has room for a cell.
        """
        with self._connected() as ray:
            self._room(ray)
            # In a list, a reference is passed on as it is: a worker fetches the value once.
            held = [ray.put((start, given))]
            work = ray.remote(
                num_cpus=self.cpus, num_gpus=self.gpus, max_retries=_RETRIES, retry_exceptions=False
            )(_done)
            cells = _Remote(work, held, self.cpus)
            try:
                yield cells
            finally:
                cells.drop()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """Connect to the cluster, unless this process is connected already; yield Ray."""
        try:
            import ray
        except ModuleNotFoundError:
            raise TrellisError(
                "a Ray cluster needs Ray: pip install 'trellis-prune[ray]'"
            ) from None
        if ray.is_initialized():
            yield ray
            return
        _check_answers(self.address)
        environment = {"working_dir": str(self.code)} if self.code is not None else None
        try:
            ray.init(
                self.address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=environment,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise TrellisError(_unreachable(self.address, str(error))) from None
        try:
            yield ray
        finally:
            ray.shutdown()

    def _room(self, ray: Any) -> int:
        """Return how many cells fit on the cluster now; raise if no node has room for one."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cpus = [int(node.get("CPU", 0)) // self.cpus for node in nodes]
        gpus = [
            # Several cells share a GPU, but a share never lies on two of them.
            int(node.get("GPU", 0)) * int(1 / self.gpus + 1e-9)
            if self.gpus <= 1
            else int(node.get("GPU", 0) // self.gpus)
            for node in nodes
            if self.gpus
        ] or cpus
        found = sum(map(min, cpus, gpus))
        if not found:
            most = ", ".join(
                f"{int(node.get('CPU', 0))} cores and {node.get('GPU', 0):g} GPUs" for node in nodes
            )
            raise TrellisError(
                f"expected a node with {self.cpus} cores and {self.gpus:g} GPUs for a cell; the "
                f"{len(nodes)} nodes of the cluster have {most:.300}"
            )
        return found


class _Remote:
    def __init__(self, work: Any, held: list[Any], cpus: int) -> None:
        self.work, self.held, self.cpus = work, held, cpus
        self.begun: dict[Any, None] = {}  # held: Ray drops what nobody refers to

    def share(self, value: Any) -> Any:
        import ray

        return ray.put(value)

    def submit(self, job: Any, *shared: Any) -> Future[Any]:
        reference = self.work.remote(self.held, self.cpus, job, *shared)
        self.begun[reference] = None
        found: Future[Any] = Future()

        def end(done: Future[Any]) -> None:
            self.begun.pop(reference, None)  # so that the nodes need not keep the result
            _hand_over(done, found)

        reference.future().add_done_callback(end)
        return found

    def drop(self) -> None:
        """Cancel the jobs that have not ended."""
        import ray

        for reference in list(self.begun):
            ray.cancel(reference, force=True)


def _hand_over(done: Future[Any], found: Future[Any]) -> None:
    """Give a result of Ray, or its one-line error, to a future."""
    from ray.exceptions import RayError, RayTaskError

    error = done.exception()
    if error is None:
        found.set_result(done.result())
    elif isinstance(error, RayTaskError):  # the work raised
        cause = error.cause
        found.set_exception(cause if isinstance(cause, Exception) else error)
    elif isinstance(error, RayError):
        found.set_exception(
            TrellisError(
                f"a cell was lost {_RETRIES + 1} times ({type(error).__name__}: "
                f"{' '.join(str(error).split()):.200}); if its memory was too small, give cells "
                "more cores or a larger share of a GPU, and run the same command to continue"
            )
        )
    else:
        found.set_exception(error)


_works: dict[Any, Work] = {}  # of a worker: that of the present run


def _done(held: list[Any], cpus: int, job: Any, *shared: Any) -> Any:
    """Do a job in a worker of the cluster."""
    import ray
    import torch

    [reference] = held
    if reference not in _works:
        _works.clear()
        torch.set_num_threads(cpus)
        start, given = ray.get(reference)
        _works[reference] = start(*given)
    return _works[reference](job, *shared)


def _place(address: str) -> tuple[str, int] | None:
    """Return the host and port of an address.

    >>> _place("ray://head:10001"), _place("[::1]:6379"), _place("head")
    (('head', 10001), ('::1', 6379), None)
    """
    found = re.fullmatch(r"(?:ray://)?\[?([^/\[\]]+?)\]?:(\d{1,5})", address)
    return None if found is None else (found[1], int(found[2]))


def _check_answers(address: str) -> None:
    """Raise at once if nothing listens at an address; Ray would try for a minute."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", address)
    place = _place(address)
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise TrellisError(_unreachable(address, str(error))) from None


def _unreachable(address: str, why: str) -> str:
    if address == "auto":
        return (
            "no Ray cluster runs on this machine; start one with `ray start --head`, or give "
            "--ray HOST:PORT"
        )
    return (
        f"the Ray cluster at {address!r} cannot be used ({' '.join(why.split()):.200}); see "
        "`ray status` there"
    )
