"""What a page says first and last, read in a browser: the figures, and where they come from."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.paper.waves import waves
from tests.report.browser import Browser, Seen
from tests.report.conftest import Made
from trellis.report import write_page
from trellis.report.model import Models, model_report
from trellis.skeleton import Recognizer


def card(seen: Seen, which: str) -> dict[str, str]:
    """A card's figures by name."""
    facts = seen.page.locator(f"#headline {which} .fact")
    return {fact.locator("dt").inner_text(): fact.locator("b").inner_text() for fact in facts.all()}


def tenths(value: float) -> str:
    """Rounded as a browser rounds: a half goes up."""
    return str(Decimal(value).quantize(Decimal("0.1"), ROUND_HALF_UP))


def spread(value: list[float]) -> str:
    return f"{tenths(value[0])} ± {tenths(value[1])} %"


def size(count: float) -> str:
    return f"{count:,.0f} bytes" if count < 1000 else f"{tenths(count / 1000)} kB"


def many(count: int) -> str:
    return f"{count:,}" if count < 10_000 else f"{tenths(count / 1000)} thousand"


@pytest.mark.parametrize("row", [None, "tc@99", "mp@99", "viterbi@90", "lamp@50"])
def test_the_cards_are_the_rows_of_the_table(
    browser: Browser, small: Made, row: str | None
) -> None:
    content = small.content
    rows = {one["key"]: one for one in content["rows"]}
    with browser.opened(small.page) as seen:
        if row is not None:
            seen.choose(row)
        chosen = rows[row or content["chosen"]]
        dense = rows["dense"]
        assert card(seen, ".card:not(.pruned)") == {
            "Top-1 accuracy": spread(dense["top1"]),
            "Connections": f"{sum(content['layers'].values()):,}",
            "Size": size(4 * sum(content["layers"].values())),
            "Multiplications": many(content["dense_multiplications"]),
        }
        network = content["networks"].get(chosen["key"])
        live = sum(live for _, live in chosen["layers"].values())
        assert card(seen, ".card.pruned") == {
            "Top-1 accuracy": spread(chosen["top1"]),
            "Connections": f"{chosen['kept'][0]:,.0f}",
            "Size": size(8 * live),
            "Multiplications": "–" if network is None else many(network["multiplications"]),
        }
        told = seen.page.locator(".card.pruned").inner_text()
        assert ("all live" if live == chosen["kept"][0] else f"{live:,.0f} live") in told
        title = seen.page.locator(".card.pruned h3").inner_text()
        assert title == f"{chosen['label']}, {chosen['rate']:g} %"
        answer = seen.page.locator(".answer").inner_text()
        assert f"{tenths(chosen['top1'][0])} % right" in answer
        apart = chosen["top1"][0] - dense["top1"][0]
        assert f"{tenths(abs(apart))} points {'below' if apart < 0 else 'above'}" in answer
        assert seen.texts("#headline .command code") == [small.folder.settings.command()]
        seen.quiet()


def provenance(seen: Seen) -> list[list[str]]:
    names, texts = (seen.texts(f"#provenance .facts {tag}") for tag in ("dt", "dd"))
    return [list(pair) for pair in zip(names, texts, strict=True)]


def test_a_run_says_where_its_figures_come_from(browser: Browser, small: Made) -> None:
    with browser.opened(small.page) as seen:
        told = provenance(seen)
        assert told == [list(fact) for fact in small.content["facts"]]
        assert seen.texts("#provenance details li") == small.content["notes"]
        seen.quiet()
    facts: dict[str, str] = dict(map(tuple, told))  # type: ignore[arg-type]
    fold, data = small.data.folds[0], small.data
    counts = {
        "recordings": len(data), "frames": data.frames, "joints": len(data.layout.joints),
        "classes": len(data.classes), "to train on": len(fold.train), "to test on": len(fold.test),
    }  # fmt: skip
    for what, count in counts.items():
        assert f"{count:,} {what}" in facts["Data"]
    assert data.source in facts["Data"] and "SYNTHETIC" in facts["Data"]
    settings = small.folder.settings
    assert facts["Seeds"].startswith(str(settings.seeds))
    recipe = settings.recipe
    assert facts["Recipe"].startswith(f"{recipe.name}: ")
    assert f"{recipe.epochs:,} epochs" in facts["Recipe"]
    assert all(name in facts["Versions"] for name in ("trellis ", "python ", "torch ", "numpy "))
    assert facts["Hardware"] == "made up"  # as the records of this run say
    seconds = sum(record["seconds"] for record in small.folder.records.values())
    assert facts["Time"].startswith(f"{seconds:.0f} seconds")


def test_a_model_says_what_was_done_to_it(browser: Browser, tmp_path: Path) -> None:
    data = waves()
    fold = data.folds[0]
    step: dict[str, Any] = {
        "step": "train", "source": data.source, "fold": fold.name, "seed": 7, "device": "cpu",
        "precision": "fp32", "recipe": {"name": "default", "epochs": 12, "rate": 0.001},
    }  # fmt: skip
    model = Recognizer.fresh(data, fold, chunks=4, heads=2, filters=4).after(**step)
    content = model_report(Models(tmp_path, model), data, fold)
    write_page(tmp_path / "page.html", content)
    with browser.opened(tmp_path / "page.html") as seen:
        told = provenance(seen)
        assert told == [list(fact) for fact in content["facts"]]
        facts: dict[str, str] = dict(map(tuple, told))  # type: ignore[arg-type]
        assert (
            f"fold {fold.name}: {len(fold.train)} to train on, {len(fold.test)} to test on"
            in (facts["Data"])
        )
        for text in ("seed 7", "device cpu", "name default", "epochs 12", "rate 0.001"):
            assert text in facts["Step 1: train"]
        assert "torch " in facts["Page written with"]
        assert seen.texts("#headline .command code") == [content["command"]]
        assert "--seed 7" in content["command"] and "--epochs 12" in content["command"]
        seen.quiet()
