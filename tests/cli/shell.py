"""Commands as a shell runs them, in a process of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import trellis

SOURCE = Path(trellis.__file__).parents[1]


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A line of bash in a folder, with this checkout's Trellis."""
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
