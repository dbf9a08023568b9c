"""Example inputs, typed and not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.cli.conftest import Run
from trellis.cli.model_arguments import TYPES, example_inputs


@pytest.mark.parametrize(("name", "kind"), TYPES.items())
def test_every_type(name: str, kind: torch.dtype) -> None:
    (x,) = example_inputs([f"{name}:2x3"])
    assert x.shape == (2, 3) and x.dtype == kind


def test_floats_are_the_same_every_time_and_not_all_alike() -> None:
    first, second = example_inputs(["4x4", "4x4"])
    again = example_inputs(["4x4", "4x4"])
    assert torch.equal(first, again[0]) and torch.equal(second, again[1])
    assert not torch.equal(first, second) and first.std() > 0.1


def test_integers_are_0_and_booleans_true_unless_a_value_is_given() -> None:
    words = ["int64:2", "bool:2", "int64:2=1", "bool:2=0", "2=0.5", "int8:1=-3"]
    found = [x.tolist() for x in example_inputs(words)]
    assert found == [[0, 0], [True, True], [1, 1], [False, False], [0.5, 0.5], [-3]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("1x", "'1x': expected [TYPE:]SHAPE"),
        ("3,224", "expected [TYPE:]SHAPE"),
        ("-1x3", "expected [TYPE:]SHAPE"),
        ("1x0x3", "is empty"),
        ("string:1", "unknown type 'string'; expected float32"),
        ("int64:1=x", "cannot hold the value 'x'"),
        ("uint8:1=256", "cannot hold the value '256'"),
        ("bool:1=2", "cannot hold the value '2'"),
        ("1=nan", "cannot hold the value 'nan'"),
        ("9999999999999999x99", "cannot be made"),
    ],
)
def test_what_is_no_input(fails: Callable[..., str], words: str, message: str) -> None:
    assert message in fails("audit", "tests.cli.models:mlp", f"--input={words}")


def test_no_input_at_all(fails: Callable[..., str]) -> None:
    assert "--input 1x3x32x32" in fails("audit", "tests.cli.models:mlp")


def test_several_inputs_in_order(run: Run) -> None:
    ran = run(
        "audit", "tests.cli.models:Masked", "--input", "1x3", "--input", "int64:1x3=1", "--json"
    )
    assert ran.status == 0, ran.err
    assert ran.json["live"] == 6
