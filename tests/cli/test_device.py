"""``--device`` and ``--precision``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trellis.cli.data_arguments import chosen_device
from trellis.errors import TrellisError


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A machine with two GPUs, an old one and a new one; the list has what was made current."""
    current: list[Any] = []
    zeros = torch.zeros
    for name, fake in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: 0,
        "set_device": current.append,
        "get_device_capability": lambda device: ((7, 5), (9, 0))[device.index],
        "get_device_name": lambda device: ("Old", "New")[device.index],
    }.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device: zeros(*sizes))
    return current


@pytest.mark.parametrize(
    ("name", "index"), [("auto", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)]
)
def test_the_gpu_that_is_asked_for_is_made_current(gpus: list[Any], name: str, index: int) -> None:
    device = torch.device("cuda", index)
    assert chosen_device(name, "tf32") == device
    assert gpus == [device]


def test_the_cpu_needs_no_gpu(gpus: list[Any]) -> None:
    assert chosen_device("cpu", "fp32") == torch.device("cpu")
    assert gpus == []


@pytest.mark.parametrize(("avx512", "amx"), [(True, False), (False, True), (False, False)])
def test_bf16_on_a_cpu_that_knows_it(
    monkeypatch: pytest.MonkeyPatch, avx512: bool, amx: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx, raising=False)
    if avx512 or amx:
        assert chosen_device("cpu", "bf16") == torch.device("cpu")
    else:
        with pytest.raises(
            TrellisError, match=r"this CPU does not support it .*AMX do\); use fp32"
        ):
            chosen_device("cpu", "bf16")


def test_a_gpu_that_is_not_there_or_does_not_know_bf16(gpus: list[Any]) -> None:
    with pytest.raises(TrellisError, match="'cuda:2': there are 2 of them, from cuda:0"):
        chosen_device("cuda:2", "fp32")
    with pytest.raises(TrellisError, match=r"bf16: Old does not support it .* 8\.0"):
        chosen_device("cuda:0", "bf16")
    assert chosen_device("cuda:1", "bf16").index == 1


def test_a_gpu_that_fails_is_one_line(gpus: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*sizes: int, device: torch.device) -> None:
        raise RuntimeError("CUDA error: out of memory\nCompile with ...")

    monkeypatch.setattr(torch, "zeros", broken)
    with pytest.raises(TrellisError, match=r"cannot be used: CUDA error: out of memory$"):
        chosen_device("cuda", "fp32")


@pytest.mark.parametrize("name", ["meta", "mps", "moon", "cuda:", "cuda:x", "cuda:-1", "cpu:0", ""])
def test_other_devices_are_refused(gpus: list[Any], name: str) -> None:
    with pytest.raises(TrellisError, match="expected auto, cpu, cuda or cuda:N"):
        chosen_device(name, "fp32")


def test_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen_device("auto", "fp32") == torch.device("cpu")
    with pytest.raises(TrellisError, match="'cuda:1': there is no CUDA device here"):
        chosen_device("cuda:1", "fp32")
    with pytest.raises(TrellisError, match="tf32 needs a GPU"):
        chosen_device("auto", "tf32")
