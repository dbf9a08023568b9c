"""``trellis demo``: the paper's pruning beside ``trellis shrink``, from data to C and web page."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import torch

import trellis

from .. import skeleton
from ..deploy.wasm.write import toolchain
from ..errors import TrellisError
from ..files import locked, replacing
from ..paper import Folder, Settings, reproduce, write_outputs
from ..paper.plan import rows_of
from ..report.run import run_report
from ..skeleton import Fold, Recognizer, Skeletons
from ..skeleton.data.preparation import COORDINATES
from ..skeleton.shrink import course_named, options_for
from ..training import recipe_named
from ..training.batches import batch_count
from ..training.checkpoint import versions
from .data_arguments import arg, chosen_device, knows_bf16
from .export import scene_of, source_of_recogniser
from .output import console, percent, phases_bar, show, table
from .report import written
from .reproduce import cores, live_bar
from .shrink import MODEL, PAGE, finished, shrink_in

# The paper's network and methods at full size. Only training is short: 360 steps for each
# method, of batches of 100.
SETTINGS = Settings(
    "table2",
    data="hands45",
    seeds=1,
    recipe=recipe_named("quick", epochs=30, tune_epochs=30),
    rates=(99.0, 99.9),
    rows=("mp", "tc"),
)
# The same number of steps: `trellis shrink --course quick --length 0.5`.
COURSE = course_named("quick").times(0.5)

PAPER, DEVICE, WEB, MARK = "paper", "c", "web", "demo.json"
_TIMED = 1000  # inferences

INTRODUCTION = """\
hands45 is synthetic: a program makes a hand of 21 joints that performs {classes} actions.
The network is the paper's ({connections:,} connections). It is pruned to {rates} of
its connections removed, in three ways:
  MP      magnitude pruning, then fine-tuning                          (paper)
  TC      topologically consistent pruning (chains), then fine-tuning  (paper)
  shrink  trellis shrink: augmented data, gradual pruning, fine-tuning (ours)
