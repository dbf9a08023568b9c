"""``trellis audit``: find the dead connections of a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import trellis

from ..errors import TrellisError
from ..files import check_writable
from ..masks.masked import check_model
from ..report import write_page
from ..report.page import audit_report
from .data_arguments import Inputs, Json, Target, Weights, arg
from .model_arguments import input_files, opened
from .output import print_audit, print_json, say, stdout_to_stderr

MasksIn = Annotated[
    Path | None,
    arg(metavar="FILE", help="Masks file of Trellis, applied to the model before the audit."),
]
FailUnder = Annotated[
    float | None,
    arg(
        metavar="FRACTION",
        help="Smallest allowed live / kept, 0 to 1; below it the exit status is 1. Default: no "
        "check.",
    ),
]
Html = Annotated[
    Path | None,
    arg(
        metavar="FILE",
        help="Output file for a page that shows the audit.",
    ),
]


def audit(
    target: Target,
    /,
    *,
    inputs: Inputs = (),
    weights: Weights = None,
    masks: MasksIn = None,
    fail_under: FailUnder = None,
    html: Html = None,
    as_json: Json = False,
) -> int:
    """Count the kept connections of a model that lie on no path from an input to an output.

    The model is not changed. In continuous integration, this command rejects dead weights:

      trellis audit shop.models:detector --weights pruned.safetensors --input 1x3x224x224 --fail-under 1.0

    A model that was saved as a folder needs only its name: trellis audit hands --html dead.html
    also writes a page.
    """  # noqa: E501  (an example must be one line to be copied)
    if fail_under is not None and not 0 <= fail_under <= 1:
        raise TrellisError(
            f"--fail-under {fail_under}: expected a fraction from 0 to 1, such as 1.0"
        )
    if html is not None:
        check_writable(html, input_files(target, weights, masks))
    given = opened(target, inputs, weights)
    with stdout_to_stderr():
        if masks is not None:
            trellis.Masks.load(masks).apply(given.model)
        found = trellis.audit(given.model, given.examples)
        check_model(given.model, "repair it before the audit")
    passed = fail_under is None or found.live_fraction >= fail_under
    if as_json:
        about = {
            "target": target,
            "weights": None if weights is None else str(weights),
            "masks": None if masks is None else str(masks),
            "fail_under": fail_under,
            "passed": passed,
        }
        print_json(about | found.to_dict())
    else:
        print_audit(found)
    if html is not None:
        facts = {"Weights": weights, "Masks": masks, "Example inputs": " ".join(inputs) or None}
        told = [(name, str(value)) for name, value in facts.items() if value is not None]
        write_page(html, audit_report(found, target, told, trellis.__version__))
        if not as_json:
            say(f"wrote {html}: open it in a browser")
    if not passed:
        say(
            f"trellis: {found.live:,} of {found.kept:,} kept connections are live "
            f"({found.live_fraction:.6g}), below --fail-under {fail_under}",
            to=sys.stderr,
        )
    return 0 if passed else 1
