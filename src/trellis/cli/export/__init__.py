"""``trellis export``: a model in a form that needs no PyTorch."""

from __future__ import annotations

from typing import Annotated

import tyro

from trellis.cli.export.c import c
from trellis.cli.export.onnx import onnx
from trellis.cli.export.wasm import wasm

Command = (
    Annotated[int, tyro.conf.subcommand("onnx", constructor=onnx)]
    | Annotated[int, tyro.conf.subcommand("c", constructor=c)]
    | Annotated[int, tyro.conf.subcommand("wasm", constructor=wasm)]
)


def export(command: Annotated[Command, tyro.conf.arg(name="")]) -> int:
    """Write a model in a form that needs no PyTorch.

    For ONNX Runtime, for devices with a C compiler, for browsers:

      trellis export onnx small --out small.onnx
      trellis export c small --out device
      trellis export wasm small --out page
    """
    return command
