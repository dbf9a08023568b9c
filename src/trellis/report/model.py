"""The content of the page of one model, or of a dense model and its shrunk version."""

from __future__ import annotations

import base64
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import TrellisError
from ..paper import Folder
from ..paths.audit import Audit, audit
from ..saving.folder import is_saved, read_folder
from ..schema import CurvePoint, read_json
from ..skeleton import Evaluation, Fold, Frames, Layout, Recognizer, Skeletons
from ..skeleton.data.dataset import Indices, mean_pose, placed, turn_of
from ..skeleton.shrink import filters_for, options_for
from ..training.checkpoint import versions
from .curves import PLACE, VALUE, method, point
from .drawing import shown_network
from .gcn_paths import dense_multiplications, moments_of, weights_of
from .history import (
    commands,
    dense_metrics,
    known,
    last_metrics,
    left_and_right,
    method_of,
    missed,
    spent,
    taught_by,
    told,
)
from .page import Missing, content, skeleton_part

# The networks that a search tried.
#
# A search is judged on training recordings that are held out (validation), so that test recordings
# choose nothing. Figures of the two must not be compared, so they are separate series.


Point = Mapping[str, Any]
_MEASURED = {"validation": "validation_top1", "test": "top1"}  # on what, and what a point calls it


def tried_in(path: Path) -> tuple[CurvePoint, ...]:
    """Read the points of a curve's file: sparsity, kept and, if known, accuracies and live."""
    try:
        return tuple(read_json(path, list[CurvePoint], "delete it to do without it"))
    except FileNotFoundError:
        return ()


def tried_rows(curve: Sequence[Point]) -> list[dict[str, Any]]:
    """Return a row for each accuracy of each point.

    >>> for row in tried_rows([{"sparsity": 0.5, "kept": 8, "validation_top1": 0.75, "top1": 0.5}]):
    ...     print(row["key"], row["label"], row["on"], row["top1"], row["live"])
    validation-1 tried on the way (validation) validation [75.0, None] None
    test-1 tried on the way (test) test [50.0, None] None
    """
    rows = []
    for on, name in _MEASURED.items():
        for number, one in enumerate(curve, 1):
            if one.get(name) is None:
                continue
            rate, kept = float(f"{100 * float(one['sparsity']):.6g}"), float(one["kept"])
            live = None if one.get("live") is None or not kept else 100.0 * one["live"] / kept
            rows.append(
                point(f"{on}-{number}", f"tried-{on}", _label(on), rate, kept, live,
                      {"top1": one[name]}, on=on)
            )  # fmt: skip
    return rows


