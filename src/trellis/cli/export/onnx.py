"""``trellis export onnx``: the compacted network as ONNX."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

import trellis
from trellis.cli.arguments import Inputs, Json, Target, Weights
from trellis.cli.aside import aside, say
from trellis.cli.export.recogniser import (
    described_input,
    example_of,
    recogniser_of,
    told_input,
)
from trellis.cli.opened import input_files, opened
from trellis.cli.tables import percent, print_json
from trellis.files import check_writable
from trellis.ship.compact import Compacted
from trellis.ship.onnx.export import SLOWER
from trellis.ship.onnx.needs import needed

Out = Annotated[Path, tyro.conf.arg(metavar="FILE", help="The file to write, such as model.onnx.")]


def onnx(
    target: Target,
    /,
    *,
    out: Out,
    inputs: Inputs = (),
    weights: Weights = None,
    as_json: Json = False,
) -> int:
    """Compact a model and write it as ONNX, checked against PyTorch by ONNX Runtime.

    Dead units are taken out first; weights that are mostly zero are stored sparsely. A model that
    `trellis train` wrote reads prepared recordings: how they are prepared is told, and stored in
    the file's metadata with the names of the classes.

      trellis export onnx small --out small.onnx
      trellis export onnx shop.models:detector --weights pruned.safetensors --input 1x3x224x224 --out detector.onnx
    """  # noqa: E501  (an example must be one line to be copied)
    needed("onnx")
    check_writable(out, input_files(target, weights))
    given = opened(target, inputs, weights)
    recogniser = recogniser_of(given, target)
    model, examples, notes = given.model, given.examples, {}
    if recogniser is not None:
        model, examples = recogniser.network(), (example_of(recogniser),)
        about = described_input(recogniser)
        notes = {
            "classes": json.dumps(about["classes"], ensure_ascii=False),
            "recording": json.dumps(about["recording"].notes(), ensure_ascii=False),
        }
    with aside():
        small = model if isinstance(model, Compacted) else trellis.compact(model, examples)
        written = trellis.export_onnx(small, examples, out, notes=notes)
    if as_json:
        found = asdict(written) | {"path": str(written.path), "target": target}
        print_json(found | {"compaction": small.report.to_dict(), "notes": notes})
        return 0
    say(small.report)
    say()
    say(written)
    if recogniser is not None:
        say(told_input(recogniser, target))
    say(f"{percent(written.zeros)} of its weights are zero. {SLOWER}.")
    return 0
