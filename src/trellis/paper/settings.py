"""The settings of a run and a description of its recordings; together they determine it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import shlex
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from ..errors import TrellisError
from ..limits import check_count
from ..schema import RunData, RunSettings, fitted
from ..training import RECIPES, Recipe
from ..training.trainer import PRECISIONS
from .methods import METHODS, method_named, plain, word_for
from .published import TABLE3, TABLE3_RATE

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
        return _as_json(dataclasses.asdict(self))

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
        for name in ("epochs", "tune_epochs"):
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
