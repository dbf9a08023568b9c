"""Tracing while other threads trace, prune copies, and run the very model that is traced."""

from __future__ import annotations

import copy
import functools
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import trellis


def live(width: int) -> int:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
    return trellis.audit(model, torch.zeros(1, 4)).live


def test_threads_do_not_disturb_each_other() -> None:
    widths = list(range(3, 15))
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(live, widths)) == [6 * width for width in widths]


def masked() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), spectral_norm(nn.Linear(16, 4)))
    trellis.prune(model, torch.zeros(1, 6), sparsity=0.5)
    return model, torch.randn(3, 6)


def convolutional() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 3),
        nn.Flatten(), nn.Linear(200, 4),
    )  # fmt: skip
    return model, torch.randn(2, 3, 16, 16)


def attentive() -> tuple[nn.Module, Tensor]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), torch.randn(2, 5, 8)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.lstm(x)[0]
        return out * math.pow(2, max(1, 2))


@contextmanager
def running(model: nn.Module, x: Tensor) -> Iterator[None]:
    """A thread that runs the model all the while; its outputs must never change by a bit."""
    with torch.no_grad():
        expected = model(x)
    flags = [module.training for module in model.modules()]
    done, runs = threading.Event(), 0
    wrong: list[str] = []

    def run() -> None:
        nonlocal runs
        with torch.no_grad():
            while not done.is_set() and not wrong:
                try:
                    found = model(x)
                    if type(found) is not Tensor or not torch.equal(found, expected):
                        wrong.append(f"another output: {found!r:.300}")
                except BaseException as error:
                    wrong.append(repr(error))
                runs += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not wrong, wrong
    assert runs > 1
    assert [module.training for module in model.modules()] == flags


@pytest.mark.parametrize(
    "make", [masked, convolutional, attentive, lambda: (Recurrent(), torch.randn(2, 3, 4))]
)
def test_a_model_runs_to_the_same_bits_while_it_is_traced(
    make: Callable[[], tuple[nn.Module, Tensor]],
) -> None:
    torch.manual_seed(0)
    model, x = make()
    model.eval()
    alone = trellis.audit(model, x[:1])

    def audit(_: int) -> int:
        return trellis.audit(model, x[:1]).live

    def prune(_: int) -> int:
        fresh = copy.deepcopy(model)
        trellis.prune(fresh, x[:1], keep=alone.live - 5)
        return trellis.audit(fresh, x[:1]).live

    with running(model, x), ThreadPoolExecutor(3) as pool:
        audits, prunes = pool.map(audit, range(3)), pool.map(prune, range(2))
        assert list(audits) == [alone.live] * 3
        assert list(prunes) == [alone.live - 5] * 2


def test_a_model_runs_while_it_is_compacted_and_exported(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = convolutional()
    model.eval()
    with running(model, x):
        trellis.compact(model, x[:1])
        trellis.export_c(model, x[:1], tmp_path / "c")
        trellis.export_onnx(model, x[:1], tmp_path / "model.onnx")
        trellis.save(model, tmp_path / "saved")


def test_a_model_in_training_stays_in_training() -> None:
    model, x = masked()
    model.train()
    seen: list[bool] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(all(module.training for module in model.modules()))

    thread = threading.Thread(target=watch)
    thread.start()
    net = trellis.trace(model, x[:1])
    for _ in range(20):
        trellis.audit(net)
    done.set()
    thread.join()
    assert all(seen) and len(seen) > 1


class Entangled(nn.Module):
    """Refers to its own layer in one more way, which ``how`` chooses."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)
        first = self.first
        ways: dict[str, Any] = {
            "list": [first],
            "method": first.forward,
            "partial": functools.partial(nn.Module.__call__, first),
            "weak": weakref.ref(first),
            "lambda": lambda x: first(x),
            "object": type("Holder", (), {"__init__": lambda h: setattr(h, "held", first)})(),
            "id": {id(first): first},
            "self": lambda x: self.first(x),
            "global": None,
        }
        self.how, self.way = how, ways[how]
        self.lock = threading.Lock()  # which no deep copy has
        GLOBAL[how] = first

    def forward(self, x: Tensor) -> Tensor:
        ways: dict[str, Callable[[], Any]] = {
            "list": lambda: self.way[0](x),
            "weak": lambda: self.way()(x),
            "object": lambda: self.way.held(x),
            "id": lambda: self.way[id(self.first)](x),
            "global": lambda: GLOBAL["global"](x),
        }
        x = ways[self.how]() if self.how in ways else self.way(x)
        result: Tensor = self.second(x.relu())
        return result


GLOBAL: dict[str, nn.Module] = {}


@pytest.mark.parametrize(
    "how", ["list", "method", "partial", "weak", "lambda", "object", "id", "self", "global"]
)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("pruned", [False, True])
def test_models_that_refer_to_themselves_are_traced(how: str, training: bool, pruned: bool) -> None:
    model, x = Entangled(how).train(training), torch.randn(1, 4)
    expected = model(x)
    if pruned:
        trellis.prune(model, x, sparsity=0.5)
        expected = model(x)
    flags = [module.training for module in model.modules()]
    audit = trellis.audit(model, x)
    assert (audit.total, audit.live) == ((18, 9) if pruned else (18, 18))
    assert [module.training for module in model.modules()] == flags
    assert torch.equal(model(x), expected)
    assert torch.allclose(trellis.compact(model, x)(x), expected, atol=1e-6)


@pytest.mark.parametrize("how", ["lambda", "global"])
def test_audits_of_one_such_model_take_turns(how: str) -> None:
    model, x = Entangled(how), torch.randn(1, 4)
    with ThreadPoolExecutor(4) as pool:
        assert [a.live for a in pool.map(lambda _: trellis.audit(model, x), range(8))] == [18] * 8
