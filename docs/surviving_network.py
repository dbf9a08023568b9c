"""Draws docs/surviving-network-light.svg and -dark.svg, the picture in the README.

    trellis demo                                        # a run on hands45: synthetic
    python docs/surviving_network.py runs/demo

It is the picture of the report's own page, saved by the page itself in a headless Chromium.
Needs Chromium (Debian's chromium) and playwright. Any run that holds the row will do; a run with
longer training has a better network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from trellis.cli.report import of_run
from trellis.files import replacing
from trellis.paper import stored
from trellis.report import write_page

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run of `trellis demo` or `trellis reproduce`")
    parser.add_argument("--network", default="viterbi@99.9", help="which row to draw")
    parser.add_argument("--width", type=int, default=1240, help="in pixels")
    given = parser.parse_args()
    content = of_run(stored(given.run), network=given.network)
    row = next(row for row in content["rows"] if row["key"] == given.network)
    total = sum(content["layers"].values())
    title = f"{row['kept'][0]:,.0f} of {total:,} connections, every one on a path"
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
            with replacing(HERE / f"surviving-network-{scheme}.svg") as [draft]:
                draft.write_text(svg + "\n", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    main()