About three minutes on two cores. You can stop it: the same command continues.
"""

Out = Annotated[Path, arg(metavar="FOLDER", help="Output folder.")]
Overwrite = Annotated[bool, arg(help="Discard an earlier demo and start again.")]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    method: str
    removed: str
    kept: int
    top1: float
    live: float
    steps: int


def demo(*, out: Out = Path("runs/demo"), overwrite: Overwrite = False) -> int:
    """Compare the paper's pruning with `trellis shrink` on built-in data, then export the result.

    Ends with a table, a report page, the smallest network as C and as a web page. Needs no
    download and about three minutes on two cores. A stopped demo continues where it stopped.

      trellis demo
    """
    began = time.monotonic()
    to = console()
    device = chosen_device("auto", "fp32")
    precision = "bf16" if knows_bf16(device) else "fp32"
    settings = dataclasses.replace(SETTINGS, device=device.type, precision=precision)
    data = skeleton.load_dataset(settings.data)
    fold = data.folds[0]
    rates = [f"{rate:g} %" for rate in settings.rates]
    with _begun(out, settings, overwrite=overwrite) as state:
        fresh = Recognizer.fresh(
            data, fold, chunks=settings.chunks, heads=settings.heads,
            **options_for(data.layout) | {"kinds": COORDINATES, "filters": settings.filters},
        )  # fmt: skip
        total = sum(weight.numel() for weight in fresh.model.parameters())
        told = {"classes": len(data.classes), "connections": total, "rates": " and ".join(rates)}
        to.print(INTRODUCTION.format(**told), soft_wrap=True)
        if state:
            to.print(f"{state}\n", soft_wrap=True)
        steps = len(settings.rates) + 3
        to.print(f"[1/{steps}] MP and TC at {' and '.join(rates)}")
        paper = _paper(out / PAPER, settings, data, device)
        rows = _paper_rows(paper, len(fold.train))
        pages = [out / PAPER / PAGE]
        smallest = out
        for number, (rate, sparsity) in enumerate(zip(rates, _sparsities(settings), strict=True)):
            to.print(f"[{number + 2}/{steps}] shrink at {rate}")
            smallest = out / f"shrink-{rate.removesuffix(' %')}"
            rows.append(_shrunk(smallest, fresh, data, fold, sparsity, rate, device, precision))
            pages.append(smallest / PAGE)
        to.print(f"[{steps - 1}/{steps}] the smallest network as C")
        small = Recognizer.load(smallest / MODEL)
        lines = _exported_c(out / DEVICE, small, data.sequences[int(fold.test[0])])
        to.print(f"[{steps}/{steps}] the smallest network as WebAssembly\n")
        lines += _exported_web(out / WEB, small, data)
    _print_table(rows)
    minutes = (time.monotonic() - began) / 60
    to.print(
        f"\nTested on {len(fold.test):,} recordings, trained on {len(fold.train):,}, in "
        f"{precision}, one seed, short training: a few points of difference mean little.\n"
        "live: the part of the kept connections that lies on a path from an input to an output.\n",
        soft_wrap=True,
    )
    to.print("\n".join(f"report   {page}" for page in pages if page.exists()), soft_wrap=True)
    to.print("\n".join(lines), soft_wrap=True)
    to.print(f"\nDone in {minutes:.1f} minutes. Try next:", soft_wrap=True)
    to.print("\n".join(_next(smallest / MODEL)), soft_wrap=True)
    return 0


def _sparsities(settings: Settings) -> list[float]:
    """Return the rates, in percent, as fractions: 99.9 is 0.999, without a rounding error."""
    return [float(Decimal(str(rate)) / 100) for rate in settings.rates]


@contextmanager
def _begun(out: Path, settings: Settings, *, overwrite: bool) -> Iterator[str]:
    """Hold the folder of the demo, and yield a line about an earlier demo in it."""
    mark, now = out / MARK, _description(settings)
    parts = [out / name for name in (PAPER, DEVICE, WEB)]
    parts += [out / f"shrink-{rate:g}" for rate in settings.rates]
    found = [part for part in parts if part.exists()]
    if found and not mark.exists():
        raise TrellisError(
            f"expected an empty folder or an earlier demo, got {str(out)!r} with "
            f"{found[0].name!r} in it; name another folder with --out"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if out.is_file() else error.strerror
        raise TrellisError(f"cannot make the folder {str(out)!r}: {reason}; use --out") from error
    with locked(out):
        same = mark.exists() and _read(mark) == now
        state = ""
        if same and not overwrite:
            state = f"Continuing the demo in {out}."
            if (out / DEVICE).exists() and finished(parts[-1]):
                state = f"{out} holds a finished demo. To run it again: demo --overwrite"
        elif found:
            state = f"Starting again in {out}."
            if not same:
                state += " The earlier demo had other settings or came from another version."
            for part in found:
                part.unlink() if part.is_symlink() else shutil.rmtree(part)
        with replacing(mark) as [draft]:
            draft.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
        yield state


def _description(settings: Settings) -> dict[str, Any]:
    found = {"settings": settings.to_dict(), "course": COURSE.to_dict(), "versions": versions()}
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _paper(out: Path, settings: Settings, data: Skeletons, device: torch.device) -> Folder:
    """Train and prune by the paper's methods, and write their table and page."""
    with live_bar() as watch:
        made = reproduce(settings, data, out, device=device, workers=cores(), watch=watch)
    write_outputs(made)
    page = out / PAGE
    newest = (out / "cells.jsonl").stat().st_mtime_ns
    if not page.exists() or page.stat().st_mtime_ns < newest:
        written(page, run_report(made, lambda: data))
    return made


def _paper_rows(run: Folder, recordings: int) -> list[Row]:
    recipe = run.settings.recipe
    batches = batch_count(recordings, recipe.batch)
    by_row = {record["row"]: record for record in run.records.values() if "kept" in record}
    rows = []
    for row in rows_of(run.settings):
        if (record := by_row.get(row.key)) is None:
            continue  # the method could not prune that far
        name, removed, steps = "dense network (paper)", "0 %", recipe.epochs * batches
        if row.method is not None:
            name = f"{row.method.key.upper()} (paper)"
            removed, steps = f"{row.rate:g} %", steps + recipe.tune_epochs * batches
        live = record["live"] / max(record["kept"], 1)
        rows.append(
            Row(name, removed, record["kept"], record["correct"] / record["test"], live, steps)
        )
    return rows


