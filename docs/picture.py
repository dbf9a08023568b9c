"""Draws docs/dead-and-live.svg: one small network pruned twice to the same budget.

What is drawn is what `trellis.audit` finds, so the picture cannot flatter.

    python docs/picture.py
"""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import trellis

WIDTHS, KEEP, SEED = (7, 9, 9, 5), 30, 5
X, Y, GAP, PANEL = 80, 62, 34, 420
LIVE, DEAD, UNIT, INK = "#0f766e", "#c2c7cd", "#0f766e", "#1f2937"


def network() -> nn.Sequential:
    torch.manual_seed(SEED)
    return nn.Sequential(*(nn.Linear(n, m, bias=False) for n, m in pairwise(WIDTHS)))


def place(layer: int, unit: int) -> tuple[float, float]:
    top = Y + GAP * (max(WIDTHS) - WIDTHS[layer]) / 2
    return 40 + layer * (X + 30), top + GAP * unit


def panel(model: nn.Sequential, title: str) -> list[str]:
    audit = trellis.audit(model, torch.zeros(1, WIDTHS[0]))
    on_path: set[tuple[int, int]] = set()
    lines: list[str] = []
    for layer, (name, live) in enumerate(audit.live_masks.items()):
        kept = trellis.masks_of(model)[name]
        for head, tail in kept.nonzero().tolist():
            alive = bool(live[head, tail])
            on_path |= {(layer, tail), (layer + 1, head)} if alive else set()
            (x1, y1), (x2, y2) = place(layer, tail), place(layer + 1, head)
            style = (
                f'stroke="{LIVE}" stroke-width="2"'
                if alive
                else f'stroke="{DEAD}" stroke-width="2" stroke-dasharray="4 4"'
            )
            line = f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" {style}/>'
            lines.insert(len(lines) if alive else 0, line)  # the dead lie underneath
    for layer, width in enumerate(WIDTHS):
        for unit in range(width):
            x, y = place(layer, unit)
            fill, edge = (UNIT, UNIT) if (layer, unit) in on_path else ("#ffffff", DEAD)
            circle = f'<circle cx="{x:g}" cy="{y:g}" r="7" fill="{fill}" stroke="{edge}"'
            lines.append(f'{circle} stroke-width="2"/>')
    bottom = Y + GAP * max(WIDTHS) + 4
    words = (
        f"{audit.kept} kept, {audit.live} live; "
        f"{audit.outputs_reached} of {audit.outputs} outputs reached"
    )
    middle = 40 + (X + 30) * (len(WIDTHS) - 1) / 2
    return [
        f'<text x="{middle:g}" y="28" font-size="17" font-weight="600">{title}</text>',
        *lines,
        f'<text x="{middle:g}" y="{bottom:g}" font-size="14">{words}</text>',
    ]


def main() -> None:
    by_magnitude, by_path = network(), copy.deepcopy(network())
    x = torch.zeros(1, WIDTHS[0])
    trellis.prune(by_magnitude, x, keep=KEEP, method="magnitude")
    trellis.prune(by_path, x, keep=KEEP)
    width, height = 2 * PANEL - 10, Y + GAP * max(WIDTHS) + 24
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="system-ui, sans-serif" '
        f'text-anchor="middle" fill="{INK}" role="img">',
        "<title>A network pruned by magnitude and by best path, to the same budget</title>",
        f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>',
        *panel(by_magnitude, "by magnitude"),
        f'<g transform="translate({PANEL} 0)">',
        *panel(by_path, "by best path (viterbi)"),
        "</g>",
        "</svg>",
    ]
    Path(__file__).with_name("dead-and-live.svg").write_text("\n".join(svg) + "\n")


if __name__ == "__main__":
    main()
