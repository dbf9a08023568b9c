"""The README beside exported WebAssembly."""

from __future__ import annotations

from ..tables.form import Tables

_PAGE = "| `index.html` | all of it in one page that needs nothing else: open it from disk |"
_RECORDED = """\

A recording may have any length; the same C makes of it what the network reads:

```js
const output = network.recorded(places, frames);  // x y z of each joint, frame after frame
network.shares(output);                           // how likely each class is
```
"""


def readme(tables: Tables, size: int, page: bool) -> str:
    """What the files are, and how to call them."""
    lines = [
        "# A pruned network in WebAssembly",
        "",
        f"{tables.weights:,} weights ({tables.values}), {tables.uses:,} multiplications an "
        f"inference; `model.wasm` is {size:,} bytes, needs 128-bit SIMD, and imports nothing.",
        "",
        "| file | what it is |",
        "|---|---|",
        "| `model.wasm` | tables and kernel, built from the same C as `trellis export c` writes |",
        "| `model.mjs` | loads it, in a browser or in node |",
        *([_PAGE] if page else []),
        "",
        "```js",
        'import {openNetwork} from "./model.mjs";',
        "",
        'const network = await openNetwork(await (await fetch("model.wasm")).arrayBuffer());',
        f"network.run(new Float32Array({tables.input_units}));"
        f"  // a Float32Array of {tables.output_units} outputs",
        "```",
    ]
    lines += ["", "A number that is not finite is a `RangeError`."]
    if tables.notes.get("recording"):
        lines.append(_RECORDED.rstrip())
    return "\n".join([*lines, "", "These files may be used under any licence.", ""])