def _shrunk(
    out: Path, fresh: Recognizer, data: Skeletons, fold: Fold, sparsity: float, rate: str,
    device: torch.device, precision: str,
) -> Row:  # fmt: skip
    """Run `trellis shrink`, or read the finished run, and audit the network."""
    if not finished(out):
        with phases_bar() as watch:
            shrink_in(
                out, fresh, data, fold, COURSE, sparsity=sparsity, device=device,
                precision=precision,
                watch=lambda phase, training: watch(f"shrink at {rate}, {phase}", training),
            )  # fmt: skip
    small = Recognizer.load(out / MODEL)
    step: dict[str, Any] = small.history[-1]
    recipe = step["recipe"]
    epochs = recipe["epochs"] + recipe["prune_epochs"] + recipe["tune_epochs"]
    source = source_of_recogniser(small)
    audit = trellis.audit(source.model, source.examples)
    return Row(
        "shrink (ours)", rate, audit.kept, step["metrics"]["top1"], audit.live_fraction,
        epochs * batch_count(len(fold.train), recipe["batch"]),
    )  # fmt: skip


def _exported_c(out: Path, small: Recognizer, frames: Any) -> list[str]:
    """Write the network as C and time one inference of the same tables."""
    source = source_of_recogniser(small)
    made = trellis.export_c(source.model, source.examples, out, **source.about())
    size = (out / "model.c").stat().st_size
    lines = [
        f"C        {out / 'model.c'}: {size / 1000:.0f} kB of text; {made.flash:,} bytes of "
        f"tables, {made.ram:,} bytes of memory, {made.uses:,} multiplications"
    ]
    try:
        runtime = trellis.Runtime(out / "model.trellis")
        x = runtime.prepared([frames])[0]
        runtime.predict(x)
        times = []
        for _ in range(_TIMED):
            start = time.perf_counter()
            runtime.predict(x)
            times.append(time.perf_counter() - start)
        median = 1e6 * sorted(times)[len(times) // 2]
        lines.append(f"         one inference, called from Python: {median:.0f} microseconds")
    except TrellisError as error:
        lines.append(f"         not timed: {error}")
    return lines


def _exported_web(out: Path, small: Recognizer, data: Skeletons) -> list[str]:
    """Write the network as WebAssembly with a page, if a compiler is there."""
    try:
        toolchain()
    except TrellisError as error:
        return [f"web      not written: {error}"]
    source = source_of_recogniser(small)
    made = trellis.export_wasm(
        source.model, source.examples, out, scene=scene_of(small, data),
        title="A pruned network in the browser", **source.about(),
    )  # fmt: skip
    return [f"web      {out / 'index.html'}: open it in a browser (model.wasm {made.wasm:,} bytes)"]


def _print_table(rows: list[Row]) -> None:
    made = table(["method", "removed", "kept", "top-1", "live", "steps"])
    order = {removed: place for place, removed in enumerate(dict.fromkeys(r.removed for r in rows))}
    last = None
    for row in sorted(rows, key=lambda row: order[row.removed]):
        if last not in (None, row.removed):
            made.add_section()
        last = row.removed
        made.add_row(
            row.method, row.removed, f"{row.kept:,}", percent(row.top1), percent(row.live),
            f"{row.steps:,}",
        )  # fmt: skip
    show(made, console())


def _next(model: Path) -> list[str]:
    call, folder = command(), shlex.quote(str(model))
    return [
        "  # look at a recording",
        f"  {call} data show hands45 12 --out hand.html",
        "  # see which actions the smallest network confuses",
        f"  {call} evaluate {folder} --data hands45",
        "  # longer training: more accurate still, many minutes without a GPU",
        f"  {call} shrink hands45 --sparsity 0.999 --out small",
        "Your own recordings: csv:FOLDER or npz:FILE in place of hands45 "
        "(docs/guides/recordings.md).",
    ]


def command() -> str:
    """Return the words that call this program in a plain shell, from the current folder."""
    own = Path(sys.executable).with_name("trellis")
    found = shutil.which("trellis")
    if found is not None and os.path.abspath(found) == str(own):
        return "trellis"
    if own.exists():
        inside = own.is_relative_to(Path.cwd())
        return shlex.quote(str(own.relative_to(Path.cwd()) if inside else own))
    return f"{shlex.quote(sys.executable)} -m trellis"
