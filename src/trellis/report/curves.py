"""The rows of a run as points: kept, live and accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..paper.folder import Folder, Record
from ..paper.plan import DENSE, Row, plan_of
from ..paper.published import DENSE_ACCURACY, PARAMETERS, TABLE2, TABLE3, TABLE3_RATE
from ..paper.settings import is_benchmark, paper_rate
from ..paper.tables import Figure, Summary, summary
from ..paths.audit import Audit

Pair = list[float | None]  # a mean and a deviation; no deviation where one seed stands behind it
VALUE, PLACE = 4, 4  # bytes of a weight, and of where it stands


def rows_of_run(folder: Folder) -> list[dict[str, Any]]:
    """Return every row of the plan, the dense one first; unfinished figures are None."""
    settings, data = folder.settings, folder.data
    plan = plan_of(settings, data)
    found = [summary(row, folder.records, settings.seeds, data) for row in plan.rows]
    by_row: dict[str, list[Record]] = {}
    for record in folder.records.values():
        by_row.setdefault(record["row"], []).append(record)
    return [_row(one, by_row.get(one.row.key, [])) for one in found]


def _row(found: Summary, records: list[Record]) -> dict[str, Any]:
    row = found.row
    severed = found.severed
    live = [r["live"] for r in records if "live" in r]
    return {
        "key": row.key,
        "method": method_key(row),
        "label": "Dense" if row.method is None else row.method.label,
        "rate": row.rate,
        "x": None if row.method is None else row.method.options.get("inverse_alpha"),
        "kept": _pair(found.kept),
        "live": _pair(found.live),
        "on": "test",
        "top1": None if severed else _pair(found.top1),
        "mean_class": None if severed else _pair(found.mean_class),
        "train": None if severed else _pair(found.train),
        "networks": found.networks,
        "wanted": found.wanted,
        "disconnected": found.disconnected,
        "refused": found.refused,
        "bytes": _bytes(row, found, live),
        "layers": layers_of(records),
    }


def method_key(row: Row) -> str:
    """Return the series of a row; the columns of Table 3 form one series."""
    if row.method is None:
        return DENSE
    return "alpha" if row.key.startswith("alpha-") else row.method.key


def _bytes(row: Row, found: Summary, live: list[int]) -> float | None:
    if row.method is None:
        return None if found.kept is None else VALUE * found.kept.mean
    return (VALUE + PLACE) * sum(live) / len(live) if live else None


def layers_of(records: list[Record]) -> dict[str, Pair] | None:
    """Return kept and live of each layer, as means over networks; live is None in old runs."""
    networks = [record for record in records if "layers" in record]
    if not networks:
        return None
    found: dict[str, Pair] = {}
    for name in networks[0]["layers"]:
        kept = _mean([r["layers"][name] for r in networks])
        known = [r["live_layers"][name] for r in networks if name in r.get("live_layers", {})]
        live: float | None = _mean(known) if len(known) == len(networks) else None
        if live is None and all(r["live"] == r["kept"] for r in networks):
            live = kept  # nothing is dead anywhere
        found[name] = [kept, live]
    return found


def methods_of_run(folder: Folder) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in plan_of(folder.settings, folder.data).rows:
        if row.method is None:
            continue
        key = method_key(row)
        label = "TC Stoch MP, global surrogate" if key == "alpha" else row.method.label
        found.setdefault(
            key,
            {
                "key": key,
                "label": label,
                "consistent": row.method.consistent,
                "paper": row.method.paper,
            },
        )
    return list(found.values())


def published_of(folder: Folder) -> list[dict[str, Any]]:
    """Return the paper's points, if the benchmark is the paper's."""
    settings = folder.settings
    if not is_benchmark(settings, folder.data) or settings.table == "table1":
        return []
    if settings.table == "table3":
        if paper_rate(settings) != TABLE3_RATE:
            return []
        return [
            {"method": "alpha", "rate": TABLE3_RATE, "x": x, "kept": None, "live": 100.0, "top1": y}
            for x, y in TABLE3.items()
        ]
    points: list[dict[str, Any]] = [
        {"method": DENSE, "rate": 0.0, "x": None, "kept": 1.0, "live": 100.0,
         "top1": DENSE_ACCURACY}
    ]  # fmt: skip
    for method, cells in TABLE2.items():
        for rate, cell in cells.items():
            if method in settings.rows and rate in settings.rates:
                points.append(
                    {"method": method, "rate": rate, "x": None, "kept": cell.kept / PARAMETERS,
                     "live": cell.live, "top1": cell.accuracy}
                )  # fmt: skip
    return points


def chosen_row(rows: list[dict[str, Any]], shown: set[str]) -> tuple[str | None, str]:
    """Return the row that the page opens with, and the rule that chose it.

    The most pruned one that loses at most five points against the dense network. Of several, one
    whose network was kept (``shown``), without dead connections, the most accurate: in this order.
    """
    pruned = [r for r in rows[1:] if r["top1"] is not None]
    dense = rows[0]["top1"]
    if not pruned:
        return None, "no pruned network is finished yet"
    near = [r for r in pruned if dense and r["top1"][0] >= dense[0] - 5]
    if near:
        best = max(
            near,
            key=lambda r: (r["rate"], r["key"] in shown, r["live"][0] == 100, r["top1"][0]),
        )
        return best["key"], "the most pruned network that loses at most five points"
    best = max(pruned, key=lambda r: (r["top1"][0], r["key"] in shown))
    return best["key"], "the most accurate pruned network"


def _pair(figure: Figure | None) -> Pair | None:
    if figure is None:
        return None
    deviation = None if figure.deviation is None else round(figure.deviation, 4)
    return [round(figure.mean, 4), deviation]


def _mean(values: list[int]) -> float:
    return round(sum(values) / len(values), 2)


# A network as a point of a chart, and the series of points.


def method(key: str, label: str) -> dict[str, Any]:
    """Return a series. One line joins its points, so all must be measured alike."""
    return {"key": key, "label": label, "consistent": True, "paper": False}


def point(
    key: str, method: str, label: str, rate: float, kept: float, live: float | None,
    metrics: Mapping[str, Any], found: Audit | None = None, on: str = "test",
) -> dict[str, Any]:  # fmt: skip
    """Return a point. ``live`` is in percent, or None if unknown; ``on`` says which recordings
    were classified."""

    def accuracy(name: str) -> list[float | None] | None:
        value = metrics.get(name)
        return None if value is None else [round(100 * float(value), 4), None]

    return {
        "key": key, "method": method, "label": label, "rate": rate, "x": None,
        "kept": [kept, None], "live": None if live is None else [live, None],
        "on": on, "top1": accuracy("top1"), "mean_class": accuracy("mean_class"),
        "train": accuracy("train_top1"),
        "networks": 1, "wanted": 1, "disconnected": int(live == 0), "refused": None,
        "bytes": None if found is None else (VALUE + PLACE) * found.live,
        "layers": None if found is None else {x.name: [x.kept, x.live] for x in found.layers},
    }  # fmt: skip
