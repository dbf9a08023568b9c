"""What a run is asked to do, and on what data: together they decide everything about it."""

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
    """One table to make. Rates are in percent; ``stack`` None is as many networks as fit.

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
            raise TrellisError(f"{self.table!r} is no table: there are {', '.join(TABLES)}")
        if self.device not in _DEVICES:
            raise TrellisError(f"device={self.device!r} is unknown: {' or '.join(_DEVICES)}")
        if self.precision not in PRECISIONS:
            raise TrellisError(f"precision={self.precision!r} is unknown: {', '.join(PRECISIONS)}")
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
                    f"a rate of {rate!r} would remove less than a hundredth: rates are "
                    f"percentages; did you mean {plain(100 * rate)}?"
                )
            if not 0 < rate < 100:
                raise TrellisError(
                    f"a rate of {rate!r} is out of range: it is the percentage removed, above 0 "
                    "and below 100, such as 99.9"
                )
        for alpha in self.inverse_alphas:
            if not (math.isfinite(alpha) and alpha >= 1):
                raise TrellisError(f"1/α = {alpha!r} is out of range: it is a number from 1 up")
        for key in self.rows:
            method_named(key)
        if self.table == "table3" and len(self.rates) != 1 and self.rates != RATES:
            raise TrellisError(f"table3 has one rate; rates are {self.rates}: give one of them")
        for name in ("rates", "rows", "inverse_alphas"):
            given = getattr(self, name)
            if not given:
                raise TrellisError(f"{name.replace('_', ' ')}: give at least one")
            if len(set(given)) < len(given):
                raise TrellisError(f"{name.replace('_', ' ')} name something twice: {given}")

    def to_dict(self) -> dict[str, Any]:
        """For a file: what JSON can hold."""
        return _thawed(dataclasses.asdict(self))

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Settings:
        """The inverse of `to_dict`, from a file."""
        found = fitted(given, RunSettings, "$.settings")
        return cls(**asdict(found) | {"recipe": Recipe(**found.recipe)})

    def folder(self) -> str:
        """A name for the run's folder: readable, and another for other settings.

        >>> Settings("table2", "npz:my data.npz").folder()  # doctest: +ELLIPSIS
        'table2-npz-my-data-npz-default-...'
        """
        text = json.dumps(self.to_dict(), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:6]
        data = re.sub(r"[^A-Za-z0-9]+", "-", self.data).strip("-")[-40:].strip("-") or "data"
        return f"{self.table}-{data}-{self.recipe.name}-{digest}"

    def command(self) -> str:
        """The command line that asks for this again."""
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
    """What the run needs to know of its recordings before it sees them.

    ``train`` and ``test`` count recordings, one number for each fold; ``digest`` tells these
    recordings from any others.
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
        return _thawed(dataclasses.asdict(self))

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Data:
        """The inverse of `to_dict`, from a file."""
        found = fitted(given, RunData, "$.data")
        for name in ("train", "test"):
            if len(getattr(found, name)) != len(found.folds):
                raise TrellisError(
                    f"expected a count for each of {len(found.folds)} folds at $.data.{name}, got "
                    f"{len(getattr(found, name))}"
                )
        return cls(**asdict(found))


def _thawed(values: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives them back, so that what was stored can be compared with what is asked."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def is_benchmark(settings: Settings, data: Data) -> bool:
    """Whether the figures may stand beside the paper's: FPHA under its 1:1 split, whole."""
    return (
        settings.data.partition(":")[0] == "fpha"
        and len(data.folds) == 1
        and (data.train, data.test) == ((600,), (575,))
    )


def paper_rate(settings: Settings) -> float:
    """The rate of Table 3: the paper's, or the one asked for in its place."""
    return settings.rates[0] if len(settings.rates) == 1 else TABLE3_RATE
