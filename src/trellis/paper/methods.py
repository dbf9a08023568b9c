"""The rows of the tables: a label, and the options of `trellis.prune` for each.

Beside the rows below, every registered method is a row of its own, with its default options.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..errors import TrellisError
from ..methods import available
from ..methods.method import reference


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
    # The paper does not reserve a path to every class.
    return {"method": "chains", "surrogate": "local", "cover_outputs": False} | options


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
