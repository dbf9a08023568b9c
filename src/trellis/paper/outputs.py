"""The files that a run ends with."""

from __future__ import annotations

from .folder import Folder
from .render.comma import comma
from .render.latex import latex
from .render.markdown import markdown
from .render.terminal import text
from .tables import report_of


def write_outputs(folder: Folder) -> None:
    """``table.txt``, ``.md``, ``.csv`` and ``.tex``, from what the folder holds now."""
    report = report_of(folder)
    folder.write(
        {
            "table.txt": text(report),
            "table.md": markdown(report),
            "table.csv": comma(report),
            "table.tex": latex(report),
        }
    )
