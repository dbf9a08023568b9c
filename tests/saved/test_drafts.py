"""What is written goes into its draft: whatever a killed process leaves has a known name."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from trellis.files import replacing, write_tensors
from trellis.saved.weights import write_weights


@pytest.mark.parametrize("write", [write_tensors, write_weights])
def test_tensors_are_written_into_the_draft_itself(tmp_path: Path, write: object) -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}
    with replacing(tmp_path / "model.safetensors") as [draft]:
        before = draft.stat().st_ino
        write(draft, tensors)  # type: ignore[operator]
        assert draft.stat().st_ino == before, "moved there from a file of another name"
    found = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
