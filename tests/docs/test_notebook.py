"""The cells of the notebook run in order, and it is stored without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"


def test_cells_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in cells:
        assert not cell["outputs"]
        exec(compile("".join(cell["source"]), str(NOTEBOOK), "exec"), names)
    printed = capsys.readouterr().out
    assert "live: 100%, outputs reached: 10" in printed
    assert "multiplications" in printed
