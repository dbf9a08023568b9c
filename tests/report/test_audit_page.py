"""The page of ``trellis audit --html`` for a deep network whose layers have unkind names."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.report.browser import Browser
from tests.report.conftest import HOSTILE
from tests.report.saving import saved
from trellis.cli import main

# As `nn.ModuleDict` takes them: anything but dots, and nothing empty.
NAMES = [name.replace(".", "·") for name in HOSTILE] + ["tick`: dead", "__proto__", "constructor"]


class Residual(nn.Module):
    """Three convolutions beside a way straight through, as in ResNet-50."""

    def __init__(self, width: int, stride: int, came: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(came, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.conv3 = nn.Conv2d(width, 2 * width, 1, bias=False)
        self.norm = nn.BatchNorm2d(2 * width)
        straight = came == 2 * width and stride == 1
        self.down = None if straight else nn.Conv2d(came, 2 * width, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(self.conv1(x).relu()).relu()
        return (self.norm(self.conv3(y)) + (x if self.down is None else self.down(x))).relu()


class Deep(nn.Module):
    """Seventeen residual blocks, 50 and more layers; names of blocks as above."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        blocks, came = {}, 8
        for i in range(17):
            width = 4 * 2 ** (i // 6)
            key = NAMES[i] if i < len(NAMES) else f"block {i}"
            blocks[key] = Residual(width, 2 if i in (6, 12) else 1, came)
            came = 2 * width
        self.blocks = nn.ModuleDict(blocks)
        self.head = nn.Linear(came, 5)
        with torch.no_grad():
            for number, block in enumerate(blocks.values()):
                keep = torch.rand_like(block.conv1.weight) < 0.5
                block.conv1.weight.mul_(keep)
                if number % 3 == 0:
                    block.conv1.weight[: block.conv1.out_channels // 2] = 0
            self.head.weight[:, 3:] = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        for block in self.blocks.values():
            x = block(x)
        out: torch.Tensor = self.head(x.mean((2, 3)))
        return out


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The page that the command writes, and what the command says in JSON."""
    page = tmp_path_factory.mktemp("deep") / "dead.html"
    words = ["audit", f"{__name__}:Deep", "--input", "1x3x8x8", "--html", str(page)]
    assert main(words) == 0
    text = page.read_text(encoding="utf-8")
    [found] = re.findall(r'<script type="application/json" id="content">(.*?)</script>', text, re.S)
    return page, json.loads(found)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1600, "light")])
def test_every_layer_is_shown_by_its_name_and_nothing_is_run(
    browser: Browser, deep: tuple[Path, Any], width: int, scheme: Any
) -> None:
    page, found = deep
    names = [layer["name"] for layer in found["layers"]]
    assert len(names) > 50 and found["dead"] > 0
    assert all(any(key in name for name in names) for key in NAMES)
    with browser.opened(page, width=width, color_scheme=scheme) as seen:
        shown = seen.page.locator("#flow .layer").evaluate_all(
            "marks => marks.map(mark => mark.dataset.layer)"
        )
        assert shown == names
        titles = seen.page.locator("#flow .row-name title").all_text_contents()
        assert [title.rsplit(", ", 1)[0] for title in titles] == names
        dead = [layer["name"] for layer in found["layers"] if layer["dead"]]
        assert seen.count("#flow .bar-dead") == len(dead)
        assert seen.count("main img, main b:has(*), main script") == 0
        assert seen.page.evaluate("window.pwned") is None
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        # The worst are open, the others a click away, all in the order of the command's words.
        told = [text for text in found["words"] if text.startswith("`")]
        assert seen.count("#words > .words li") == min(10, len(told))
        spoken = seen.texts("#words .words code")
        assert set(spoken) <= set(names) and set(dead) <= set(spoken)
        rest = seen.texts("#words .words li")
        assert [text.replace(name, f"`{name}`", 1) for name, text in zip(
            spoken, rest, strict=True)] == told  # fmt: skip
        rows = list(csv.DictReader(io.StringIO(saved(seen, "#flow .to-csv"))))
        assert [(int(row["kept"]), int(row["dead"])) for row in rows] == [
            (layer["kept"], layer["dead"]) for layer in found["layers"]
        ]
        seen.page.click(".sort")
        first = seen.page.locator("#flow .layer").first.get_attribute("data-layer")
        assert first in dead
        seen.quiet()
