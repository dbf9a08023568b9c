"""The options of `trellis.prune` beside the budget, checked in one place."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from ..errors import TrellisError
from .method import Method, options_of_class
from .saliency import Saliency

DEFAULT = "viterbi"
# Older releases stored these four for every method, whether it used them or not.
_ONCE_COMMON = ("scope", "surrogate", "inverse_alpha", "row_normalize")


@dataclass(frozen=True)
class Options:
    """A method with its own options, and the options that all methods share."""

    method: Method
    saliency: Saliency = "magnitude"
    consistent: bool | None = None
    stochastic: bool = False
    seed: int = 0
    cover_outputs: bool = True
    ignore: str | Collection[str] = ()

    def __post_init__(self) -> None:
        if self.consistent is not None and not isinstance(self.consistent, bool):
            raise TrellisError(f"consistent={self.consistent!r} must be None, True or False")
        for name in ("stochastic", "cover_outputs"):
            if not isinstance(value := getattr(self, name), bool):  # "no" would count as True
                raise TrellisError(f"{name}={value!r} must be True or False")
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral):
            raise TrellisError(f"seed={self.seed!r} is not a whole number")
        object.__setattr__(self, "seed", int(self.seed))  # numpy's too: files store no others
        if not 0 <= self.seed < 1 << 63:
            raise TrellisError(f"seed={self.seed!r} is out of range: 0 <= seed < 2**63")
        several = isinstance(self.ignore, list | tuple | set | frozenset)
        patterns = self.ignore if several else [self.ignore]
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise TrellisError(
                f"expected a parameter name pattern or a list of them for ignore, got "
                f"{self.ignore!r}"
            )

    @property
    def closes(self) -> bool:
        """Whether the result must be consistent."""
        return self.method.consistent if self.consistent is None else self.consistent

    @property
    def ignored(self) -> tuple[str, ...]:
        """The patterns of ``ignore``."""
        if isinstance(self.ignore, str):
            return (self.ignore,)
        unordered = isinstance(self.ignore, set | frozenset)
        return tuple(sorted(self.ignore) if unordered else self.ignore)

    def record(self) -> dict[str, Any]:
        """Return all options in a form that JSON can store.

        >>> from trellis.methods import Magnitude
        >>> Options(Magnitude(scope="layer")).record()["scope"]
        'layer'
        """
        return {
            "method": self.method.name,
            **self.method.to_dict(),
            "saliency": self.saliency if isinstance(self.saliency, str) else "given",
            "consistent": self.closes,
            "stochastic": self.stochastic,
            "seed": self.seed,
            "cover_outputs": self.cover_outputs,
            "ignore": list(self.ignored),
        }


def current_record(stored: Mapping[str, Any], method: type[Method]) -> dict[str, Any]:
    """Return a record of any release without options that ``method`` does not have.

    >>> from trellis.methods import Viterbi
    >>> current_record({"method": "viterbi", "scope": "global", "seed": 3}, Viterbi)
    {'method': 'viterbi', 'seed': 3}
    """
    own = {option.name for option in options_of_class(method)}
    return {name: v for name, v in stored.items() if name not in _ONCE_COMMON or name in own}
