"""Whether exported C needs the maths library: what its README says is what a linker finds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import trellis
from tests.deploy.tools import tool
from trellis.deploy.recording import Recording

BODY = (0, 1, 0, 2)
# Calls all that there is, so that nothing is left out when it is linked.
PROGRAM = """\
#include "model.h"
static float scratch[TRELLIS_SCRATCH], output[TRELLIS_OUTPUTS], recording[2 * TRELLIS_FRAME];
int main(void) {
    return trellis_input(recording, 2, scratch) + trellis_run(scratch, output, scratch);
}
"""


def linked(folder: Path, cc: str, main: str, *libraries: str) -> str:
    """What the compiler complains of."""
    command = [tool(cc), "-std=c99", "-O2", "-o", "model", "model.c", main, *libraries]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("basis, body", [("chunks", None), ("cosines", None), ("cosines", BODY)])
@pytest.mark.parametrize("activation, call", [(nn.ReLU(), None), (nn.Sigmoid(), "expf")])
def test_it_is_needed_where_the_readme_says_so(
    activation: nn.Module, call: str | None, basis: str, body: tuple[int, ...] | None, cc: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), activation, nn.Linear(5, 2))
    given = Recording(("hip", "neck", "a `hand`"), 4, (0,), 0.4, basis, body)
    trellis.export_c(
        model, torch.zeros(1, 3, 12), tmp_path, classes=["wave", "point"], recording=given
    )
    (tmp_path / "calls.c").write_text(PROGRAM)
    readme = " ".join((tmp_path / "README.md").read_text().split())
    needed = [name for name in (call, body and "sqrtf") if name]
    complaint = linked(tmp_path, cc, "calls.c")
    assert bool(complaint) == bool(needed)
    assert all(f"{name}'" in complaint for name in needed)
    assert ("`model.c` needs the maths library" in readme) == bool(needed)
    assert ("for activations" in readme) == (call is not None)
    assert ("square roots of `trellis_input`" in readme) == (body is not None)
    assert ("y points from `hip` up to `neck`" in readme) == (body is not None)
    assert ("`hip` to `` a `hand` ``" in readme) == (body is not None)
    assert ("cosine transform" in readme) == (basis == "cosines")
    assert "exp'" in linked(tmp_path, cc, "main.c")  # percentages
    assert linked(tmp_path, cc, "main.c", "-lm") == ""


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.GELU()])
def test_rows_of_numbers(activation: nn.Module, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), activation)
    trellis.export_c(model, torch.zeros(1, 4), tmp_path)
    plain = "`-lm` may be left out" in (tmp_path / "README.md").read_text()
    assert plain == isinstance(activation, nn.ReLU)
    assert (linked(tmp_path, "gcc", "main.c") == "") == plain
    assert linked(tmp_path, "gcc", "main.c", "-lm") == ""
