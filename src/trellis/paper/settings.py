"""The settings of a run: rows of the tables, recordings, and numbers that determine the result."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import asdict
from torch import Tensor

from ..errors import TrellisError
from ..limits import check_count
from ..methods import available
from ..methods.method import reference
from ..schema import RunData, RunRecordings, RunSettings, fitted, read_json
from ..skeleton import Layout, Normalization, Skeletons, chunked
from ..skeleton.data.dataset import Indices, mean_pose
from ..training import RECIPES, Recipe
from ..training.trainer import PRECISIONS
from .published import TABLE3, TABLE3_RATE


@dataclass(frozen=True)
class Method:
    """A method as a row of a table.

    Args:
        key: Its name in files.
        label: Its name in the table.
        consistent: Whether every kept connection is live.
        stochastic: Whether it samples.
        options: Options of `trellis.prune`, beside sparsity and seed.
        budgets_of: The key of the method whose count in each layer is used.
        paper: Whether it is one of the paper's own.
    """

    key: str
    label: str
    consistent: bool
    stochastic: bool
    options: dict[str, Any] = field(hash=False)
    budgets_of: str | None = None
    paper: bool = False


def _magnitude(**options: Any) -> dict[str, Any]:
    return {"method": "magnitude"} | options


def _chains(**options: Any) -> dict[str, Any]:
    # The paper reserves no paths to classes or through layers.
    covers = {"cover_outputs": False, "cover_layers": False}
    return {"method": "chains", "surrogate": "local"} | covers | options


def _surrogate(inverse_alpha: float, stochastic: bool) -> dict[str, Any]:
    return _chains(surrogate="global", inverse_alpha=inverse_alpha, stochastic=stochastic)


EQ5 = 10.0  # the best 1/α of the paper's Table 3

METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        Method("mp", "Standard MP", False, False, _magnitude(scope="layer"), paper=True),
        Method("stochastic-mp", "Stochastic MP", False, True,
               _magnitude(scope="layer", stochastic=True), paper=True),
        Method("tc", "TC MP", True, False, _chains(), paper=True),
        Method("tc-stochastic", "TC Stoch MP", True, True, _chains(stochastic=True), paper=True),
        Method("tc-eq4", "TC MP, Eq. 4", True, False, _surrogate(1.0, False)),
        Method("tc-eq5", f"TC MP, Eq. 5, 1/α = {EQ5:g}", True, False, _surrogate(EQ5, False)),
        Method("tc-stochastic-eq4", "TC Stoch MP, Eq. 4", True, True, _surrogate(1.0, True)),
        Method("tc-stochastic-eq5", f"TC Stoch MP, Eq. 5, 1/α = {EQ5:g}", True, True,
               _surrogate(EQ5, True)),
        Method("mp-tc-budgets", "MP, layer budgets of TC MP", False, False, _magnitude(),
               budgets_of="tc"),
        Method("global-mp", "Global MP", False, False, _magnitude(scope="global")),
        Method("lamp", "LAMP", False, False, _magnitude(scope="lamp")),
        Method("synflow", "SynFlow", False, False, {"method": "synflow"}),
        Method("phew", "PHEW-like walks", True, True, {"method": "phew"}),
        Method("viterbi", "viterbi", True, False, {"method": "viterbi"}),
    )
}  # fmt: skip


def method_named(key: str) -> Method:
    """Return the row called ``key``: one of the above, or any registered method.

    Nothing is imported, since the key may come from a file.

    >>> method_named("mp").options
    {'method': 'magnitude', 'scope': 'layer'}
    >>> method_named("random").label
    'random'
    """
    if key in METHODS:
        return METHODS[key]
    cls = available().get(key)
    if cls is None:
        known = dict.fromkeys([*METHODS, *available()])
        raise TrellisError(
            f"row {key!r} is unknown; expected one of {', '.join(known)}. A method of your own "
            "must be imported first"
        )
    sampled = cls.sampling == "always"
    return Method(cls.name, cls.name, cls.consistent, sampled, {"method": key})


def word_for(key: str) -> str:
    """Return what names a row on a command line: for a method of one's own, its class.

    >>> word_for("mp"), word_for("random")
    ('mp', 'random')
    """
    cls = None if key in METHODS else available().get(key)
    return key if cls is None else reference(cls)


def plain(number: float) -> str:
    """Return all digits of a number, without a trailing ".0".

    >>> plain(99.9), plain(10.0), plain(99.999991)
    ('99.9', '10', '99.999991')
    """
    return repr(float(number)).removesuffix(".0")


def with_inverse_alpha(inverse_alpha: float) -> Method:
    """Return the method of a row of Table 3: stochastic TC under Eq. 5 with this 1/α.

    >>> with_inverse_alpha(2.5).key
    'alpha-2.5'
    """
    return Method(
        f"alpha-{plain(inverse_alpha)}",
        f"1/α = {plain(inverse_alpha)}",
        True,
        True,
        _surrogate(inverse_alpha, True),
        paper=True,
    )


TABLES = ("table1", "table2", "table3")
RATES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
INVERSE_ALPHAS = tuple(map(float, TABLE3))
ROWS = tuple(METHODS)
_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Settings:
    """The settings of one table.

    Args:
        table: "table1", "table2" or "table3".
        data: The source of the recordings, such as "hands45" or "fpha:PATH".
        seeds: Networks behind each figure.
        recipe: Epochs and learning rates.
        device: "cpu" or "cuda".
        precision: "fp32", "tf32" or "bf16".
        protocol: How to split the recordings (default: that of the data).
        skip_bad: Whether to leave out recordings that cannot be read.
        rates: Pruning rates in percent; table 3 has one.
        rows: Methods of table 2.
        inverse_alphas: Values of 1/α in table 3.
        chunks: Chunks that a recording is averaged to.
        heads: Attention heads of the network.
        filters: Filters per head.
        blocks: Blocks of the network.
        shared: Whether heads share one convolution.
        stack: Networks trained side by side (default: as many as fit).

    Raises:
        TrellisError: A setting is unknown or out of range.

    Example:
        >>> Settings("table2", data="hands45", seeds=3).command()
        'trellis reproduce table2 --data hands45 --seeds 3 --device cpu --recipe default'
    """

    table: str
    data: str
    seeds: int = 5
    recipe: Recipe = RECIPES["default"]
    device: str = "cpu"
    precision: str = "fp32"
    protocol: str | None = None
    skip_bad: bool = False
    rates: tuple[float, ...] = RATES
    rows: tuple[str, ...] = ROWS
    inverse_alphas: tuple[float, ...] = INVERSE_ALPHAS
    chunks: int = 32
    heads: int = 16
    filters: int = 128
    blocks: int = 1
    shared: bool = False
    stack: int | None = None

    def __post_init__(self) -> None:
        if self.table not in TABLES:
            raise TrellisError(f"unknown table {self.table!r}; known: {', '.join(TABLES)}")
        if self.device not in _DEVICES:
            raise TrellisError(f"unknown device {self.device!r}; known: {', '.join(_DEVICES)}")
        if self.precision not in PRECISIONS:
            raise TrellisError(
                f"unknown precision {self.precision!r}; known: {', '.join(PRECISIONS)}"
            )
        for name in ("seeds", "chunks", "heads", "filters", "blocks", "stack"):
            value = getattr(self, name)
            if name == "stack" and value is None:
                continue
            check_count(name, value)
        self._check_rows()

    def _check_rows(self) -> None:
        if self.table == "table1":
            return
        for rate in self.rates:
            if 0 < rate < 1:
                raise TrellisError(
                    f"expected a rate in percent, got {rate!r}; did you mean {plain(100 * rate)}?"
                )
            if not 0 < rate < 100:
                raise TrellisError(
                    f"expected a rate in percent, above 0 and below 100, got {rate!r}; give the "
                    "percentage to remove, such as 99.9"
                )
        for alpha in self.inverse_alphas:
            if not (math.isfinite(alpha) and alpha >= 1):
                raise TrellisError(f"expected a finite 1/α of at least 1, got {alpha!r}")
        for key in self.rows:
            method_named(key)
        if self.table == "table3" and len(self.rates) != 1 and self.rates != RATES:
            raise TrellisError(f"expected one rate for table3, got rates={self.rates}")
        for name in ("rates", "rows", "inverse_alphas"):
            given = getattr(self, name)
            if not given:
                raise TrellisError(f"expected at least one value, got {name}={given!r}")
            if len(set(given)) < len(given):
                raise TrellisError(f"expected different values, got {name}={given!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them."""
        return _as_json(dataclasses.asdict(self)) | {"recipe": self.recipe.to_dict()}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Settings:
        """Return what `to_dict` stored in a file."""
        found = fitted(given, RunSettings, "$.settings")
        return cls(**asdict(found) | {"recipe": Recipe(**found.recipe)})

    def folder(self) -> str:
        """Return a name for the run's folder, which differs for other settings.

        >>> Settings("table2", "npz:my data.npz").folder()  # doctest: +ELLIPSIS
        'table2-npz-my-data-npz-default-...'
        """
        text = json.dumps(self.to_dict(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:6]
        data = re.sub(r"[^A-Za-z0-9]+", "-", self.data).strip("-")[-40:].strip("-") or "data"
        return f"{self.table}-{data}-{self.recipe.name}-{digest}"

    def command(self) -> str:
        """Return the command line that repeats the run, for the table's footer."""
        words = ["trellis", "reproduce", self.table, "--data", self.data]
        words += ["--seeds", str(self.seeds), "--device", self.device]
        words += ["--recipe", self.recipe.name]
        named = RECIPES.get(self.recipe.name)
        for name in ("epochs", "tune_epochs", "origin"):
            value = getattr(self.recipe, name)
            if named is None or value != getattr(named, name):
                words += [f"--{name.replace('_', '-')}", str(value)]
        ours = ("table", "data", "seeds", "device", "recipe")
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name in ours or value == f.default:
                continue
            words.append(f"--{f.name.replace('_', '-')}")
            if isinstance(value, tuple):
                words += [plain(v) if isinstance(v, float) else word_for(v) for v in value]
            elif value is not True:
                words.append(str(value))
        return shlex.join(words)


@dataclass(frozen=True)
class Data:
    """A description of the recordings, known before they are read.

    Args:
        source: Where the recordings come from.
        synthetic: Whether a program made them.
        recordings: The number of recordings.
        frames: The number of frames of all recordings.
        joints: The number of joints.
        classes: The number of classes.
        folds: The names of the folds.
        train: The number of training recordings of each fold.
        test: The number of test recordings of each fold.
        left_out: The number of recordings left out.
        digest: A hash of the recordings.
    """

    source: str
    synthetic: bool
    recordings: int
    frames: int
    joints: int
    classes: int
    folds: tuple[str, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]
    left_out: int
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON can hold it."""
        return _as_json(dataclasses.asdict(self))

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Data:
        """Return what `to_dict` stored in a file."""
        found = fitted(given, RunData, "$.data")
        for name in ("train", "test"):
            if len(getattr(found, name)) != len(found.folds):
                raise TrellisError(
                    f"expected a count for each of {len(found.folds)} folds at $.data.{name}, got "
                    f"{len(getattr(found, name))}"
                )
        return cls(**asdict(found))


def _as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as JSON gives them back, so that they can be compared with stored ones."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def is_benchmark(settings: Settings, data: Data) -> bool:
    """Return whether the figures can be compared with the paper's: all of FPHA, 1:1 split."""
    return (
        settings.data.partition(":")[0] == "fpha"
        and len(data.folds) == 1
        and (data.train, data.test) == ((600,), (575,))
    )


def paper_rate(settings: Settings) -> float:
    """Return the rate of Table 3: the paper's, unless another one is given."""
    return settings.rates[0] if len(settings.rates) == 1 else TABLE3_RATE


@dataclass(frozen=True, eq=False)
class Split:
    """The tensors of one fold: x (recordings, joints, chunks * 3) and y (recordings,)."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


class Recordings:
    """All recordings, chunked once; `fold` returns the tensors of a fold."""

    def __init__(self, skeletons: Skeletons, chunks: int, origin: str = "recording") -> None:
        self.skeletons, self.origin = skeletons, origin
        self.chunked = chunked(skeletons.sequences, chunks)

    def fold(self, number: int, device: torch.device) -> Split:
        """Return the tensors of a fold on a device."""
        fold, labels = self.skeletons.folds[number], self.skeletons.labels
        normalize = Normalization.fit(
            self.chunked[fold.train], self.skeletons.layout, origin=self.origin
        )

        def tensors(which: Indices) -> tuple[Tensor, Tensor]:
            x = torch.from_numpy(normalize(self.chunked[which]))
            return x.to(device), torch.from_numpy(labels[which].astype(np.int64)).to(device)

        return Split(*tensors(fold.train), *tensors(fold.test))


def describe(skeletons: Skeletons) -> Data:
    """Return the description of recordings that a plan needs.

    Raises:
        TrellisError: The data has no folds, or a fold without training or test recordings.
    """
    if not skeletons.folds:
        raise TrellisError(f"{skeletons.source!r} has no split into training and test recordings")
    for fold in skeletons.folds:
        if len(fold.train) == 0 or len(fold.test) == 0:
            raise TrellisError(
                f"{skeletons.source!r}: fold {fold.name!r} has {len(fold.train)} recordings to "
                f"train on and {len(fold.test)} to test on; a table needs both"
            )
    return Data(
        source=skeletons.source,
        synthetic=skeletons.synthetic,
        recordings=len(skeletons),
        frames=skeletons.frames,
        joints=len(skeletons.layout.joints),
        classes=len(skeletons.classes),
        folds=tuple(fold.name for fold in skeletons.folds),
        train=tuple(len(fold.train) for fold in skeletons.folds),
        test=tuple(len(fold.test) for fold in skeletons.folds),
        left_out=len(skeletons.left_out),
        digest=skeletons.digest,
    )


# Written beside the cells, so that a run can be viewed without its recordings.
NAME = "recordings.json"


@dataclass(frozen=True)
class Named:
    """The names of a run's classes and joints, and the labels of its test recordings.

    Args:
        classes: The names of the classes.
        layout: The skeleton.
        labels: The labels of each fold's test recordings, in the order of a cell's ``said``.
        pose: The mean pose, (joints, 3).
    """

    classes: tuple[str, ...]
    layout: Layout
    labels: tuple[tuple[int, ...], ...]
    pose: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, skeletons: Skeletons) -> Named:
        """Return the names and labels of recordings."""
        train = [skeletons.sequences[i] for i in skeletons.folds[0].train]
        pose = mean_pose(train, skeletons.layout.roots).round(4)
        return cls(
            tuple(skeletons.classes),
            skeletons.layout,
            tuple(tuple(skeletons.labels[fold.test].tolist()) for fold in skeletons.folds),
            tuple(map(tuple, pose.tolist())),
        )

    def text(self) -> str:
        """Return the content of ``recordings.json``."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, allow_nan=False) + "\n"


def read_named(folder: Path, data: Data) -> Named | None:
    """Return the names and labels stored in a run's folder; None in runs of older releases.

    Raises:
        TrellisError: The file is damaged or does not fit ``data``.
    """
    path = folder / NAME
    remedy = "delete it, and run the same settings again"
    try:
        given = read_json(path, RunRecordings, remedy)
    except FileNotFoundError:
        return None
    try:
        classes, labels = given["classes"], given["labels"]
        for at, found, expected in (
            ("classes", len(classes), data.classes),
            ("layout.joints", len(given["layout"]["joints"]), data.joints),
            ("pose", len(given["pose"]), data.joints),
            ("labels", tuple(map(len, labels)), data.test),
        ):
            if found != expected:
                raise TrellisError(f"expected {expected} at $.{at}, got {found!s:.60}")
        if max(map(max, labels)) >= data.classes:
            raise TrellisError(f"expected classes below {data.classes} at $.labels, got others")
        return Named(
            tuple(classes),
            Layout.from_dict(given["layout"]),
            tuple(map(tuple, labels)),
            tuple(given["pose"]),
        )
    except TrellisError as error:
        raise TrellisError(f"{str(path)!r}: {error!s:.400}; {remedy}") from None
