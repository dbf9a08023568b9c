"""A disk that is full while exporting: one clear error, and nothing half-written stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="only Unix limits how large a file may become")

# A file that would grow beyond the limit fails as one on a full disk does.
PROGRAM = """
import resource, signal, sys
from pathlib import Path
import torch, trellis
from trellis.deploy.tables import tables
from trellis.deploy.format import write

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
model, x, folder = torch.nn.Linear(300, 200), torch.zeros(1, 300), Path(sys.argv[1])
for export in (
    lambda: trellis.export_c(model, x, folder / "old"),
    lambda: trellis.export_c(model, x, folder / "new" / "deep"),
    lambda: trellis.export_wasm(model, x, folder / "page"),
    lambda: write(tables(model, x), folder / "model.trellis"),
):
    try:
        export()
    except trellis.TrellisError as error:
        print(error)
"""


def test_nothing_stays(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="needs ziglang: pip install 'trellis-prune[wasm]'")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "model.c").write_text("what was there")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == 4 and all(line.endswith("File too large") for line in told)
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*")} == {
        Path("old"), Path("old/model.c")
    }  # fmt: skip
    assert (tmp_path / "old" / "model.c").read_text() == "what was there"
