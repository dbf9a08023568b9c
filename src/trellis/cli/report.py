"""``trellis report``: write one page about a run or a model."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import tyro

from .. import skeleton
from ..errors import TrellisError
from ..files import check_writable
from ..paper import Folder, stored
from ..paper.settings import describe, read_named
from ..report import write_page
from ..report.model import BUILT_IN, MODEL, Models, from_built_in, model_report, models_in
from ..report.run import run_report
from ..saving.folder import own_files
from ..skeleton import Skeletons
from ..skeleton.model.recognizer import NotARecognizer
from .data_arguments import OwnFold, OwnProtocol, SkipBad, arg, chosen_fold, fold_for, protocol_for
from .output import console

PAGE = "report.html"
Run = Annotated[
    Path,
    tyro.conf.Positional,
    arg(
        metavar="RUN",
        help="Folder that `trellis reproduce`, `shrink`, `train`, `prune` or `tune` wrote.",
    ),
]
Data = Annotated[
    str | None,
    arg(
        metavar="SOURCE",
        help="Recordings of the run, for moving skeletons and, with a model, for confusions "
        "(default: only hands45 is read by itself).",
    ),
]
Out = Annotated[
    Path | None, arg(metavar="FILE", help="Output file (default: report.html in the folder).")
]
NetworkRow = Annotated[
    str | None,
    arg(metavar="ROW", help="Row of a run to show first, such as viterbi@99.9."),
]
Dense = Annotated[
    Path | None,
    arg(metavar="FOLDER", help="Dense model to show beside a pruned one."),
]


def report(
    run: Run,
    /,
    *,
    data: Data = None,
    out: Out = None,
    network: NetworkRow = None,
    dense: Dense = None,
    protocol: OwnProtocol = None,
    fold: OwnFold = None,
    skip_bad: SkipBad = False,
) -> int:
    """Write one page about a run or a model: accuracy against size, and what is kept.

    The page is one HTML file that opens from disk and needs no network.

      trellis report runs/demo/paper
      trellis report tuned --data hands45 --dense hands
      trellis report table2-fpha-paper-1a2b3c --network viterbi@99.9
    """
    place = run / PAGE if out is None else out
    if not run.is_dir():
        raise TrellisError(f"folder {str(run)!r} not found: give a run or a model")
    if out is None and place.is_symlink():  # in a folder that may be a stranger's
        raise TrellisError(
            f"{str(place)!r} is a symbolic link to {os.readlink(place)!r}: name the page with --out"
        )
    check_writable(place, _files_of(run, dense))
    if is_run(run):
        for name, value in {"dense": dense, "protocol": protocol, "fold": fold}.items():
            if value is not None:
                raise TrellisError(f"--{name} is for a model: a run knows this itself")
        content = of_run(stored(run), data, network)
    else:
        if network is not None:
            raise TrellisError(f"--network {network!r} is for a run: a model is one network")
        content = of_models(_models(run, dense), data, protocol, fold, skip_bad)
    tell(place, content)
    return 0


def _files_of(run: Path, dense: Path | None) -> list[Path]:
    """What a run or a model is made of, and its page is not."""
    patterns = [f"{deep}{name}" for deep in ("", "*/") for name in ("*.json*", "*.safetensors")]
    found = [path for pattern in (*patterns, "table.*") for path in run.glob(pattern)]
    return found if dense is None else [*found, *own_files(dense)]


def _models(run: Path, dense: Path | None) -> Models:
    """Open the models of a folder; for a model that is not of recordings, name its page."""
    try:
        return models_in(run, dense)
    except NotARecognizer as error:
        page = error.folder.parent / PAGE
        if error.folder not in (run, run / MODEL) or error.folder.name != MODEL:
            raise
        if not page.is_file():
            raise
        raise NotARecognizer(error.folder, f"open {str(page)!r}, the page of its run") from None


def is_run(folder: Path) -> bool:
    """Whether it is one of `trellis reproduce` or `demo`, not a model's."""
    return (folder / "settings.json").exists()


def of_run(folder: Folder, data: str | None = None, network: str | None = None) -> dict[str, Any]:
    """What the page of a run shows, with recordings that are named or built in: a folder may be a
    stranger's, and does not say what is read."""
    if data is None and (
        folder.settings.data != BUILT_IN
        or (from_built_in(folder) and read_named(folder.path, folder.data))
    ):
        return run_report(folder, None, network)

    def recordings() -> Skeletons | None:
        settings = folder.settings
        found = _recordings(data, settings.data, settings.protocol, settings.skip_bad)
        if data is None and found is not None and describe(found).digest != folder.data.digest:
            return None  # they have changed since: the page does without them
        return found

    with ThreadPoolExecutor(1) as beside:  # reading takes as long as all the rest
        return run_report(folder, beside.submit(recordings).result, network)


def of_models(
    models: Models,
    data: str | None = None,
    protocol: str | None = None,
    fold: str | None = None,
    skip_bad: bool = False,
) -> dict[str, Any]:
    """What the page of a model shows, with recordings that are named, or those it was trained on
    if they are built in: a folder may be a stranger's, and does not say what is read."""
    model = models.model
    own: dict[str, Any] = next((step for step in reversed(model.history) if step.get("source")), {})
    if data is None and own.get("source") != BUILT_IN:
        for name, value in {"protocol": protocol, "fold": fold}.items():
            if value is not None:
                raise TrellisError(f"--{name} {value!r} divides --data: give a source, too")
        why = f"{own['source']!r} is read only if it is named" if own else None
        return model_report(models, None, None, why)
    asked = BUILT_IN if data is None else data
    try:
        found = skeleton.load_dataset(
            asked, protocol=protocol_for(model, asked, protocol),
            skip_bad=skip_bad or bool(own.get("skip_bad")), progress=True,
        )  # fmt: skip
        model.labels(found)  # what has changed since and does not fit is as good as gone
        chosen = fold_for(model, found, None) if fold is None else None
        unasked = data is None and protocol is None and fold is None
        if unasked and own.get("digest") not in (None, found.digest):
            raise TrellisError(f"{asked!r} holds other recordings now than it was trained on")
    except TrellisError as error:
        if data is not None:
            raise
        return model_report(models, None, None, str(error))
    return model_report(models, found, chosen or chosen_fold(found, fold))


def _recordings(
    asked: str | None, known: str, protocol: str | None, skip_bad: bool
) -> Skeletons | None:
    """Those that are asked for, or else those of the run, if they are still there."""
    try:
        source = known if asked is None else asked
        return skeleton.load_dataset(source, protocol=protocol, skip_bad=skip_bad, progress=True)
    except TrellisError:
        if asked is not None:
            raise
        return None


def tell(place: Path, content: dict[str, Any]) -> None:
    """Write the page, and say so."""
    console().print("\n".join(written(place, content)), soft_wrap=True)


def written(place: Path, content: dict[str, Any]) -> list[str]:
    """Write the page. Where it is and what it lacks, in lines."""
    size = write_page(place, content)
    return [
        f"wrote {place} ({size / 1e6:.1f} MB): open it in a browser",
        *(f"  not there: {item['what']} ({item['how']})" for item in content.get("missing", ())),
    ]
