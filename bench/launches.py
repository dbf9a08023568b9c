"""Which tiles suit the kernels of float32 and TF32: tries some, one kernel after the other."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context

import torch
from torch import Tensor

from trellis.skeleton import GCN
from trellis.skeleton.model import gpu as halves
from trellis.skeleton.model.gpu import Halved, Launch
from trellis.training import stack

DEVICE = "cuda"
CANDIDATES = {
    "mix": [Launch(64, 4, 1, 64), Launch(128, 8, 1, 128), Launch(128, 8, 1, 64),
            Launch(64, 4, 2, 128)],
    "logits": [Launch(64, 4, 2), Launch(64, 4, 3), Launch(128, 8, 1), Launch(128, 8, 3)],
    "gradients": [Launch(64, 8, 1), Launch(64, 8, 3), Launch(128, 8, 1), Launch(128, 8, 2)],
    "attention": [Launch(64, 4, 2, 64), Launch(64, 4, 4, 64), Launch(64, 4, 3, 128),
                  Launch(128, 8, 3, 64)],
}  # fmt: skip


def problem(count: int, batch: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Weights of the paper's GCN, inputs, and a gradient of the logits; always the same."""
    torch.manual_seed(0)
    model = GCN()
    weights = [w.to(DEVICE).requires_grad_() for w in stack([model] * count).values()]
    nodes, channels, classes = (model.sizes[name] for name in ("nodes", "channels", "classes"))
    x = torch.randn(count, batch, nodes, channels).to(DEVICE)
    return weights, x, torch.randn(count, batch, classes).to(DEVICE)


def step(weights: list[Tensor], x: Tensor, pull: Tensor, pairs: bool) -> list[Tensor]:
    """Logits and gradients."""
    logits: Tensor = Halved.apply(*weights, x, pairs, False)  # type: ignore[no-untyped-call]
    return [logits.detach(), *torch.autograd.grad(logits, weights, pull)]


def milliseconds(given: tuple[list[Tensor], Tensor, Tensor], pairs: bool) -> float:
    """Least time of forward and backward, per network."""
    found = []
    for _ in range(6):
        wait()
        start = time.perf_counter()
        step(*given, pairs)
        wait()
        found.append((time.perf_counter() - start) * 1e3 / len(given[1]))
    return min(found[1:])


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def compiled(kernel: str, launch: Launch, batch: int, pairs: bool) -> None:
    """Fill Triton's cache: programs are compiled side by side, then timed one by one."""
    use(kernel, launch, pairs)
    with suppress(Exception):  # it will say so again, where it is timed
        step(*problem(1, batch), pairs)


def use(kernel: str, launch: Launch, pairs: bool) -> None:
    halves.LAUNCHES[pairs] = replace(halves.LAUNCHES[pairs], **{kernel: launch})


def tuned(count: int, batch: int, kinds: list[bool]) -> None:
    """Print what each candidate takes, and leave the best in place."""
    jobs = [(kernel, launch, batch, pairs) for pairs in kinds
            for kernel, launches in CANDIDATES.items() for launch in launches]  # fmt: skip
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        list(pool.map(compiled, *zip(*jobs, strict=True)))
    given, few = problem(count, batch), problem(2, batch)
    for pairs in kinds:
        right = step(*few, pairs)
        best = milliseconds(given, pairs)
        print("fp32" if pairs else "tf32", f"forward and backward {best:.4f} ms per network")
        for kernel, launches in CANDIDATES.items():
            before = chosen = getattr(halves.LAUNCHES[pairs], kernel)
            for launch in launches:
                use(kernel, launch, pairs)
                try:
                    off = max(
                        ((a - b).norm() / b.norm()).item()
                        for a, b in zip(step(*few, pairs), right, strict=True)
                    )
                    took = milliseconds(given, pairs)
                except Exception as error:
                    print(f"  {kernel} {launch}: {str(error).splitlines()[0][:80]}")
                    continue
                print(f"  {kernel} {launch}: {took:.4f} ms, {off:.0e} from the default's")
                if took < best and off < (1e-3 if pairs else 1e-1):  # a ReLU may flip
                    best, chosen = took, launch
            use(kernel, chosen, pairs)
            print(f"  {kernel}: {'stays' if chosen == before else 'best is'} {chosen}", flush=True)
        print(f"  together {milliseconds(given, pairs):.4f} ms", flush=True)
