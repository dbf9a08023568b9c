"""Draws docs/surviving-network-light.svg and -dark.svg, the picture in the README.

    trellis shrink hands45 --sparsity 0.999 --out small      # on hands45: synthetic
    python docs/surviving_network.py small

It is the picture of the report's own page, saved by the page itself in a headless Chromium.
Needs Chromium (Debian's chromium) and playwright. Takes what `trellis shrink`, `train`, `prune` or
`tune` wrote, or a run of `trellis demo` or `reproduce`; of a run, --network says which row.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from trellis.cli.report import is_run, of_models, of_run
from trellis.files import replacing
from trellis.paper import stored
from trellis.report import write_page
from trellis.report.model import models_in

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run, or the folder of a model")
    parser.add_argument("--network", default="viterbi@99.9", help="of a run: which row to draw")
    parser.add_argument("--width", type=int, default=1240, help="in pixels")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder for the two pictures")
    given = parser.parse_args()
    if is_run(given.run):
        content = of_run(stored(given.run), network=given.network)
    else:
        content = of_models(models_in(given.run))
    title = told(next(row for row in content["rows"] if row["key"] == content["chosen"]), content)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder, "report.html")
        write_page(page, content)
        args = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=args)
        for scheme in ("light", "dark"):
            opened = browser.new_page(
                viewport={"width": given.width, "height": 900},
                color_scheme=scheme,
            )
            opened.goto(page.as_uri())
            svg = opened.evaluate("title => trellisSvg('network', title)", title)
            with replacing(given.out / f"surviving-network-{scheme}.svg") as [draft]:
                draft.write_text(svg + "\n", encoding="utf-8")
        browser.close()


def told(row: dict[str, Any], content: dict[str, Any]) -> str:
    """What the picture shows, above it: how much is left, and how well it does."""
    total = sum(content["layers"].values())
    title = f"{row['kept'][0]:,.0f} of {total:,} connections"
    if row["live"][0] >= 100:
        title += ", every one on a path"
    if row["top1"] is not None:
        title += f": {row['top1'][0]:.1f} % of test recordings named right"
    return title


if __name__ == "__main__":
    main()
