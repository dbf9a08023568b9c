"""``trellis export onnx``: the compacted network as ONNX."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

import trellis
from trellis.cli.arguments import Inputs, Json, Target, Weights
from trellis.cli.aside import aside
from trellis.cli.opened import opened
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

    Dead units are taken out first; weights that are mostly zero are stored sparsely.

      trellis export onnx small --out small.onnx
      trellis export onnx shop.models:detector --weights pruned.safetensors --input 1x3x224x224 --out detector.onnx
    """  # noqa: E501  (an example must be one line to be copied)
    needed("onnx")
    check_writable(out)
    given = opened(target, inputs, weights)
    with aside():
        model = given.model
        small = model if isinstance(model, Compacted) else trellis.compact(model, given.examples)
        written = trellis.export_onnx(small, given.examples, out)
    if as_json:
        about = asdict(written) | {"path": str(written.path), "target": target}
        print_json(about | {"compaction": small.report.to_dict()})
        return 0
    print(small.report)
    print()
    print(written)
    print(f"{percent(written.zeros)} of its weights are zero. {SLOWER}.")
    return 0
