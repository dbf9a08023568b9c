"""The zoo itself: what every example promises, and the sizes of the published networks."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from . import FULL, ZOO, Example


def outputs(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else value


@pytest.mark.parametrize("build", ZOO.values(), ids=ZOO)
def test_small_finite_repeatable_and_exported(build: Callable[[], Example]) -> None:
    model, inputs = build()
    again, same = build()
    assert not model.training
    assert sum(parameter.numel() for parameter in model.parameters()) < 200_000
    with warnings.catch_warnings():
        # torch.export warns that a fused recurrent module holds its weights in a list, too
        warnings.filterwarnings("ignore", message=".*_flat_weights.*")
        exported = torch.export.export(model, inputs, strict=False).module()
    for plain, repeated, traced in zip(
        outputs(model(*inputs)), outputs(again(*same)), outputs(exported(*inputs)), strict=True
    ):
        assert plain.isfinite().all()
        assert plain.equal(repeated)
        torch.testing.assert_close(plain, traced)


@pytest.mark.parametrize(
    "name, weights",
    [("gcn", 2_139_024), ("resnet18", 11_689_512), ("resnet50", 25_557_032)],
)
def test_published_sizes(name: str, weights: int) -> None:
    model, _ = FULL[name]()
    assert sum(parameter.numel() for parameter in model.parameters()) == weights


def test_one_convolution_for_all_heads_is_the_papers_other_size() -> None:
    from .graph import gcn

    model, _ = gcn(form="shared")
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_954_704
