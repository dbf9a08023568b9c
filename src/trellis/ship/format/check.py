"""Tables that cannot reach outside their memory, nor read what nobody wrote."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from ..tables.form import Step, Tables
from .layout import MOST_USES


def check(tables: Tables) -> None:
    """Raise unless every address lies in memory and every read follows its write."""
    written = np.zeros(tables.size, bool)
    written[: tables.input_units] = True
    uses = 0
    for number, step in enumerate(tables.steps):
        uses += step.uses
        if uses > MOST_USES:
            raise TrellisError(f"it asks for more than {MOST_USES:,} multiplications")
        _check(step, written, tables.input_units, number)
    _inside(tables.results, tables.size, "an output")
    if not written[tables.results].all():
        raise TrellisError("an output is never computed")


def _check(step: Step, written: NDArray[np.bool_], inputs: int, number: int) -> None:
    if name := step.not_finite():
        raise TrellisError(f"step {number} has a {name} that is not finite")
    if np.isnan(step.act.a) or np.isnan(step.act.b):
        raise TrellisError(f"step {number} has an activation without numbers")
    if step.kind == "max" and (np.any(step.fan == 0) or np.any(step.bias)):
        raise TrellisError(f"step {number} takes the largest of nothing")
    _inside(step.outs, len(written), f"step {number} writes what")
    _inside(step.offsets, len(written), f"step {number} has an offset that")
    if np.any(step.outs < inputs) or len(np.unique(step.outs)) != len(step.outs):
        raise TrellisError(f"step {number} writes to a place twice, or over an input")
    if step.adds and (step.kind == "max" or not written[step.outs].all()):
        raise TrellisError(f"step {number} adds to what is not computed yet")
    now = np.zeros(len(written), bool)
    now[step.outs] = True
    for some, _, term in step.pieces(1 << 20):
        for terms in (step.terms, step.others):
            if len(terms):
                at = (terms[term] + step.offsets[some][:, None]).reshape(-1)
                _inside(at, len(written), f"step {number} reads what")
                if not written[at].all() or now[at].any():
                    raise TrellisError(f"step {number} reads what is not computed yet")
    written |= now


def _inside(places: NDArray[np.int64], size: int, what: str) -> None:
    if len(places) and (int(places.min()) < 0 or int(places.max()) >= size):
        raise TrellisError(f"{what} lies outside its memory")
