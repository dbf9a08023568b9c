"""``trellis export``: write a model as C, ONNX or WebAssembly, which need no PyTorch."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import numpy as np
import torch
import tyro
from numpy.typing import NDArray
from torch import Tensor, nn

import trellis

from .. import skeleton
from ..deploy.compact import Compacted
from ..deploy.exporters import EXPORTERS
from ..deploy.format.read import read
from ..deploy.onnx import SLOWER, needed
from ..deploy.tables.form import interpreted
from ..deploy.wasm.write import Clip, Scene, toolchain
from ..errors import TrellisError
from ..files import check_writable
from ..saving.folder import DESCRIPTION
from ..schema import read_json
from ..skeleton import Fold, Recognizer, Skeletons
from ..skeleton.data.dataset import branches, turn_of
from ..skeleton.data.hands.hand import LAYOUT
from ..skeleton.data.readers.text import shown
from ..skeleton.model.recognizer import NOTES
from .data import number_of
from .data_arguments import (
    Inputs,
    Json,
    OwnFold,
    OwnProtocol,
    OwnSparsity,
    SkipBad,
    Target,
    Weights,
    arg,
    check_apart,
    described,
    fold_for,
    protocol_for,
)
from .model_arguments import call_named, input_files, load_named, model_folder, opened
from .output import percent, print_json, say, stdout_to_stderr

BUILT_IN = "hands45"
_CALIBRATED = 400  # recordings: enough for the means that int8 needs
_BATCH = 128
_CLIPS, _FRAMES = 4, 60  # recordings on a page, and the preferred length of each (two seconds)

CFolder = Annotated[
    Path,
    arg(
        metavar="FOLDER",
        help="Output folder for model.h, model.c, main.c, README.md and model.trellis. Existing "
        "files of these names are replaced.",
    ),
]
OnnxFile = Annotated[Path, arg(metavar="FILE", help="Output file, such as model.onnx.")]
WasmFolder = Annotated[
    Path,
    arg(
        metavar="FOLDER",
        help="Output folder for model.wasm, model.mjs, README.md and, for a model of recordings, "
        "index.html. Existing files of these names are replaced.",
    ),
]
Values = Annotated[
    Literal["fp32", "fp16", "int8"],
    arg(
        help="Storage type of the weights. int8 has one scale per row and is calibrated on --data "
        "if given."
    ),
]
Arithmetic = Annotated[
    Literal["fp32", "int8"],
    arg(
        help="Arithmetic of the activations. int8 takes a quarter of the memory, stores int8 "
        "weights, and needs --calibration."
    ),
]
Calibration = Annotated[
    str | None,
    arg(
        metavar="SOURCE",
        help="Inputs that int8 arithmetic is calibrated on: recordings for a model of recordings "
        "(default: --data); else a .npy file of (samples, ...), or package.module:loaders.",
    ),
]
CalibrationData = Annotated[
    str | None,
    arg(
        metavar="SOURCE",
        help="Recordings, named as for `trellis train`. int8 is calibrated on their training part; "
        "accuracy before and after is measured on their test part.",
    ),
]
PageData = Annotated[
    str | None,
    arg(
        metavar="SOURCE",
        help="Recordings, named as for `trellis train`. The page shows some of their test part; "
        "int8 is calibrated on their training part. Default: built-in synthetic recordings.",
    ),
]
ShownRecordings = Annotated[
    tuple[str, ...],
    arg(
        name="show",
        metavar="INDEX",
        help="Recordings of the data that the page shows: numbers from 0, or names. Default: four "
        "test recordings of different classes. The page contains these recordings.",
    ),
]


@dataclass(frozen=True, eq=False)
class Source:
    """A model to export, its example inputs and, if it names actions, its recogniser."""

    model: nn.Module
    examples: tuple[Tensor, ...]
    recogniser: Recognizer | None = None

    def about(self) -> dict[str, Any]:
        """Return the class names and the input description, for `trellis.export_c`."""
        if self.recogniser is None:
            return {}
        return {"classes": self.recogniser.classes, "recording": self.recogniser.recording}


def source_of(
    target: str, inputs: tuple[str, ...], weights: Path | None, sparsity: float | None = None
) -> Source:
    """Load the model that a command line names, once.

    The folder of a recogniser gives the network that reads prepared recordings,
    (1, joints, chunks * 3).
    """
    if weights is None and _is_recogniser(target):
        return source_of_recogniser(Recognizer.load(model_folder(target), sparsity=sparsity))
    given = opened(target, inputs, weights, sparsity)
    return Source(given.model, given.examples)


def source_of_recogniser(recogniser: Recognizer) -> Source:
    """Return a recogniser's network and an example input for it."""
    example = torch.zeros(1, len(recogniser.layout.joints), 3 * recogniser.chunks)
    return Source(recogniser.network(), (example,), recogniser)


