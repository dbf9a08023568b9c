"""Full-size networks against automatic differentiation: `python bench/oracle.py`.

The tests compare audits with the oracle of tests/oracle/autograd.py on small variants; this does so
once at real size, which takes minutes and several gigabytes and so is no test. Each network runs in
a process of its own, one after another:

- pruned by `trellis.prune` at 99 %, where every kept connection must be live;
- pruned per layer by magnitude so far that many are dead, and the audit must say which.

The oracle draws generic weights in float64 and differentiates the model itself; it shares no code
with the package.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the oracle and the networks are those of the tests

import trellis  # noqa: E402
from tests.oracle.autograd import live_by_autograd  # noqa: E402
from tests.zoo import FULL  # noqa: E402

# How each is printed, and at which sparsity magnitude per layer leaves many dead, but not all.
NETWORKS = {
    "resnet18": ("ResNet-18", 0.995),
    "resnet50": ("ResNet-50", 0.995),
    "vit_b": ("ViT-B/16", 0.999),
    "gpt2": ("GPT-2 small", 0.999),
    "bert": ("BERT base", 0.999),
}
HEAD = (
    "network", "connections", "pruned by", "kept", "dead, audit", "dead, oracle",
    "said otherwise", "outputs reached", "seconds", "peak memory",
)  # fmt: skip


def ways(name: str) -> dict[str, dict[str, Any]]:
    """Options of `trellis.prune`, by what the table calls them."""
    sparsity = NETWORKS[name][1]
    return {
        "viterbi, 99 %": {"sparsity": 0.99},
        f"magnitude per layer, {100 * sparsity:g} %": {
            "sparsity": sparsity, "method": "magnitude", "scope": "layer"
        },
    }  # fmt: skip


def check(name: str, way: str, draws: int) -> list[str]:
    """One row: what the audit and the oracle say of one pruned network."""
    start = time.perf_counter()
    model, inputs = FULL[name]()
    net = trellis.trace(model, inputs)
    masks = trellis.prune(net, **ways(name)[way])
    audit = trellis.audit(net)
    kept = dict(masks)
    del net, masks
    plain, _ = FULL[name]()  # its values do not matter, and it has no masks
    del model
    live = live_by_autograd(plain, inputs, kept, list(kept), draws=draws)
    otherwise = sum(int((live[n] != mask).sum()) for n, mask in audit.live_masks.items())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [
        NETWORKS[name][0],
        f"{audit.total:,}",
        way,
        f"{audit.kept:,}",
        f"{audit.kept - audit.live:,}",
        f"{audit.kept - sum(int(mask.sum()) for mask in live.values()):,}",
        f"{otherwise:,}",
        f"{audit.outputs_reached:,} of {audit.outputs:,}",
        f"{time.perf_counter() - start:.0f}",
        f"{peak:.1f} GB",
    ]


def page(rows: list[list[str]], draws: int, out: Path) -> None:
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    out.write_text(
        "# Audits against automatic differentiation, at full size\n\n"
        f"By `python bench/oracle.py --draws {draws}`, torch {torch.__version__}. All connections "
        'are compared; "said otherwise" are those that one calls live and the other dead.\n\n'
        f"{lines}\n",
        encoding="utf-8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--out", type=Path, default=Path("bench/results/oracle.md"))
    parser.add_argument("--draws", type=int, default=1, help="of generic weights")
    parser.add_argument("--only", nargs=2, help="print one row, of a network and a way")
    asked = parser.parse_args()
    if asked.only:
        name, way = asked.only
        print(json.dumps(check(name, way, asked.draws)))
        return
    rows = [list(HEAD), ["---"] * len(HEAD)]
    for name in asked.networks:
        for way in ways(name):
            again = [sys.executable, __file__, "--draws", str(asked.draws), "--only", name, way]
            done = subprocess.run(again, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{name}, {way}:\n{done.stderr}")
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(" | ".join(rows[-1]), flush=True)
            page(rows, asked.draws, asked.out)


if __name__ == "__main__":
    main()
