"""``trellis export c``: a model as C99, and as a ``.trellis`` file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

from trellis import skeleton
from trellis.cli.arguments import Inputs, Json, Target, Weights
from trellis.cli.aside import aside, say
from trellis.cli.export.recogniser import described_input, lowered, recogniser_of
from trellis.cli.opened import opened
from trellis.cli.recogniser import fold_for, protocol_for
from trellis.cli.sources import OwnFold, OwnProtocol, SkipBad, check_apart, described
from trellis.cli.tables import percent, print_json
from trellis.errors import TrellisError
from trellis.ship.c.write import write_c
from trellis.ship.prepare import prepared
from trellis.ship.tables.form import Tables
from trellis.ship.tables.interpret import interpreted
from trellis.skeleton import Recogniser

arg = tyro.conf.arg
Out = Annotated[
    Path,
    arg(
        metavar="FOLDER",
        help="Where to write model.h, model.c, main.c, README.md and model.trellis. Made if it is "
        "not there; files of these names are replaced.",
    ),
]
Values = Annotated[
    Literal["fp32", "fp16", "int8"],
    arg(
        help="How weights are stored. int8 has a scale for each row, and is calibrated on --data "
        "where that is given; activations stay fp32."
    ),
]
Calibration = Annotated[
    str | None,
    arg(
        metavar="SOURCE",
        help="Recordings, named as for `trellis train`: int8 is calibrated on their training part, "
        "and accuracy before and after is told on their test part.",
    ),
]
_CALIBRATED = 400  # recordings are enough for means
_AT_ONCE = 128


def c(
    target: Target,
    /,
    *,
    out: Out,
    inputs: Inputs = (),
    weights: Weights = None,
    values: Values = "fp32",
    data: Calibration = None,
    protocol: OwnProtocol = None,
    fold: OwnFold = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> int:
    """Write a model as C99: tables and one small kernel, no allocation, no dependency.

    A model that `trellis train` wrote becomes a program that names the action in a recording,
    a frame a line on standard input; any other, one that reads inputs and prints outputs.

      trellis export c small --out device --values int8 --data hands45
      cc -std=c99 -O2 -o device/model device/model.c device/main.c -lm
      device/model < wave.csv
    """
    if data is not None:
        check_apart(out, data)
    given = opened(target, inputs, weights)
    recogniser = recogniser_of(given, target)
    if data is None and (protocol, fold) != (None, None):
        raise TrellisError("--protocol and --fold divide --data: give a source of recordings")
    if data is not None and recogniser is None:
        raise TrellisError(
            f"--data {data!r}: {target!r} says nothing of recordings; give the folder of a model "
            "that `trellis train` wrote, or leave --data out"
        )
    with aside():
        plain = lowered(given, recogniser)
        parts = None
        if data is not None and recogniser is not None:
            parts = _Parts(recogniser, data, protocol, fold, skip_bad)
        found = prepared(
            plain, values=values, data=None if parts is None else parts.train,
            **({} if recogniser is None else described_input(recogniser)),
        )  # fmt: skip
    written = write_c(found, out)
    accuracy = None if parts is None else parts.accuracy(found)
    if as_json:
        print_json(
            {
                "target": target, "out": str(out), "values": values,
                "weights": written.weights, "units": written.units,
                "multiplications": written.uses, "file_bytes": written.file,
                "table_bytes": written.flash, "memory_bytes": written.ram, "accuracy": accuracy,
            }
        )  # fmt: skip
        return 0
    say(f"wrote {written}")
    if accuracy is not None and parts is not None:
        say(
            f"top-1 {percent(accuracy['model'])} of the model, {percent(accuracy['exported'])} of "
            f"the tables in {values}, {accuracy['same']:,} of {accuracy['recordings']:,} named the "
            f"same; on {parts.where}"
        )
    return 0


class _Parts:
    """Recordings of a source as inputs: some to calibrate on, others to test."""

    def __init__(
        self, recogniser: Recogniser, source: str, protocol: str | None, fold: str | None,
        skip_bad: bool,
    ) -> None:  # fmt: skip
        protocol = protocol_for(recogniser, source, protocol)
        found = skeleton.load(source, protocol=protocol, skip_bad=skip_bad, progress=True)
        labels = recogniser.labels(found)
        part = fold_for(recogniser, found, fold)
        if len(part.test) == 0 or len(part.train) == 0:
            raise TrellisError(f"fold {part.name!r} of {source!r} has no recordings to test")
        spread = np.linspace(0, len(part.train) - 1, min(_CALIBRATED, len(part.train))).astype(int)
        self.train = recogniser.prepared([found.sequences[i] for i in part.train[spread]])
        self.test = recogniser.prepared([found.sequences[i] for i in part.test])
        self.labels = labels[part.test]
        self.network = recogniser.network().eval()
        self.where = f"the test recordings of {described(found)} ({part.name})"

    def accuracy(self, found: Tables) -> dict[str, Any]:
        """Top-1 of the model and of its tables, and how often both say the same."""
        with torch.no_grad():
            mine = _said(self.test, lambda x: self.network(torch.from_numpy(x)).numpy())
        exported = _said(self.test, lambda x: interpreted(found, x))
        return {
            "model": float((mine == self.labels).mean()),
            "exported": float((exported == self.labels).mean()),
            "same": int((mine == exported).sum()),
            "recordings": len(self.labels),
        }


def _said(x: NDArray[np.float32], network: Any) -> NDArray[np.int64]:
    parts = [network(x[i : i + _AT_ONCE]).argmax(axis=1) for i in range(0, len(x), _AT_ONCE)]
    return np.concatenate(parts)