def _is_recogniser(target: str) -> bool:
    """Whether a folder says what its model expects of recordings. `opened` reports bad folders."""
    if not Path(target).is_dir():
        return False
    try:
        head = read_json(model_folder(target) / DESCRIPTION, dict[str, Any], "save the model again")
    except (OSError, TrellisError):
        return False
    notes = head.get("notes")
    return isinstance(notes, dict) and bool(notes.get(NOTES))


def c(
    target: Target,
    /,
    *,
    out: CFolder,
    inputs: Inputs = (),
    weights: Weights = None,
    sparsity: OwnSparsity = None,
    values: Values = "fp32",
    arithmetic: Arithmetic = "fp32",
    calibration: Calibration = None,
    data: CalibrationData = None,
    protocol: OwnProtocol = None,
    fold: OwnFold = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> int:
    """Write a model as C99: tables and one small kernel, without allocation or dependencies.

    A model that `trellis train` wrote becomes a program that names the action in a recording. It
    reads one frame per line from standard input. Any other model becomes a program that reads
    inputs and prints outputs.

      trellis export c small --out device --values int8 --data hands45
      cc -std=c99 -O2 -o device/model device/model.c device/main.c -lm
      device/model < wave.csv

    Of nested networks, it takes any rate: trellis export c all --sparsity 0.995 --out device
    """
    if data is not None:
        check_apart(out, data)
    source = source_of(target, inputs, weights, sparsity)
    _check_data(target, source, {"--data": data}, data, protocol, fold)
    parts = None
    if data is not None and source.recogniser is not None:
        parts = _Parts.of(source.recogniser, data, protocol, fold, skip_bad)
    whole = arithmetic == "int8"
    with stdout_to_stderr():
        given = _calibrated(source, arithmetic, calibration, data, protocol, fold, skip_bad)
        written = trellis.export_c(
            source.model, source.examples, out, values=values, arithmetic=arithmetic,
            calibration=given, data=None if parts is None or whole else parts.train,
            **source.about(),
        )  # fmt: skip
    accuracy = None if parts is None else parts.accuracy(source.model, out / "model.trellis")
    if as_json:
        print_json(
            {
                "target": target, "out": str(out), "values": "int8" if whole else values,
                "arithmetic": arithmetic,
                "loss": None if written.loss is None else asdict(written.loss),
                "weights": written.weights, "units": written.units,
                "multiplications": written.uses, "file_bytes": written.file,
                "table_bytes": written.flash, "memory_bytes": written.ram, "accuracy": accuracy,
            }
        )  # fmt: skip
        return 0
    say(f"wrote {written}")
    if accuracy is not None and parts is not None:
        say(
            f"top-1 {percent(accuracy['model'])} for the model, {percent(accuracy['exported'])} "
            f"for the tables in {'int8 arithmetic' if whole else values}; same answer for "
            f"{accuracy['same']:,} of {accuracy['recordings']:,}, on {parts.where}"
        )
    return 0


def _check_data(
    target: str, source: Source, given: dict[str, Any], data: str | None, protocol: str | None,
    fold: str | None,
) -> None:  # fmt: skip
    """Refuse options about recordings that have no effect here."""
    if data is None and (protocol, fold) != (None, None):
        raise TrellisError("--protocol and --fold divide --data: give a source of recordings")
    if source.recogniser is None and any(given.values()):
        raise TrellisError(
            f"{', '.join(given)}: expected the folder of a model that `trellis train` wrote, got "
            f"{target!r}, which does not describe recordings; leave out {' and '.join(given)}"
        )


def _calibrated(
    source: Source, arithmetic: str, calibration: str | None, data: str | None,
    protocol: str | None, fold: str | None, skip_bad: bool,
) -> Any:  # fmt: skip
    """Return what int8 arithmetic is calibrated on, or None."""
    if arithmetic != "int8":
        if calibration is not None:
            raise TrellisError("--calibration is for --arithmetic int8; --values int8 takes --data")
        return None
    where = calibration or data
    if where is None:
        raise TrellisError("--arithmetic int8: give inputs to calibrate on, with --calibration")
    if source.recogniser is not None:
        protocol = protocol_for(source.recogniser, where, protocol)
        found = skeleton.load_dataset(where, protocol=protocol, skip_bad=skip_bad, progress=True)
        return training_inputs(source.recogniser, found, fold_for(source.recogniser, found, fold))
    if where.endswith(".npy"):
        return _array(where)
    loaders = load_named("--calibration", where)
    loaders = call_named(where, loaders) if callable(loaders) else loaders
    return loaders[0] if isinstance(loaders, tuple) else loaders


def _array(path: str) -> NDArray[np.float32]:
    try:
        found: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise TrellisError(
            f"--calibration {path!r}: cannot be read as an array ({error})"
        ) from None
    return found


@dataclass(frozen=True, eq=False)
class _Parts:
    """Recordings of a source as inputs: some to calibrate on, others to test on."""

    train: NDArray[np.float32]
    test: NDArray[np.float32]
    labels: NDArray[np.int64]
    where: str

    @classmethod
    def of(
        cls, recogniser: Recognizer, source: str, protocol: str | None, fold: str | None,
        skip_bad: bool,
    ) -> _Parts:  # fmt: skip
        protocol = protocol_for(recogniser, source, protocol)
        found = skeleton.load_dataset(source, protocol=protocol, skip_bad=skip_bad, progress=True)
        labels = recogniser.labels(found)
        part = fold_for(recogniser, found, fold)
        if len(part.test) == 0:
            raise TrellisError(f"fold {part.name!r} of {source!r} has no recordings to test on")
        return cls(
            training_inputs(recogniser, found, part),
            recogniser.prepared([found.sequences[i] for i in part.test]),
            labels[part.test],
            f"the test recordings of {described(found)} ({part.name})",
        )

    def accuracy(self, model: nn.Module, exported: Path) -> dict[str, Any]:
        """Return the top-1 of the model and of the file, and how often their answers agree."""
        model.eval()
        found = read(exported)
        with torch.no_grad():
            mine = _answers(self.test, lambda x: model(torch.from_numpy(x)).numpy())
        theirs = _answers(self.test, lambda x: interpreted(found, x))
        return {
            "model": float((mine == self.labels).mean()),
            "exported": float((theirs == self.labels).mean()),
            "same": int((mine == theirs).sum()),
            "recordings": len(self.labels),
        }


def training_inputs(recogniser: Recognizer, data: Skeletons, part: Fold) -> NDArray[np.float32]:
    """Return up to 400 prepared training recordings, evenly spread over the fold."""
    if len(part.train) == 0:
        raise TrellisError(
            f"fold {part.name!r} of {data.source!r} has no recordings to calibrate on"
        )
    spread = np.linspace(0, len(part.train) - 1, min(_CALIBRATED, len(part.train))).astype(int)
    return recogniser.prepared([data.sequences[i] for i in part.train[spread]])


def _answers(
    x: NDArray[np.float32], network: Callable[[NDArray[np.float32]], Any]
) -> NDArray[np.int64]:
    parts = [network(x[i : i + _BATCH]).argmax(axis=1) for i in range(0, len(x), _BATCH)]
    return np.concatenate(parts)


def onnx(
    target: Target,
    /,
    *,
    out: OnnxFile,
    inputs: Inputs = (),
    weights: Weights = None,
    sparsity: OwnSparsity = None,
    as_json: Json = False,
) -> int:
    """Compact a model and write it as ONNX, checked against PyTorch by ONNX Runtime.

    Dead units are removed first. Weights that are mostly zero are stored sparsely. A model that
    `trellis train` wrote reads prepared recordings: the command prints how to prepare them, and
    stores this in the file's metadata with the names of the classes.

      trellis export onnx small --out small.onnx
      trellis export onnx shop.models:detector --weights pruned.safetensors --input 1x3x224x224 --out detector.onnx
    """  # noqa: E501  (an example must be one line to be copied)
    needed("onnx")
    check_writable(out, input_files(target, weights))
    source = source_of(target, inputs, weights, sparsity)
    model, notes = source.model, {}
    if source.recogniser is not None:
        about = source.about()
        notes = {
            "classes": json.dumps(about["classes"], ensure_ascii=False),
            "recording": json.dumps(about["recording"].notes(), ensure_ascii=False),
        }
    with stdout_to_stderr():
        small = model if isinstance(model, Compacted) else trellis.compact(model, source.examples)
        written = trellis.export_onnx(small, source.examples, out, notes=notes)
    if as_json:
        found = asdict(written) | {"path": str(written.path), "target": target}
        print_json(found | {"compaction": small.report.to_dict(), "notes": notes})
        return 0
    say(small.report)
    say()
    say(written)
    if source.recogniser is not None:
        say(input_in_words(source.recogniser, str(model_folder(target))))
    say(f"{percent(written.zeros)} of its weights are zero. {SLOWER}.")
    return 0


def input_in_words(recogniser: Recognizer, folder: str) -> str:
    """Describe the network's input, for use without our C."""
    joints, chunks = recogniser.layout.joints, recogniser.chunks
    names = ", ".join(joints[root] for root in recogniser.normalization.roots)
    each = "x y z of each chunk"
    if recogniser.basis == "cosines":
        each = "x y z of each coefficient of the orthonormal cosine transform (DCT-II) over chunks"
    turned = ""
    centred = f"centred on {names or 'nothing'}"
    if recogniser.normalization.origin == "frame":
        centred = f"every chunk of it centred on {names}"
    if body := recogniser.normalization.body:
        bottom, top, left, right = (joints[joint] for joint in body)
        turned = (
            f" It is turned so that, on average, y points from {bottom} to {top} and x from {left} "
            f"to {right}."
        )
    if bones := recogniser.normalization.bones:
        long = recogniser.normalization.length / recogniser.normalization.scale
        turned += (
            f" It is then scaled so that its {len(bones)} bones are {long:.6g} long on average."
        )
    return (
        f"Its input has the shape (batch, {len(joints)}, {3 * chunks}): for each joint, {each}. A "
        f"recording is averaged over {chunks} chunks, {centred} and divided "
        f"by {recogniser.normalization.scale:.6g} first.{turned} In Python, "
        f"trellis.skeleton.Recognizer.load({folder!r}).prepared(recordings) does this. The file's "
        "metadata has the same description, as `recording`."
    )


def wasm(
    target: Target,
    /,
    *,
    out: WasmFolder,
    inputs: Inputs = (),
    weights: Weights = None,
    sparsity: OwnSparsity = None,
    values: Values = "fp32",
    arithmetic: Arithmetic = "fp32",
    calibration: Calibration = None,
    data: PageData = None,
    show: ShownRecordings = (),
    protocol: OwnProtocol = None,
    fold: OwnFold = None,
    skip_bad: SkipBad = False,
    as_json: Json = False,
) -> int:
    """Write a model as WebAssembly with SIMD: the C of `trellis export c`, built for browsers.

    A model that `trellis train` wrote also becomes a page. The page draws a moving skeleton and
    names the action, frame by frame. It works when opened from disk and needs no network.

      trellis export wasm small --out page
      trellis export wasm small --out page --data csv:recordings --show wave/3 point/1
    """
    toolchain()  # fail now, before a long wait, if no compiler is installed
    if data is not None:
        check_apart(out, data)
    source = source_of(target, inputs, weights, sparsity)
    _check_data(target, source, {"--data": data, "--show": show}, data, protocol, fold)
    scene = train = None
    if source.recogniser is not None:
        recordings = _recordings(source.recogniser, data, protocol, skip_bad)
        scene = scene_of(source.recogniser, recordings, show, fold)
        if data is not None and values == "int8" and arithmetic == "fp32":
            part = fold_for(source.recogniser, recordings, fold)
            train = training_inputs(source.recogniser, recordings, part)
    title = f"{Path(target).resolve().name}: a pruned network in the browser"
    with stdout_to_stderr():
        given = _calibrated(source, arithmetic, calibration, data, protocol, fold, skip_bad)
        written = trellis.export_wasm(
            source.model, source.examples, out, values=values, data=train, scene=scene,
            title=shown(title), arithmetic=arithmetic, calibration=given, **source.about(),
        )  # fmt: skip
    if as_json:
        about = {f"{name}_bytes": size for name, size in asdict(written).items()
                 if name in ("wasm", "page", "recordings")}  # fmt: skip
        counts = {"weights": written.weights, "multiplications": written.uses}
        stored = {"values": "int8" if arithmetic == "int8" else values, "arithmetic": arithmetic}
        print_json({"target": target, "out": str(out), **stored, **counts, **about})
        return 0
    say(f"wrote {written}")
    if scene is not None:
        say(f"open {out / 'index.html'} in a browser; its recordings are from {scene.source}")
    return 0


def _recordings(
    recogniser: Recognizer, source: str | None, protocol: str | None, skip_bad: bool
) -> Skeletons:
    """Load the source; by default the built-in hands, if the model has the same joints."""
    if source is None and recogniser.layout.joints != LAYOUT.joints:
        raise TrellisError(
            f"the model has {len(recogniser.layout.joints)} joints that the built-in hands do not "
            "have, so the page has nothing to show; give recordings of its skeleton with --data"
        )
    name = source or BUILT_IN
    protocol = protocol_for(recogniser, name, protocol)
    found = skeleton.load_dataset(name, protocol=protocol, skip_bad=skip_bad, progress=True)
    if source is not None:
        recogniser.labels(found)  # raises where joints or classes differ
    return found


def scene_of(
    recogniser: Recognizer,
    data: Skeletons,
    show: tuple[str, ...] = (),
    fold: str | None = None,
) -> Scene:
    """Return the recordings to show: those given, or a few test recordings of different classes."""
    numbers = [number_of(data, index) for index in show] or _spread(recogniser, data, fold)
    known = set(recogniser.classes)
    clips = []
    for number in numbers:
        label = data.classes[data.labels[number]]
        # A model that does not know the class cannot be right or wrong about it.
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


# ``trellis export NAME``: targets that users and installed packages register.


OtherOut = Annotated[Path, arg(metavar="PATH", help="The file or folder to write.")]


def registered(name: str) -> Callable[..., int]:
    """Return the command for a registered target."""

    def command(
        target: Target,
        /,
        *,
        out: OtherOut,
        inputs: Inputs = (),
        weights: Weights = None,
        sparsity: OwnSparsity = None,
        as_json: Json = False,
    ) -> int:
        source = source_of(target, inputs, weights, sparsity)
        with stdout_to_stderr():
            written = trellis.export(source.model, source.examples, out, target=name)
        if as_json:
            print_json({"target": target, "out": str(out), "written": str(written)})
        else:
            say(f"wrote {out}" if written is None else written)
        return 0

    about = inspect.getdoc(EXPORTERS.entries.get(name)) or f"Write a model for the target {name!r}."
    command.__doc__ = about.partition("\n\n")[0]
    return command


COMMANDS: dict[str, Callable[..., int]] = {"onnx": onnx, "c": c, "wasm": wasm}
COMMANDS |= {name: registered(name) for name in EXPORTERS.names() if name not in COMMANDS}
if TYPE_CHECKING:
    Command = int
else:
    Command = Union[  # noqa: UP007  (from a list)
        tuple(Annotated[int, tyro.conf.subcommand(n, constructor=f)] for n, f in COMMANDS.items())
    ]


def export(command: Annotated[Command, arg(name="")]) -> int:
    """Write a model in a form that needs no PyTorch.

    For ONNX Runtime, for devices with a C compiler, for browsers:

      trellis export onnx small --out small.onnx
      trellis export c small --out device
      trellis export wasm small --out page
    """
    return command
