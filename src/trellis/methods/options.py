"""What a caller of `prune` may ask for, checked in one place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal

from ..errors import TrellisError
from .saliency import Saliency

METHODS = ("magnitude", "chains", "viterbi", "synflow", "phew", "random")
CONSISTENT = ("chains", "viterbi", "phew")
WALKS = ("chains", "phew")
SPREAD = ("magnitude", "random")  # methods that know scopes
MULTIPLY = ("chains", "viterbi", "synflow", "phew")  # methods that multiply along paths


@dataclass(frozen=True)
class Options:
    """The options of `trellis.prune` but the budget. ``consistent`` None becomes what the
    method promises."""

    method: str
    saliency: Saliency
    scope: str | Mapping[str, int]
    consistent: bool | None
    surrogate: Literal["local", "global"]
    inverse_alpha: float
    row_normalize: bool
    stochastic: bool
    seed: int
    cover_outputs: bool
    ignore: str | Sequence[str]

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise TrellisError(
                f"method={self.method!r} is unknown: it is one of {', '.join(METHODS)}"
            )
        if self.surrogate not in ("local", "global"):
            raise TrellisError(f"surrogate={self.surrogate!r} is unknown: 'local' or 'global'")
        self._plain_numbers()
        alpha = self.inverse_alpha
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not alpha >= 1:
            raise TrellisError(f"inverse_alpha={alpha!r} must be a number from 1 to infinity")
        if self.consistent is not None and not isinstance(self.consistent, bool):
            raise TrellisError(f"consistent={self.consistent!r} must be None, True or False")
        for name in ("row_normalize", "stochastic", "cover_outputs"):
            if not isinstance(value := getattr(self, name), bool):  # "no" would count as yes
                raise TrellisError(f"{name}={value!r} must be True or False")
        if self.scope != "global" and self.method not in SPREAD:
            raise TrellisError(
                f"scope={self.scope!r} goes with method 'magnitude' or 'random'; "
                f"{self.method!r} ranks globally"
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise TrellisError(f"seed={self.seed!r} is not a whole number")
        if not 0 <= self.seed < 1 << 63:
            raise TrellisError(f"seed={self.seed!r} is out of range: 0 <= seed < 2**63")
        several = isinstance(self.ignore, list | tuple | set | frozenset)
        patterns = self.ignore if several else [self.ignore]
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise TrellisError(f"ignore={self.ignore!r} is not a parameter name pattern or several")

    def _plain_numbers(self) -> None:
        """numpy's numbers as Python's: a file's header holds no others."""
        given: dict[str, Any] = {"seed": self.seed, "inverse_alpha": self.inverse_alpha}
        for name, value in given.items():
            if not isinstance(value, bool | int | float) and isinstance(value, Real):
                plain = int(value) if isinstance(value, Integral) else float(value)
                object.__setattr__(self, name, plain)
        if isinstance(self.scope, Mapping):
            counts = {
                name: int(n) if isinstance(n, Integral) and not isinstance(n, bool) else n
                for name, n in self.scope.items()
            }
            object.__setattr__(self, "scope", counts)

    @property
    def closes(self) -> bool:
        """Whether the result must be consistent."""
        return self.method in CONSISTENT if self.consistent is None else self.consistent

    @property
    def ignored(self) -> tuple[str, ...]:
        if isinstance(self.ignore, str):
            return (self.ignore,)
        unordered = isinstance(self.ignore, set | frozenset)
        return tuple(sorted(self.ignore) if unordered else self.ignore)

    def record(self) -> dict[str, Any]:
        """For a file's header: what JSON can hold."""
        given = self.saliency if isinstance(self.saliency, str) else "given"
        alpha = self.inverse_alpha if math.isfinite(self.inverse_alpha) else "inf"
        scope = dict(self.scope) if isinstance(self.scope, Mapping) else self.scope
        plain = {
            f.name: v for f in fields(self) if isinstance(v := getattr(self, f.name), str | int)
        }
        return plain | {
            "saliency": given,
            "inverse_alpha": alpha,
            "scope": scope,
            "consistent": self.closes,
            "ignore": list(self.ignored),
        }
