"""Run by a test: a table and a search on a Ray cluster of three nodes, one of which is killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster as Nodes

from tests.paper.waves import small, waves
from tests.skeleton.small import made, same
from trellis.errors import TrellisError
from trellis.integrations.ray import Cluster
from trellis.paper import Progress, reproduce

ROOM = 80 << 20  # bytes of a node's object store
SOON = {  # a node that is silent for two seconds is dead
    "health_check_initial_delay_ms": 0, "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}  # fmt: skip


class Stopped(Exception):
    pass


def table(folder: Path, cluster: Cluster, kill: Any) -> None:
    """Make a table; a second driver is refused; a node dies; the driver stops, and goes on."""
    settings, data = small(stack=1, rows=("mp", "tc")), waves()
    reproduce(settings, data, folder / "whole")
    seen: list[Progress] = []

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 1:
            kill()
            try:
                reproduce(settings, data, folder / "spread", runner=cluster)
            except TrellisError as error:
                assert str(os.getpid()) in str(error), error
            else:
                raise AssertionError("two drivers wrote into one folder")
        if len(seen) == 6:  # of ten
            raise Stopped

    try:
        reproduce(settings, data, folder / "spread", runner=cluster, watch=watch)
    except Stopped:
        pass
    else:
        raise AssertionError("it was not stopped")
    again: list[Progress] = []
    reproduce(settings, data, folder / "spread", runner=cluster, watch=again.append)
    assert len(again) == 4, "finished cells were made again"


def search(folder: Path, cluster: Cluster) -> None:
    """Search for the smallest network; what this process then does needs no training."""
    there = made(at_least=0.5, runner=cluster)
    here = made(at_least=0.5)
    assert (here.curve, here.kept, here.met) == (there.curve, there.kept, there.met)
    assert same(here.small, there.small) and same(here.dense, there.dense)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    nodes = Nodes(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0, "object_store_memory": ROOM, "include_dashboard": False,
            "_system_config": SOON,
        },
    )  # fmt: skip
    try:
        _, other = (nodes.add_node(num_cpus=1, object_store_memory=ROOM) for _ in range(2))
        cluster = Cluster(nodes.address)
        assert cluster.together == 2 and not cluster.has_gpus
        try:
            Cluster(nodes.address, gpus=0.5).together  # noqa: B018
        except TrellisError as error:
            assert "0.5 GPUs" in str(error)
        else:
            raise AssertionError("a cell was promised a GPU that is not there")
        ray.init(nodes.address, log_to_driver=False)  # kept: workers need not start again
        table(folder, cluster, lambda: nodes.remove_node(other, allow_graceful=False))
        search(folder, cluster)
    finally:
        ray.shutdown()
        nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
