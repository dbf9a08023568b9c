"""What `trellis.shrink` returns."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from ...files import check_writable
from ...masks import Masks
from ...pages import write_page
from ...paths.audit import Audit
from ...saving.nested import Nested
from ...version import __version__
from ..checkpoint import in_words


@dataclass(frozen=True, eq=False)
class Point:
    """A network of a search.

    Args:
        budget: The budget.
        kept: The connections kept.
        total: The connections of the dense network.
        score: The score on the validation data; -inf if no network of this size is consistent.
    """

    budget: int
    kept: int
    total: int
    score: float


@dataclass(frozen=True)
class Rate:
    """One of several nested networks.

    Args:
        kept: The connections kept.
        total: The connections of the dense network.
        score: The score on the validation data; None without them.
        asked: Whether this size was asked for; the others are between two such.
    """

    kept: int
    total: int
    score: float | None
    asked: bool

    @property
    def bytes(self) -> int:
        """The size of the kept connections: four bytes a weight, four for its place."""
        return 8 * self.kept


@dataclass(frozen=True, eq=False)
class Shrunk:
    """The result of `trellis.shrink`.

    Attributes:
        model: The small model: the one that was given, trained and masked in place. Of several
            rates, it is the largest network.
        masks: What it keeps.
        audit: The count of live connections.
        history: One dictionary for about every hundredth of the run, with ``step``, ``phase``,
            ``loss`` (the mean since the last row), ``kept`` and ``score`` (on the validation data;
            None where it was not measured).
        score: The score of the small model; None without validation data.
        dense_score: The score before pruning; None without validation data.
        search: The networks that ``at_least`` tried, largest first.
        met: Whether the search held the score; None without a search.
        seconds: The time that training took.
        nested: The networks of all rates, if several were asked for; else None.
        rates: Their sizes and scores, largest first, with some sizes between those asked for.
    """

    model: nn.Module
    masks: Masks
    audit: Audit
    history: list[dict[str, Any]]
    score: float | None = None
    dense_score: float | None = None
    search: tuple[Point, ...] = ()
    met: bool | None = None
    seconds: float = 0.0
    nested: Nested | None = None
    rates: tuple[Rate, ...] = ()

    def __repr__(self) -> str:
        kept, total = self.masks.kept, self.masks.total
        share = f"{100 * (1 - kept / total):.5g} % pruned"
        live = f"{100 * self.audit.live_fraction:.4g} % of them live"
        scores = ""
        if self.score is not None:
            before = (
                "" if self.dense_score is None else f" (before pruning: {self.dense_score:.4g})"
            )
            scores = f", score {self.score:.4g}{before}"
        missed = "; no network that was tried holds at_least" if self.met is False else ""
        return f"Shrunk: {kept:,} of {total:,} connections kept ({share}), {live}{scores}{missed}"

    def report(self, path: str | PathLike[str]) -> Path:
        """Write one HTML page: what is kept and live in each layer, and how the run went.

        Args:
            path: The file to write.

        Returns:
            The path.

        Raises:
            TrellisError: The file cannot be written.
        """
        place = Path(path)
        check_writable(place)
        write_page(place, self._content())
        return place

    def _content(self) -> dict[str, Any]:
        name = parametrize.type_before_parametrizations(self.model).__name__
        kept, total = self.masks.kept, self.masks.total
        facts = [
            ["Network", name],
            ["Kept", f"{kept:,} of {total:,} connections, {100 * (1 - kept / total):.5g} % pruned"],
        ]
        if self.score is not None:
            facts.append(["Score on validation data", f"{self.score:.5g}"])
        if self.dense_score is not None:
            facts.append(["Score before pruning", f"{self.dense_score:.5g}"])
        facts += [
            ["Tried in the search", f"{point.kept:,} connections: score {point.score:.5g}"]
            for point in self.search
        ]
        versions = f"trellis {__version__}, python {platform.python_version()}"
        facts += [
            ["Steps", f"{self.history[-1]['step']:,}"],
            ["Time", in_words(self.seconds)],
            ["Versions", f"{versions}, torch {torch.__version__}"],
        ]
        return self.audit.to_dict() | {
            "format": 1,
            "kind": "audit",
            "title": "What is left of this network",
            "target": name,
            "facts": facts,
            "history": self.history,
            "rates": [asdict(rate) | {"bytes": rate.bytes} for rate in self.rates],
        }
