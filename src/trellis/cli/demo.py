"""``trellis demo``: the paper's network on built-in recordings, pruned in three ways."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import tyro

from .. import skeleton
from ..paper import Settings, plan_of, reproduce, stored
from ..paper.recordings import describe
from ..report.run import run_report
from ..skeleton import Skeletons
from ..training import RECIPES
from ..training.provenance import versions
from .device import keep_freed
from .output import console
from .report import tell
from .reproduce import cores, live_bar, show_table

SETTINGS = Settings(
    "table2",
    data="hands45",
    seeds=1,
    recipe=RECIPES["quick"],
    rates=(90.0, 99.0, 99.9),
    rows=("mp", "tc", "viterbi"),
)

FIRST = """\
hands45 is synthetic: made by this program, a hand of 21 joints that performs 45 actions.
Training the paper's graph network on it (2,139,024 connections), then pruning it by magnitude
(MP), by the paper's chains (TC) and by best path (viterbi), and tuning each. A few minutes on two
cores; stop it when you like, and call again to go on.
"""

NEXT = """
Done in {minutes:.1f} minutes, with one seed and brief training: differences of a few points mean
little. "live" is the share of kept connections that lie on a path from an input to an output.

Try next:
  trellis data show hands45 12 --out hand.html         look at a recording
  trellis shrink --data hands45 --sparsity 0.99 --course quick --out small
                                                       prune while training: far more accurate
  trellis evaluate small/model --data hands45          which actions suffer
  trellis export c small/model --out device            C for a device, a few kilobytes
  trellis reproduce table2 --data hands45 --device cuda --precision bf16
                                                       the whole table, five seeds, on a GPU
Recordings of your own: csv:FOLDER or npz:FILE in place of hands45; docs/skeletons.md says how."""


def demo(
    out: Annotated[
        Path, tyro.conf.arg(metavar="FOLDER", help="Where the run is kept while it goes on.")
    ] = Path("runs/demo"),
) -> int:
    """Train the paper's network on built-in recordings, prune it in three ways, and compare.

    Needs no download, and a few minutes on two cores. A run that was stopped goes on.

      trellis demo
    """
    began = time.monotonic()
    to = console()
    to.print(FIRST, soft_wrap=True)
    found = skeleton.load_dataset(SETTINGS.data)
    if _is_over(out, found):
        place = out.resolve()  # it may be a link
        shutil.rmtree(place)  # an earlier demo: this one is to be seen working
        place.mkdir()
    keep_freed()
    with live_bar() as watch:
        made = reproduce(SETTINGS, found, out, workers=cores(), watch=watch)
    show_table(made)
    tell(out / "report.html", run_report(made, lambda: found))
    to.print(NEXT.format(minutes=(time.monotonic() - began) / 60), soft_wrap=True)
    return 0


def _is_over(folder: Path, found: Skeletons) -> bool:
    """Whether an earlier demo lies there that ended, or that another version of Trellis began."""
    if not (folder / "settings.json").exists():
        return False
    run = stored(folder)
    if run.settings != SETTINGS:
        return False  # somebody's own run: it is not ours to remove
    if (run.data, run.versions) != (describe(found), versions()):
        return True
    cells = [cell for part in plan_of(SETTINGS, run.data).stacks for cell in part.cells]
    return all(cell.key in run.records for cell in cells)
