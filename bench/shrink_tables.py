"""Tables of what `shrink.py` made: top-1 of every part, and how far it is from the default.

``python bench/shrink_tables.py sbu`` prints one fold of a set beside the mean over all of them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

from ways import DEFAULT

T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def cell(values: list[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def difference(ours: dict[int, float], theirs: dict[int, float]) -> str:
    """The mean of paired differences, and its 95 % interval."""
    each = [theirs[case] - ours[case] for case in sorted(ours.keys() & theirs.keys())]
    if not each:
        return ""
    mean = statistics.mean(each)
    if len(each) < 2:
        return f"{mean:+.1f}"
    half = T95.get(len(each) - 1, 1.96) * statistics.stdev(each) / math.sqrt(len(each))
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


def tables(rows: list[dict[str, Any]]) -> str:
    """Markdown: top-1 of every part, and what leaving it out costs."""
    lines = []
    for data, length in dict.fromkeys((row["data"], row["length"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["length"]) == (data, length)]
        total = max(row["total"] for row in mine)
        made = "; synthetic recordings" if mine[0]["synthetic"] else ""
        made += f"; {length:g} of the course's length" if length != 1 else ""
        sparsities = sorted({row["sparsity"] for row in mine})
        by: dict[tuple[str, float], dict[int, float]] = {}
        for row in mine:
            by.setdefault((row["part"], row["sparsity"]), {})[row["case"]] = row["top1"]
        names = [f"{100 * s:.6g} %" if s else "dense" for s in sparsities]
        head = f"| part | {' | '.join(names)} |\n|---|{'---|' * len(names)}"
        lines += [f"## {data}: {total:,} connections{made}\n", head]
        done = dict.fromkeys(row["part"] for row in mine)
        for part in done:
            cells = [
                cell(list(by[part, s].values())) if (part, s) in by else "" for s in sparsities
            ]
            lines.append(f"| {part} | {' | '.join(cells)} |")
        others = [part for part in done if part != DEFAULT]
        if others:
            lines += [f"\nAgainst the {DEFAULT}, paired, with 95 % intervals:\n", head]
        for part in others:
            cells = [
                difference(by[DEFAULT, s], by[part, s])
                if (part, s) in by and (DEFAULT, s) in by and s
                else ""
                for s in sparsities
            ]
            lines.append(f"| {part} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def of_fold(rows: list[dict[str, Any]], data: str, fold: int) -> str:
    """Markdown: top-1 of the default on one fold, and the mean over all folds."""
    mine = [row for row in rows if (row["data"], row["part"]) == (data, DEFAULT)]
    mine = [row for row in mine if row["length"] == 1]
    lines = [f"| removed | all folds | fold {fold} |", "|---|---|---|"]
    for sparsity in sorted({row["sparsity"] for row in mine}):
        found = {row["case"]: row["top1"] for row in mine if row["sparsity"] == sparsity}
        name = f"{100 * sparsity:.6g} %" if sparsity else "nothing"
        lines.append(f"| {name} | {cell(list(found.values()))} | {found[fold - 1]:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--fold", type=int, default=5)
    given = parser.parse_args()
    path = Path(__file__).parent / "results" / "shrink.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    print(of_fold(rows, given.data, given.fold))


if __name__ == "__main__":
    main()
