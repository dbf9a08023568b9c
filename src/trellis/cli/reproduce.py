"""``trellis reproduce``: compute the paper's tables, with its figures beside ours."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from .. import skeleton
from ..errors import TrellisError
from ..limits import check_count
from ..methods.method import method_class
from ..paper import (
    Folder,  # fmt: skip
    Progress,  # fmt: skip
    Settings,  # fmt: skip
    Watch,  # fmt: skip
    report_of,  # fmt: skip
    stored,  # fmt: skip
    write_outputs,  # fmt: skip
)
from ..paper import reproduce as reproduced
from ..paper.render import terminal, width
from ..paper.settings import INVERSE_ALPHAS, METHODS, RATES, ROWS
from ..training import recipe_named
from .data_arguments import (
    CellCpus,
    CellGpus,
    DataSource,
    Device,
    Precision,
    Protocol,
    RayAddress,
    SkipBad,
    arg,
    check_ray,
    chosen_device,
    cluster_of,
)
from .model_arguments import current_folder_first
from .output import ProgressLog, Screen, console, percent, stdout_to_stderr
from .train import Origin, RecipeName

TableName = Annotated[
    Literal["table1", "table2", "table3"],
    tyro.conf.Positional,
    arg(
        help="table1: the dense network among published ones. table2: pruning rates and methods. "
        "table3: the global surrogate by 1/α."
    ),
]
Seeds = Annotated[int, arg(metavar="N", help="Number of networks per figure.")]
Out = Annotated[
    Path | None,
    arg(
        metavar="FOLDER",
        help="Output folder for finished cells and the table (default: a folder in the current "
        "one, named after the settings).",
    ),
]
Rates = Annotated[
    tuple[float, ...],
    arg(metavar="PERCENT", help="Percentages to remove. table2: any number of them. table3: one."),
]
Rows = Annotated[
    tuple[str, ...],
    arg(
        metavar="METHOD",
        help=f"table2: which of {', '.join(METHODS)}. Also any method of `trellis prune`, or "
        "package.module:Class for a method of your own.",
    ),
]
InverseAlphas = Annotated[tuple[float, ...], arg(metavar="1/ALPHA", help="table3: values of 1/α.")]
Epochs = Annotated[
    int | None, arg(metavar="N", help="Epochs of dense training (default: from the recipe).")
]
TuneEpochs = Annotated[
    int | None, arg(metavar="N", help="Epochs of fine-tuning (default: from the recipe).")
]
Chunks = Annotated[
    int, arg(help="Number of equal time intervals over which a recording is averaged.")
]
Heads = Annotated[int, arg(help="Number of attention matrices; fewer for a quick trial.")]
Filters = Annotated[int, arg(help="Channels per head; fewer for a quick trial.")]
Blocks = Annotated[int, arg(help="Number of blocks of attention and convolution.")]
Shared = Annotated[bool, arg(help="One convolution shared by all heads.")]
StackSize = Annotated[
    int | None,
    arg(metavar="N", help="Networks trained together (default: as many as fit in memory)."),
]
Workers = Annotated[
    int | None, arg(metavar="N", help="Processes that prune (default: one per core).")
]
TableOnly = Annotated[
    bool, arg(help="No training: print and write the table of what the folder holds.")
]


def reproduce(
    table: TableName,
    /,
    *,
    data: DataSource = "hands45",
    seeds: Seeds = 5,
    device: Device = "auto",
    recipe: RecipeName = "default",
    precision: Precision = "fp32",
    protocol: Protocol = None,
    skip_bad: SkipBad = False,
    out: Out = None,
    rates: Rates = RATES,
    rows: Rows = ROWS,
    inverse_alphas: InverseAlphas = INVERSE_ALPHAS,
    epochs: Epochs = None,
    tune_epochs: TuneEpochs = None,
    chunks: Chunks = 32,
    heads: Heads = 16,
    filters: Filters = 128,
    blocks: Blocks = 1,
    shared: Shared = False,
    origin: Origin = None,
    stack: StackSize = None,
    workers: Workers = None,
    ray: RayAddress = None,
    cell_cpus: CellCpus = 1,
    cell_gpus: CellGpus = None,
    table_only: TableOnly = False,
) -> int:
    """Compute a table of the paper on any recordings, with the paper's figures beside ours.

    A protocol with several folds is trained on all of them. If a run is stopped, the same command
    continues and gives the same table. The folder then holds table.txt, .md, .csv and .tex.

      trellis reproduce table2 --data fpha:PATH --seeds 5 --device cuda --recipe paper
      trellis reproduce table2 --data hands45 --seeds 2 --rates 90 99 --rows mp tc viterbi --heads 4 --filters 16

    With --ray, a cell is a stack of networks. --stack 1 gives the most cells.
    """  # noqa: E501  (an example must be one line to be copied)
    rows = _registered(rows)
    if table_only and out is not None:
        return show_table(_stored(out, table))
    if workers is not None:
        check_count("workers", workers)
    check_ray(ray, cell_cpus, cell_gpus)
    runner = None
    if ray is None or table_only:
        place = chosen_device(device, precision)
    else:
        runner, place = cluster_of(ray, cell_cpus, cell_gpus, device, precision)
    changes = {"epochs": epochs, "tune_epochs": tune_epochs, "origin": origin}
    settings = Settings(
        table=table, data=data, seeds=seeds,
        recipe=recipe_named(recipe, **{k: v for k, v in changes.items() if v is not None}),
        device=place.type, precision=precision, protocol=protocol, skip_bad=skip_bad,
        rates=rates, rows=rows, inverse_alphas=inverse_alphas, chunks=chunks, heads=heads,
        filters=filters, blocks=blocks, shared=shared, stack=stack,
    )  # fmt: skip
    folder = Path(settings.folder()) if out is None else out
    if table_only:
        return show_table(_stored(folder, table))
    found = skeleton.load_dataset(data, protocol=protocol, skip_bad=skip_bad, progress=True)
    count = cores() if workers is None else workers
    with live_bar() as watch:
        made = reproduced(
            settings, found, folder, device=place, workers=count, runner=runner, watch=watch
        )
    return show_table(made)


def _registered(rows: Sequence[str]) -> tuple[str, ...]:
    """Import the methods that are named as package.module:Class. Return all rows by name."""
    with current_folder_first(), stdout_to_stderr():
        return tuple(method_class(row).name if ":" in row else row for row in rows)


def _stored(path: Path, table: str) -> Folder:
    """Return the run in a folder, if it is one of this table."""
    found = stored(path)
    if (there := found.settings.table) != table:
        raise TrellisError(
            f"{str(path)!r} holds {there}, not {table}: ask for `trellis reproduce {there} "
            f"--table-only --out {path}`, or name another folder"
        )
    return found


def show_table(folder: Folder) -> int:
    """Print a run's table, write it into the run's folder, and say where."""
    write_outputs(folder)
    to = console()
    made = terminal(report_of(folder))
    # As wide as the table in a pipe or a log. On a narrow terminal, lines wrap and none is cut.
    to.width = max(width(made), to.width if to.is_terminal else 0)
    to.print(made)
    to.print(f"\nwrote {folder.path / 'table.txt'}, .md, .csv and .tex", soft_wrap=True)
    return 0


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def live_bar() -> Iterator[Watch]:
    """Show the progress of a run on stderr: a live line on a terminal, a log elsewhere."""
    to = Screen(stderr=True)
    if not to.is_terminal:
        with ProgressLog(to) as log:

            def line(progress: Progress) -> None:
                share = (progress.done - progress.before) / max(progress.work - progress.before, 1)
                log.tell(
                    f"stack {progress.stack} of {progress.stacks}, {progress.doing}",
                    lambda: f"{percent(share)} of the run done{_scores(progress)}",
                )

            yield line
        return
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeRemainingColumn(),
        console=to,
    )
    with bar:
        task = bar.add_task("preparing", total=None, state="")

        def watch(progress: Progress) -> None:
            bar.update(
                task,
                description=f"stack {progress.stack} of {progress.stacks}: {progress.doing}",
                total=progress.work - progress.before,  # this call only, for the time left
                completed=progress.done - progress.before,
                state=f"{_scores(progress)}  left".lstrip(),
            )

        yield watch


def _scores(progress: Progress) -> str:
    """Return loss and accuracy, if networks are being trained."""
    if progress.loss is None or progress.accuracy is None:
        return ""
    return f"  loss {progress.loss:.3f}  training accuracy {100 * progress.accuracy:.1f} %"
