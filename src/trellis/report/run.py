"""The content of the page of a run of ``trellis reproduce``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..errors import TrellisError
from ..paper import Folder, report_of
from ..paper.plan import architecture_of
from ..paper.pruning import LEAST, kept_of
from ..paper.settings import Named, describe, read_named
from ..skeleton import Skeletons
from ..skeleton.data.preparation import BASES
from ..training.checkpoint import in_words
from .curves import chosen_row, methods_of_run, published_of, rows_of_run
from .drawing import shown_network
from .gcn_paths import Weights, dense_multiplications, kept_weights, moments_of
from .model import Tested, examples, from_built_in, from_fold, pooled
from .page import Missing, content, skeleton_part

MOST = 20  # networks in a page: more would take longer to write, and make it larger


def run_report(
    folder: Folder,
    recordings: Callable[[], Skeletons | None] | None = None,
    network: str | None = None,
) -> dict[str, Any]:
    """Return the content of the page of a run.

    ``recordings`` returns the recordings of the run, or None; it is called late, so that they can
    be read in the background. Without it, only those of the built-in set are shown. ``network`` is
    the row to open with.
    """
    named = read_named(folder.path, folder.data)
    if named is None and recordings is not None and (data := recordings()) is not None:
        named = Named.of(data)
    rows = rows_of_run(folder)
    stored = _Stored(folder, named)
    chosen, rule = chosen_row(rows, stored.rows())
    if network is not None:
        chosen, rule = _asked(network, rows), "as asked for"
    networks = stored.shown(chosen, rows)
    tested = _tested(folder, recordings)
    missing = _missing(folder, named, tested, rows, networks, chosen)
    report = report_of(folder)
    seconds = math.fsum(record.get("seconds", 0.0) for record in folder.records.values())
    facts = [*report.facts, ("Time", f"{in_words(seconds)} to train, prune and tune")]
    return content(
        title=report.title,
        source=folder.settings.data,
        synthetic=folder.data.synthetic,
        warnings=report.warnings,
        facts=facts,
        notes=report.notes,
        missing=missing,
        command=folder.settings.command(),
        axis="x" if folder.settings.table == "table3" else "kept",
        rows=rows,
        methods=methods_of_run(folder),
        published=published_of(folder),
        layers={n: math.prod(s) for n, s in stored.architecture.shapes.items()},
        chosen=chosen,
        rule=rule,
        of_network="seed 0, first fold" if len(folder.data.folds) > 1 else "seed 0",
        networks=networks,
        dense_multiplications=dense_multiplications(asdict(stored.architecture)),
        confusions=_confusions(folder, named),
        examples=_examples(folder, named, tested, chosen),
        chunks=folder.settings.chunks,
        basis=BASES[0],
        moments=stored.moments,
        classes=list(named.classes) if named is not None else None,
        skeleton=None if named is None else skeleton_part(named.layout, named.pose),
    )


def _tested(folder: Folder, recordings: Callable[[], Skeletons | None] | None) -> Tested | None:
    if recordings is None:
        return from_built_in(folder)
    data = recordings()
    if data is None:
        return None
    if describe(data).digest != folder.data.digest:
        raise TrellisError(
            f"{data.source!r} are not the recordings of this run, which was made on "
            f"{folder.settings.data!r}; give those with --data"
        )
    return from_fold(data, data.folds[0])


class _Stored:
    """The pruned networks that a run stores."""

    def __init__(self, folder: Folder, named: Named | None) -> None:
        self.folder, self.named = folder, named
        self.architecture = architecture_of(folder.settings, folder.data)
        self.moments = moments_of(folder.settings.chunks)
        # The stack of the network that represents each row.
        self.stacks = {
            record["row"]: int(record["stack"])
            for record in folder.records.values()
            if record["seed"] == record["fold"] == 0 and "refused" not in record
        }

    def rows(self) -> set[str]:
        return {r for r, stack in self.stacks.items() if self.folder.networks(stack).exists()}

    def shown(self, chosen: str | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the chosen network, its method at other rates, and other methods at its rate and
        the highest."""
        if self.named is None or chosen is None:
            return {}
        head = next(row for row in rows if row["key"] == chosen)
        highest = max(row["rate"] for row in rows)

        def places(row: dict[str, Any]) -> list[bool]:
            """Return whether it fits each reason, the most important first."""
            return [
                row["key"] == chosen,
                row["method"] == head["method"],
                row["rate"] == head["rate"],
                row["rate"] == highest,
            ]

        wanted = sorted((row for row in rows[1:] if any(places(row))), key=places, reverse=True)
        found: dict[str, Any] = {}
        for row in wanted:
            if len(found) < MOST and (weights := self.weights(row["key"])) is not None:
                found[row["key"]] = shown_network(weights, self.named.layout, self.moments)
        return found

    def weights(self, row: str) -> Weights | None:
        if row not in self.stacks:
            return None
        shapes = self.architecture.shapes
        kept = kept_of(self.folder.networks(self.stacks[row]), row, shapes)
        return None if kept is None else kept_weights(kept, shapes)


def _asked(network: str, rows: list[dict[str, Any]]) -> str:
    keys = [row["key"] for row in rows[1:]]
    if network not in keys:
        raise TrellisError(
            f"unknown --network {network!r}; known: {', '.join(keys) or 'no networks'}"
        )
    return network


def _confusions(folder: Folder, named: Named | None) -> dict[str, list[int]]:
    if named is None:
        return {}
    by_row: dict[str, list[tuple[int, list[int]]]] = {}
    for record in folder.records.values():
        if "said" in record:
            by_row.setdefault(record["row"], []).append((record["fold"], record["said"]))
    found = {row: pooled(said, named.labels) for row, said in by_row.items()}
    return {row: counts for row, counts in found.items() if counts is not None}


def _examples(
    folder: Folder, named: Named | None, tested: Tested | None, chosen: str | None
) -> dict[str, Any] | None:
    record = folder.records.get(f"{chosen}/seed-0/fold-0", {})
    if named is None or tested is None or "said" not in record:
        return None
    return {"row": chosen} | examples(tested, named.layout, named.labels[0], record["said"])


def _missing(
    folder: Folder,
    named: Named | None,
    tested: Tested | None,
    rows: list[dict[str, Any]],
    networks: dict[str, Any],
    chosen: str | None,
) -> list[Missing]:
    found = []
    again = "this run did not keep it: give its command again, into another folder (--out)"
    if named is None:
        found.append(Missing("the names of classes and joints", "trellis report … --data SOURCE"))
    if chosen is not None and chosen not in networks:
        rate = next(row["rate"] for row in rows if row["key"] == chosen)
        why = f"a run keeps networks from {LEAST:g} % up" if rate < LEAST else again
        found.append(Missing(f"the network {chosen} itself, to draw it", why))
    if not any("said" in record for record in folder.records.values()):
        found.append(Missing("which class was taken for which", again))
    if tested is None and rows[1:]:
        found.append(
            Missing(
                "moving skeletons, which need the recordings",
                f"trellis report … --data SOURCE, where {folder.settings.data} is",
            )
        )
    if any(live is None for row in rows for _, live in (row["layers"] or {}).values()):
        found.append(Missing("which connections of each layer are dead", again))
    return found
