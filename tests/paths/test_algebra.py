"""What the algebras have in common."""

import pytest
import torch

from trellis.paths.algebra import Algebra, BestPath, Boolean, MaxTimes, SumTimes


@pytest.mark.parametrize("algebra", [Boolean(), MaxTimes(), SumTimes(), BestPath()])
def test_over_no_dimension_nothing_is_joined(algebra: Algebra) -> None:
    """To torch itself, no dimension is all of them."""
    x = torch.tensor([[1.0, 0.0, 3.0]]).to(algebra.dtype)
    assert torch.equal(algebra.reduce(x, (), x.shape), x)
    assert algebra.reduce(x, (1,), x.shape).shape == (1, 1)
