"""Masked PyTorch = every other form of the model, to 1e-5 of the largest output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.deploy.networks import NETWORKS
from tests.deploy.runners import RUNNERS

SAMPLES = 19  # more than the lanes of a vector, and no multiple of them


@pytest.mark.parametrize("form", RUNNERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_equal(network: str, form: str, tmp_path: Path) -> None:
    model, example = NETWORKS[network]()
    x = torch.randn(SAMPLES, *example.shape[1:])
    with torch.no_grad():
        wanted = model(x).reshape(SAMPLES, -1).numpy()
    assert np.ptp(wanted) > 0
    found = RUNNERS[form](model, x, tmp_path)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
