"""``trellis export``: a model in a form that needs no PyTorch."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from torch import Tensor

import trellis

from .. import skeleton
from ..deploy.c.write import write_c
from ..deploy.compact import Compacted
from ..deploy.onnx import SLOWER, needed
from ..deploy.prepare import prepared
from ..deploy.recording import Recording
from ..deploy.tables.form import Tables, interpreted
from ..deploy.tables.lower import tables
from ..deploy.wasm.build import toolchain
from ..deploy.wasm.page import Clip, Scene
from ..deploy.wasm.write import write_wasm
from ..errors import TrellisError
from ..files import check_writable
from ..skeleton import Recognizer, Skeletons
from ..skeleton.data.hands.hand import LAYOUT
from ..skeleton.data.pose import branches, turn_of
from ..skeleton.data.readers.text import shown
from ..skeleton.model.recognizer import NOTES
from .data import number_of
from .data_arguments import (
    Inputs,
    Json,
    OwnFold,
    OwnProtocol,
    SkipBad,
    Target,
    Weights,
    check_apart,
    described,
    fold_for,
    protocol_for,
)
from .model_arguments import Opened, input_files, is_folder, opened
from .output import aside, percent, print_json, say

# What an export has to know of a model that names the action in a recording.


def recogniser_of(given: Opened, target: str) -> Recognizer | None:
    """A recogniser, where the target is a folder that says what the model expects of recordings."""
    knows = is_folder(target) and bool(given.notes and given.notes.get(NOTES))
    return Recognizer.load(target) if knows else None


def example_of(recogniser: Recognizer) -> Tensor:
    """One prepared recording, in shape: (1, joints, chunks * 3)."""
    return torch.zeros(1, len(recogniser.layout.joints), 3 * recogniser.chunks)


def lowered(given: Opened, recogniser: Recognizer | None) -> Tables:
    """A model's tables; a recogniser's begin with a prepared recording."""
    if recogniser is None:
        return tables(given.model, given.examples)
    return tables(recogniser.network(), (example_of(recogniser),))


def described_input(recogniser: Recognizer) -> dict[str, Any]:
    """What the run-time has to know of a recogniser beside its network."""
    normalisation = recogniser.normalization
    return {
        "classes": recogniser.classes,
        "recording": Recording(
            recogniser.layout.joints, recogniser.chunks, normalisation.roots,
            normalisation.scale, recogniser.basis, normalisation.body, normalisation.bones,
            normalisation.length,
        ),
    }  # fmt: skip


def told_input(recogniser: Recognizer, folder: str) -> str:
    """In words, for whoever feeds the network without our C."""
    joints, chunks = recogniser.layout.joints, recogniser.chunks
    names = ", ".join(joints[root] for root in recogniser.normalization.roots)
    each = "x y z of each chunk"
    if recogniser.basis == "cosines":
        each = "x y z of each coefficient of the orthonormal cosine transform (DCT-II) over chunks"
    turned = ""
    if body := recogniser.normalization.body:
        bottom, top, left, right = (joints[joint] for joint in body)
        turned = (
            f" It is turned so that y is from {bottom} to {top} on average, and x from {left} to "
            f"{right}."
        )
    if bones := recogniser.normalization.bones:
        long = recogniser.normalization.length / recogniser.normalization.scale
        turned += (
            f" It is then scaled so that its {len(bones)} bones are {long:.6g} long on average."
        )
    return (
        f"Its input is (batch, {len(joints)}, {3 * chunks}): of each joint, {each}. A recording is "
        f"averaged over {chunks} chunks, centred on {names or 'nothing'} and divided by "
        f"{recogniser.normalization.scale:.6g} first.{turned} In Python, "
        f"trellis.skeleton.Recognizer.load({folder!r}).prepared(recordings) does it; the same is "
        "in the file's metadata, as `recording`."
    )


# ``trellis export c``: a model as C99, and as a ``.trellis`` file.


arg = tyro.conf.arg
CFolder = Annotated[
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
    out: CFolder,
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
        self, recogniser: Recognizer, source: str, protocol: str | None, fold: str | None,
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


# ``trellis export onnx``: the compacted network as ONNX.


OnnxFile = Annotated[
    Path, tyro.conf.arg(metavar="FILE", help="The file to write, such as model.onnx.")
]


def onnx(
    target: Target,
    /,
    *,
    out: OnnxFile,
    inputs: Inputs = (),
    weights: Weights = None,
    as_json: Json = False,
) -> int:
    """Compact a model and write it as ONNX, checked against PyTorch by ONNX Runtime.

    Dead units are taken out first; weights that are mostly zero are stored sparsely. A model that
    `trellis train` wrote reads prepared recordings: how they are prepared is told, and stored in
    the file's metadata with the names of the classes.

      trellis export onnx small --out small.onnx
      trellis export onnx shop.models:detector --weights pruned.safetensors --input 1x3x224x224 --out detector.onnx
    """  # noqa: E501  (an example must be one line to be copied)
    needed("onnx")
    check_writable(out, input_files(target, weights))
    given = opened(target, inputs, weights)
    recogniser = recogniser_of(given, target)
    model, examples, notes = given.model, given.examples, {}
    if recogniser is not None:
        model, examples = recogniser.network(), (example_of(recogniser),)
        about = described_input(recogniser)
        notes = {
            "classes": json.dumps(about["classes"], ensure_ascii=False),
            "recording": json.dumps(about["recording"].notes(), ensure_ascii=False),
        }
    with aside():
        small = model if isinstance(model, Compacted) else trellis.compact(model, examples)
        written = trellis.export_onnx(small, examples, out, notes=notes)
    if as_json:
        found = asdict(written) | {"path": str(written.path), "target": target}
        print_json(found | {"compaction": small.report.to_dict(), "notes": notes})
        return 0
    say(small.report)
    say()
    say(written)
    if recogniser is not None:
        say(told_input(recogniser, target))
    say(f"{percent(written.zeros)} of its weights are zero. {SLOWER}.")
    return 0


# ``trellis export wasm``: a model as WebAssembly, and a page that runs it.


wasm_arg = tyro.conf.arg
BUILT_IN = "hands45"
_wasm_CALIBRATED = 400  # recordings are enough for means
_CLIPS, _FRAMES = 4, 60  # so many, and each as near to two seconds as there are

WasmFolder = Annotated[
    Path,
    wasm_arg(
        metavar="FOLDER",
        help="Where to write model.wasm, model.mjs, README.md and, for a model of recordings, "
        "index.html. Made if it is not there; files of these names are replaced.",
    ),
]
Data = Annotated[
    str | None,
    wasm_arg(
        metavar="SOURCE",
        help="Recordings, named as for `trellis train`: the page shows some of their test part, "
        "and int8 is calibrated on their training part. Without it, the page shows built-in, "
        "synthetic ones.",
    ),
]
Shown = Annotated[
    tuple[str, ...],
    wasm_arg(
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
    out: WasmFolder,
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
    recogniser: Recognizer, source: str | None, protocol: str | None, skip_bad: bool
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
    recogniser: Recognizer, data: Skeletons, show: tuple[str, ...], fold: str | None
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


def _spread(recogniser: Recognizer, data: Skeletons, fold: str | None) -> list[int]:
    part = fold_for(recogniser, data, fold)
    test = part.test if len(part.test) else np.arange(len(data))
    length = np.array([len(data.sequences[i]) for i in test])
    order = test[np.argsort(np.abs(length - _FRAMES), kind="stable")]
    first = [int(order[data.labels[order] == label][0]) for label in np.unique(data.labels[test])]
    return [first[i] for i in np.linspace(0, len(first) - 1, min(_CLIPS, len(first))).astype(int)]


def _training(recogniser: Recognizer, data: Skeletons, fold: str | None) -> object:
    part = fold_for(recogniser, data, fold)
    if len(part.train) == 0:
        raise TrellisError(f"fold {part.name!r} of {data.source!r} has nothing to calibrate on")
    spread = np.linspace(0, len(part.train) - 1, min(_wasm_CALIBRATED, len(part.train))).astype(int)
    return recogniser.prepared([data.sequences[i] for i in part.train[spread]])


Command = (
    Annotated[int, tyro.conf.subcommand("onnx", constructor=onnx)]
    | Annotated[int, tyro.conf.subcommand("c", constructor=c)]
    | Annotated[int, tyro.conf.subcommand("wasm", constructor=wasm)]
)


def export(command: Annotated[Command, tyro.conf.arg(name="")]) -> int:
    """Write a model in a form that needs no PyTorch.

    For ONNX Runtime, for devices with a C compiler, for browsers:

      trellis export onnx small --out small.onnx
      trellis export c small --out device
      trellis export wasm small --out page
    """
    return command
