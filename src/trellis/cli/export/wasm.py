"""``trellis export wasm``: a model as WebAssembly, and a page that runs it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from trellis import skeleton
from trellis.cli.arguments import Inputs, Json, Target, Weights
from trellis.cli.aside import aside, say
from trellis.cli.data import number_of
from trellis.cli.export.c import Values
from trellis.cli.export.recogniser import described_input, lowered, recogniser_of
from trellis.cli.opened import opened
from trellis.cli.recogniser import fold_for, protocol_for
from trellis.cli.sources import OwnFold, OwnProtocol, SkipBad, check_apart, described
from trellis.cli.tables import print_json
from trellis.errors import TrellisError
from trellis.ship.prepare import prepared
from trellis.ship.wasm.build import toolchain
from trellis.ship.wasm.scene import Clip, Scene
from trellis.ship.wasm.write import write_wasm
from trellis.skeleton import Recogniser, Skeletons
from trellis.skeleton.hands.anatomy import LAYOUT
from trellis.skeleton.readers.text import shown
from trellis.skeleton.view import branches, turn_of

arg = tyro.conf.arg
BUILT_IN = "hands45"
_CALIBRATED = 400  # recordings are enough for means
_CLIPS, _FRAMES = 4, 60  # so many, and each as near to two seconds as there are

Out = Annotated[
    Path,
    arg(
        metavar="FOLDER",
        help="Where to write model.wasm, model.mjs, README.md and, for a model of recordings, "
        "index.html. Made if it is not there; files of these names are replaced.",
    ),
]
Data = Annotated[
    str | None,
    arg(
        metavar="SOURCE",
        help="Recordings, named as for `trellis train`: the page shows some of their test part, "
        "and int8 is calibrated on their training part. Without it, the page shows built-in, "
        "synthetic ones.",
    ),
]
Shown = Annotated[
    tuple[str, ...],
    arg(
        name="show",
        metavar="INDEX",
        help="Which recordings of the data the page shows: numbers, from 0, or names. Without it, "
        "four test recordings of different classes. They are part of the page: whoever has it, "
        "has them.",
    ),
]


def wasm(
    target: Target,
    /,
    *,
    out: Out,
    inputs: Inputs = (),
    weights: Weights = None,
    values: Values = "fp32",
    data: Data = None,
    show: Shown = (),
    protocol: OwnProtocol = None,
    fold: OwnFold = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> int:
    """Write a model as WebAssembly with SIMD: the C of `trellis export c`, built for browsers.

    A model that `trellis train` wrote also becomes a page that draws a moving skeleton and names
    what it does, frame by frame. It works when opened from disk, and fetches nothing.

      trellis export wasm small --out page
      trellis export wasm small --out page --data csv:recordings --show wave/3 point/1
    """
    toolchain()  # raises where there is none, before anybody has waited
    if data is not None:
        check_apart(out, data)
    given = opened(target, inputs, weights)
    recogniser = recogniser_of(given, target)
    if data is None and (protocol, fold) != (None, None):
        raise TrellisError("--protocol and --fold divide --data: give a source of recordings")
    if recogniser is None and (data is not None or show):
        raise TrellisError(
            f"--data, --show: {target!r} says nothing of recordings; give the folder of a model "
            "that `trellis train` wrote, or leave them out"
        )
    with aside():
        plain = lowered(given, recogniser)
        if recogniser is None:
            found, scene = prepared(plain, values=values), None
        else:
            recordings = _recordings(recogniser, data, protocol, skip_bad)
            scene = _scene(recogniser, recordings, show, fold)
            train = None
            if data is not None and values == "int8":
                train = _training(recogniser, recordings, fold)
            found = prepared(plain, values=values, data=train, **described_input(recogniser))
    title = f"{Path(target).resolve().name}: a pruned network in the browser"
    written = write_wasm(found, out, scene, shown(title))
    if as_json:
        about = {f"{name}_bytes": size for name, size in asdict(written).items()
                 if name in ("wasm", "page", "recordings")}  # fmt: skip
        counts = {"weights": written.weights, "multiplications": written.uses}
        print_json({"target": target, "out": str(out), "values": values, **counts, **about})
        return 0
    say(f"wrote {written}")
    if scene is not None:
        say(f"open {out / 'index.html'} in a browser; its recordings are from {scene.source}")
    return 0


def _recordings(
    recogniser: Recogniser, source: str | None, protocol: str | None, skip_bad: bool
) -> Skeletons:
    """Those of the source; without one, built-in hands, if the model's joints are theirs."""
    if source is None and recogniser.layout.joints != LAYOUT.joints:
        raise TrellisError(
            f"the model's {len(recogniser.layout.joints)} joints are not those of the built-in "
            "hands, so the page has nothing to show: give recordings of its skeleton with --data"
        )
    name = source or BUILT_IN
    protocol = protocol_for(recogniser, name, protocol)
    found = skeleton.load(name, protocol=protocol, skip_bad=skip_bad, progress=True)
    if source is not None:
        recogniser.labels(found)  # says which joints or classes differ
    return found


def _scene(
    recogniser: Recogniser, data: Skeletons, show: tuple[str, ...], fold: str | None
) -> Scene:
    """The recordings that are asked for, else a few of the test part, of different classes."""
    numbers = [number_of(data, index) for index in show] or _spread(recogniser, data, fold)
    known = set(recogniser.classes)
    clips = []
    for number in numbers:
        label = data.classes[data.labels[number]]
        # A model of other classes cannot be right or wrong about it.
        clips.append(
            Clip(data.names[number], data.sequences[number], label if label in known else None)
        )
    return Scene(
        clips, data.layout.bones, branches(data.layout), turn_of(data.layout).tolist(),
        source=shown(described(data)),
    )  # fmt: skip


def _spread(recogniser: Recogniser, data: Skeletons, fold: str | None) -> list[int]:
    part = fold_for(recogniser, data, fold)
    test = part.test if len(part.test) else np.arange(len(data))
    length = np.array([len(data.sequences[i]) for i in test])
    order = test[np.argsort(np.abs(length - _FRAMES), kind="stable")]
    first = [int(order[data.labels[order] == label][0]) for label in np.unique(data.labels[test])]
    return [first[i] for i in np.linspace(0, len(first) - 1, min(_CLIPS, len(first))).astype(int)]


def _training(recogniser: Recogniser, data: Skeletons, fold: str | None) -> object:
    part = fold_for(recogniser, data, fold)
    if len(part.train) == 0:
        raise TrellisError(f"fold {part.name!r} of {data.source!r} has nothing to calibrate on")
    spread = np.linspace(0, len(part.train) - 1, min(_CALIBRATED, len(part.train))).astype(int)
    return recogniser.prepared([data.sequences[i] for i in part.train[spread]])
