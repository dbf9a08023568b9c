"""Running a step again and again: on a GPU as one captured graph."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


class Replay:
    """The step itself on a CPU; on a GPU, a graph of it that is captured at the first call.

    A small network's step is hundreds of launches that take longer to ask for than to run; a
    captured graph asks once. Capturing needs warm-up runs, which change ``tensors`` (everything
    the step writes): they are put back. The step is given with each call rather than kept: whoever
    owns it owns this too, and a graph must be freed as soon as they are.
    """

    def __init__(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        self.tensors, self.device = tensors, device
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, step: Callable[[], None]) -> None:
        if self.device.type != "cuda":
            step()
            return
        with torch.cuda.device(self.device):  # graphs and kernels go to the current one
            if self.graph is None:
                self.graph = self._captured(step)
            self.graph.replay()

    def _captured(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph:
        before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with nothing_collected(), torch.cuda.graph(graph):
            step()
        for name, tensor in self.tensors.items():
            tensor.copy_(before[name])
        return graph


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Without Python's collector: a graph that it frees while another is captured breaks that.

    >>> with nothing_collected():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
