"""Arguments that commands share, with the help they show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

Target = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="MODULE:FACTORY|FOLDER",
        help="The model, as package.module:factory: a function or class that is called with no "
        "arguments and returns a torch.nn.Module, or a module itself. Looked for in the current "
        "folder and among installed packages. Or the folder of a saved model, such as `trellis "
        "train` writes: it brings its weights, masks and inputs.",
    ),
]

Inputs = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        name="input",
        metavar="[TYPE:]SHAPE[=VALUE]",
        help="An example input: 1x3x224x224, or with a type, int64:1x128. Give one for each "
        "argument of forward(), in its order. Floats are random (seeded), integers 0, booleans "
        "true, unless a value is given: int64:1x128=1, as an attention mask wants it.",
    ),
]

Weights = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="FILE",
        help="A safetensors file with the model's state dict. Without it, whatever the factory "
        "sets is used.",
    ),
]

Json = Annotated[
    bool,
    tyro.conf.arg(name="json", help="Print JSON on stdout, and nothing else."),
]
