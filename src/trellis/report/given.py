"""Settings as they are given on a command line, so that it does the same again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..select.options import CONSISTENT


def exact(value: Any) -> str:
    """A number, as short as may be and not rounded; whatever is none, as it is.

    >>> exact(1.0), exact(0.5), exact(2 / 3), exact(3), exact("many")
    ('1', '0.5', '0.6666666666666666', '3', 'many')
    """
    return repr(float(value)).removesuffix(".0") if isinstance(value, float) else str(value)


# What `trellis prune` takes by itself. Its method is always told, and whether what it keeps is
# consistent depends on that.
PRUNE = {"saliency": "magnitude", "scope": "global", "surrogate": "local", "inverse_alpha": 1.0,
         "row_normalize": False, "stochastic": False, "seed": 0, "cover_outputs": True,
         "ignore": []}  # fmt: skip


def pruning(step: Mapping[str, Any]) -> list[str]:
    """The options of a step of pruning that are not what the command takes by itself. A step of an
    earlier release may leave some out.

    >>> step = {"method": "magnitude", "scope": "erk", "consistent": True, "ignore": ["head.*"]}
    >>> " ".join(pruning(step))
    '--method magnitude --consistent yes --scope erk --ignore head.*'

    A history does not say in which files saliencies or counts were: their place is held by a name.

    >>> " ".join(pruning({"saliency": "given", "scope": {"dense.weight": 9}}))
    '--saliency FILE.safetensors --scope FILE.json'
    """
    words = ["--method", str(step["method"])] if "method" in step else []
    own = step.get("method", "viterbi") in CONSISTENT
    if step.get("consistent", own) is not own:
        words += ["--consistent", "no" if own else "yes"]
    for name, usual in PRUNE.items():
        value, option = step.get(name, usual), f"--{name.replace('_', '-')}"
        if value == usual:
            continue
        if name == "ignore":
            for pattern in value if isinstance(value, list) else [value]:
                words += [option, str(pattern)]
        elif name == "cover_outputs":
            words.append("--no-cover-outputs")
        elif value is True:
            words.append(option)
        elif name == "saliency":
            words += [option, "FILE.safetensors"]
        else:
            words += [option, "FILE.json" if isinstance(value, Mapping) else exact(value)]
    return words