def tried_methods(curve: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the series of `tried_rows`, each measured on one kind of recordings."""
    return [
        method(f"tried-{on}", _label(on))
        for on, name in _MEASURED.items()
        if any(one.get(name) is not None for one in curve)
    ]


def _label(on: str) -> str:
    return f"tried on the way ({on})"


DENSE, MODEL, CURVE = "dense", "model", "curve.json"
_AT_ONCE = 64  # recordings: their hidden units stay in the processor's cache


@dataclass(frozen=True)
class Models:
    """A model, its dense version if known, and the points of a search (see `tried_in`).

    Of nested networks, the model is the largest; ``nested`` are the others that were asked for, by
    the number of connections that they keep.
    """

    path: Path
    model: Recognizer
    dense: Recognizer | None = None
    curve: tuple[CurvePoint, ...] = ()
    nested: tuple[tuple[int, Recognizer], ...] = ()


def models_in(path: Path, dense: Path | None = None) -> Models:
    """Open a model folder, or a folder with ``model/`` and, optionally, ``dense/`` and a curve."""
    inner = path if is_saved(path) else path / MODEL
    if not is_saved(inner):
        raise TrellisError(
            f"{str(path)!r} holds neither a run nor a model: give what `trellis reproduce`, "
            "`shrink`, `train`, `prune` or `tune` wrote"
        )
    beside = path / DENSE if dense is None else dense
    found = Recognizer.load(beside) if dense is not None or is_saved(beside) else None
    model = Recognizer.load(inner)
    if found is not None and (
        (found.classes, found.layout.joints) != (model.classes, model.layout.joints)
    ):
        raise TrellisError(f"{str(beside)!r} has other classes or joints than {str(inner)!r}")
    several = read_folder(inner).nested
    smaller = () if several is None else tuple(several.budgets[i] for i in several.stops[1:])
    nested = tuple((kept, Recognizer.load(inner, keep=kept)) for kept in smaller)
    return Models(path, model, found, tried_in(path / CURVE), nested)


def model_report(
    models: Models, data: Skeletons | None, fold: Fold | None, why: str | None = None
) -> dict[str, Any]:
    """Return the content of the page of a model.

    Args:
        models: What `models_in` opened.
        data: The recordings to test on, or None.
        fold: The fold to test on, or None.
        why: Why the recordings are missing, if they are.
    """
    model, history = models.model, models.model.history
    sizes = model.model.sizes
    found = audit(model.model, torch.zeros(1, sizes["nodes"], sizes["channels"]))
    said = {
        name: _said(one, data, fold)
        for name, one in (("model", model), ("dense", models.dense))
        if one is not None and data is not None and fold is not None
    }
    tested = {
        name: Evaluation.of(model.labels(data)[fold.test], answers, model.classes)
        for name, answers in said.items()
        if data is not None and fold is not None
    }
    is_pruned = found.kept < found.total
    # A search may end at full size; its network still differs from the dense one.
    of_two = is_pruned or models.dense is not None or bool(models.curve)
    figures = {name: {"top1": e.top1, "mean_class": e.mean_class} for name, e in tested.items()}
    now = figures.get("model") or last_metrics(history)
    beside = {} if models.dense is None else last_metrics(models.dense.history)
    first = figures.get("dense") or beside or dense_metrics(history, of_two) or {}
    if not of_two:
        first = now
    layers = {layer.name: layer.total for layer in found.layers}
    rows = [point("dense", "dense", "Dense", 0.0, float(found.total), 100.0, first)]
    rows[0]["bytes"] = VALUE * found.total
    methods = []
    label = method_of(history)
    if of_two:
        rate = 100 * (1 - found.kept / found.total)
        row = point("model", "model", label, float(f"{rate:.5g}"), float(found.kept),
                    100 * found.live_fraction, now, found)  # fmt: skip
        if not is_pruned:
            row["bytes"] = VALUE * found.total  # nothing is left out: no places need be told
        rows += [*tried_rows(models.curve), row]
        methods = [method("model", label), *tried_methods(models.curve)]
    others = _nested(models, data, fold, label, found) if of_two else _Nested()
    rows += others.rows
    chosen = "model" if of_two else "dense"
    pose = None
    if data is not None and fold is not None:
        pose = mean_pose([data.sequences[i] for i in fold.train], model.layout.roots).tolist()
    moments = moments_of(model.chunks, model.kinds)
    network = shown_network(weights_of(model.model), model.layout, moments, model.basis)
    confusions = {chosen: of_matrix(tested["model"].matrix)} if "model" in tested else {}
    if "dense" in tested:
        confusions["dense"] = of_matrix(tested["dense"].matrix)
    drawn = {
        key: shown_network(weights_of(one.model), one.layout, moments, one.basis)
        for key, one in others.networks.items()
    }
    return content(
        title=f"{models.path.resolve().name}: {_kind(is_pruned, of_two)}",
        source=str(known(history, "source") or "unknown recordings"),
        synthetic=model.synthetic,
        warnings=_warnings(model),
        facts=_facts(models, found, data, fold),
        notes=(),
        missing=_missing(models, data, of_two, why),
        command=" && ".join(commands(history, _architecture(model), _usual(model)))
        or "unknown: this model has no history",
        axis="kept",
        rows=rows,
        methods=methods,
        published=[],
        layers=layers,
        chosen=chosen,
        rule="the largest of nested networks" if others.rows else "this model",
        of_network=f"seed {known(history, 'seed') or 0}",
        networks={chosen: network} | drawn,
        dense_multiplications=dense_multiplications(model.model.sizes),
        confusions=confusions | others.confusions,
        examples=_examples(model, data, fold, said.get("model"), chosen),
        chunks=model.chunks,
        basis=model.basis,
        moments=moments,
        classes=list(model.classes),
        skeleton=skeleton_part(model.layout, pose),
        nested=others.slider(),
    )


@dataclass(frozen=True)
class _Nested:
    """The rows of nested networks below the largest, and the networks that were asked for."""

    rows: tuple[dict[str, Any], ...] = ()
    networks: Mapping[str, Recognizer] = field(default_factory=dict)
    confusions: dict[str, list[int]] = field(default_factory=dict)

    def slider(self) -> dict[str, Any] | None:
        """Return what the page's slider runs over."""
        if not self.rows:
            return None
        keys = ["model", *(row["key"] for row in self.rows)]
        return {"keys": keys, "asked": ["model", *self.networks]}


def _nested(
    models: Models, data: Skeletons | None, fold: Fold | None, label: str, largest: Audit
) -> _Nested:
    """Return the smaller networks; ``largest`` is the audit of the largest one."""
    history = models.model.history
    step = history[-1] if history else {}
    networks = dict(models.nested)
    measured = {rate["kept"]: rate["metrics"] for rate in step.get("rates") or ()}
    if data is not None and (step.get("digest"), step.get("fold")) != (
        data.digest, None if fold is None else fold.name,
    ):  # fmt: skip
        measured = {}  # of other recordings
    rows, confusions = [], {}
    for kept in sorted({*networks, *measured}, reverse=True):
        if kept >= largest.kept:
            continue
        key = f"nested-{kept}"
        metrics: Mapping[str, Any] = measured.get(kept, {})
        found = None
        if kept in networks:
            one = networks[kept]
            sizes = one.model.sizes
            found = audit(one.model, torch.zeros(1, sizes["nodes"], sizes["channels"]))
            if data is not None and fold is not None:
                answers = _said(one, data, fold)
                tested = Evaluation.of(one.labels(data)[fold.test], answers, one.classes)
                metrics = {"top1": tested.top1, "mean_class": tested.mean_class}
                confusions[key] = of_matrix(tested.matrix)
        rate = float(f"{100 * (1 - kept / largest.total):.5g}")
        row = point(key, "model", label, rate, float(kept), 100.0, metrics, found)
        row["bytes"] = (VALUE + PLACE) * kept
        rows.append(row)
    keyed = {f"nested-{kept}": one for kept, one in models.nested}
    return _Nested(tuple(rows), keyed, confusions)


def _kind(is_pruned: bool, of_two: bool) -> str:
    """Return what the page is about, for its title."""
    if is_pruned:
        return "a pruned network"
    return "a network that keeps every connection" if of_two else "a dense network"


def _architecture(model: Recognizer) -> dict[str, Any]:
    """Return the options of the training that describe the network."""
    own = {"chunks": model.chunks, "channels": model.kinds, "basis": model.basis,
           "frame": model.normalization.frame, "size": model.normalization.size,
           "origin": model.normalization.origin}  # fmt: skip
    form = model.model.described()
    begun = "start" if known(model.history, "bones") == "start" else "free"
    bones = "fixed" if form["fixed"] else "limit" if form["limited"] else begun
    return model.model.sizes | own | {"bones": bones}


def _usual(model: Recognizer) -> dict[str, Any]:
    """Return the defaults of `trellis shrink` for such skeletons and channels, by flag."""
    usual = options_for(model.layout) | {"filters": filters_for(model.kinds)}
    return usual | {"channels": usual.pop("kinds")}


def _warnings(model: Recognizer) -> list[str]:
    found = []
    if model.synthetic:
        found.append(
            "SYNTHETIC DATA: trained on recordings that a program made. Figures say how networks "
            "compare, not how well anything recognises real recordings."
        )
    if model.history and (short := missed(model.history[-1])):
        found.append(f"{short[0].upper()}{short[1:]}. This one is as large as that.")
    return found


_UNITS = {"relu": "rectified units", "abs": "units that are absolute values"}
_SIZES = {"recorded": "in the size that was recorded",
          "alike": "all in one size, by the length of their bones"}  # fmt: skip


def _facts(
    models: Models, audit: Audit, data: Skeletons | None, fold: Fold | None
) -> list[tuple[str, str]]:
    model, history = models.model, models.model.history
    found = [("Model", str(models.path))]
    if data is not None and fold is not None:
        kind = "SYNTHETIC, " if data.synthetic else ""
        found.append(
            ("Data", f"{data.source}: {kind}{len(data):,} recordings, {data.frames:,} frames; fold "
             f"{fold.name}: {len(fold.train):,} to train on, {len(fold.test):,} to test on")
        )  # fmt: skip
    sizes = model.model.sizes
    found.append(
        ("Network", f"GCN, {sizes['heads']} heads, {sizes['filters']} filters, {model.chunks} "
         f"chunks, {sizes['blocks']} block{'s' * (sizes['blocks'] > 1)} of "
         f"{_UNITS[sizes['activation']]}: {audit.total:,} weights")
    )  # fmt: skip
    waves = " (waves over the whole recording)" if model.basis == "cosines" else " (moments)"
    if windows := sizes.get("windows"):
        waves = f" (waves over the whole recording, and over {windows} windows of a quarter of it)"
    seen = model.normalization
    found.append(
        ("What it sees", f"{', '.join(model.kinds)} in the basis of {model.basis}{waves}, in the "
         f"frame of the {seen.frame}, {_SIZES[seen.size]}"
         + (", every frame relative to its own roots" if seen.origin == "frame" else ""))
    )  # fmt: skip
    if "course" in (history[-1] if history else {}):
        found.append(("Taught by", taught_by(history[-1])))
        if sides := left_and_right(history[-1]):
            found.append(("Left and right", sides))
    found += [(f"Step {n}: {step.get('step', '?')}", told(step)) for n, step in
              enumerate(history, 1)]  # fmt: skip
    found += spent(history)
    written = ", ".join(f"{name} {number}" for name, number in versions().items())
    found.append(("Page written with", written))
    return found


def _missing(
    models: Models, data: Skeletons | None, of_two: bool, why: str | None
) -> list[Missing]:
    found, again = [], _again(models.path)
    if data is None:
        found.append(
            Missing(
                "which class is taken for which, and moving skeletons: both need recordings"
                + (f", and {why}" if why else ""),
                f"{again} --data SOURCE",
            )
        )
    if of_two and models.dense is None:
        found.append(
            Missing(
                "how each class did before pruning",
                f"{again} --dense FOLDER, the dense model's",
            )
        )
    return found


def _again(path: Path) -> str:
    """Return the shell command that makes the page.

    >>> _again(Path("my runs/a")), _again(Path("-o"))  # a dash would begin an option
    ("trellis report 'my runs/a'", 'trellis report ./-o')
    """
    return shlex.join(["trellis", "report", "./" * str(path).startswith("-") + str(path)])


def _said(model: Recognizer, data: Skeletons, fold: Fold) -> Indices:
    """Return the classes that a model predicts for the test recordings."""
    recordings = [data.sequences[i] for i in fold.test]
    parts = [recordings[i : i + _AT_ONCE] for i in range(0, len(recordings), _AT_ONCE)]
    said = [model.probabilities(part).argmax(axis=1) for part in parts]
    return np.concatenate([np.zeros(0), *said]).astype(np.int64)


def _examples(
    model: Recognizer, data: Skeletons | None, fold: Fold | None, said: Indices | None, row: str
) -> dict[str, Any] | None:
    if data is None or fold is None or said is None:
        return None
    labels = model.labels(data)[fold.test].tolist()
    tested = from_fold(data, fold)
    return {"row": row} | examples(tested, data.layout, labels, said.tolist())


# The confusion matrix, as the page stores it.


def flat(pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Encode labels and predictions as truth, said, count, truth, said, count, …

    >>> flat([(0, 0), (1, 0), (0, 0)])
    [0, 0, 2, 1, 0, 1]
    """
    counts = Counter(pairs)
    return [number for pair in sorted(counts) for number in (*pair, counts[pair])]


def of_matrix(matrix: NDArray[np.int64]) -> list[int]:
    """
    >>> of_matrix(np.array([[2, 0], [1, 0]]))
    [0, 0, 2, 1, 0, 1]
    """
    places = np.argwhere(matrix)
    return [int(n) for row, column in places for n in (row, column, matrix[row, column])]


def pooled(
    said: Iterable[tuple[int, Sequence[int]]], labels: Sequence[Sequence[int]]
) -> list[int] | None:
    """Sum over networks: each is a fold and its predictions for the fold's test recordings."""
    pairs: list[tuple[int, int]] = []
    for fold, answers in said:
        if fold >= len(labels) or len(labels[fold]) != len(answers):
            return None
        pairs += zip(labels[fold], answers, strict=True)
    return flat(pairs) if pairs else None


# The test recordings that a page shows: two of each class.


# From numbers of test recordings to their names and frames.
Tested = Callable[[Sequence[int]], list[tuple[str, Frames]]]

# hands45 in a run's settings: the set is built in, and its bytes are the same everywhere.
BUILT_IN, DIGEST = "hands45", "f0651516d64d80365fccb245920dcea102d731fa9dc900cbb482f87dd6c1d0f0"


def from_fold(data: Skeletons, fold: Fold) -> Tested:
    def these(which: Sequence[int]) -> list[tuple[str, Frames]]:
        at = [int(fold.test[i]) for i in which]
        return [(data.names[i], data.sequences[i]) for i in at]

    return these


def from_built_in(folder: Folder) -> Tested | None:
    """Return the shown recordings of a run on the built-in set; None for any other run.

    To make all of hands45 takes longer than the rest of a page.
    """
    if (folder.settings.data, folder.data.digest) != (BUILT_IN, DIGEST):
        return None
    from ..skeleton.data.hands import some_of_hands45

    return some_of_hands45


FRAMES = 40  # at most; the browser interpolates
GRID = 127  # a byte for each coordinate: as fine as the picture is


def examples(
    tested: Tested, layout: Layout, labels: Sequence[int], said: Sequence[int]
) -> dict[str, Any]:
    """Return, by class, the first recording that is classified correctly and the first that is not.

    ``labels`` are the classes of the recordings tested on, ``said`` those that a network gave them.
    """
    first: dict[tuple[int, bool], int] = {}
    for number, (truth, answer) in enumerate(zip(labels, said, strict=True)):
        first.setdefault((int(truth), truth == answer), number)
    found: dict[str, dict[str, Any]] = {
        str(truth): {"right": None, "wrong": None} for truth, _ in first
    }
    shown = tested(list(first.values()))
    for ((truth, right), number), (name, frames) in zip(first.items(), shown, strict=True):
        found[str(truth)]["right" if right else "wrong"] = {
            "name": name,
            "length": len(frames),
            **_moving(frames, layout),
            "said": int(said[number]),
        }
    return {"grid": GRID, "classes": found}


def _moving(frames: NDArray[np.float32], layout: Layout) -> dict[str, Any]:
    points = placed(thinned(frames, FRAMES), turn_of(layout), GRID)
    whole = (points + GRID).astype(np.uint8)
    return {"frames": len(whole), "bytes": base64.b64encode(whole.tobytes()).decode("ascii")}


def thinned(frames: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    """Return at most ``most`` frames, evenly spaced from the first to the last.

    >>> thinned(np.arange(9.0, dtype=np.float32).reshape(9, 1, 1), 3).ravel()
    array([0., 4., 8.], dtype=float32)
    """
    if len(frames) <= most:
        return frames
    at = np.linspace(0, len(frames) - 1, most)
    low = np.floor(at).astype(np.int64)
    high = np.minimum(low + 1, len(frames) - 1)
    part = (at - low)[:, None, None]
    mixed = (1 - part) * frames[low] + part * frames[high]
    return mixed.astype(np.float32)
