"""The one JSON value that a page holds: whoever gathers fills in the same form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..skeleton import Layout
from ..skeleton.view import branches
from .pose import drawn_pose

FORMAT = 1


@dataclass(frozen=True)
class Missing:
    """Something that the page cannot show, and how to get it."""

    what: str
    how: str


def skeleton_part(layout: Layout, mean: Sequence[Sequence[float]] | None) -> dict[str, Any]:
    """Joints, bones, fingers or limbs, and where joints are drawn."""
    return {
        "joints": list(layout.joints),
        "bones": [list(bone) for bone in layout.bones],
        "branches": branches(layout),
        "pose": drawn_pose(layout, mean),
    }


def content(
    *,
    title: str,
    source: str,
    synthetic: bool,
    warnings: Iterable[str],
    facts: Iterable[tuple[str, str]],
    notes: Iterable[str],
    missing: Iterable[Missing],
    command: str,
    axis: str,
    rows: list[dict[str, Any]],
    methods: list[dict[str, Any]],
    published: list[dict[str, Any]],
    layers: Mapping[str, int],
    chosen: str | None,
    rule: str,
    of_network: str,
    networks: Mapping[str, Any],
    dense_multiplications: int,
    confusions: Mapping[str, list[int]],
    examples: Mapping[str, Any] | None,
    chunks: int,
    basis: str,
    moments: Sequence[int],
    classes: list[str] | None,
    skeleton: dict[str, Any] | None,
) -> dict[str, Any]:
    """``rows[0]`` is the dense network. ``axis`` is what curves run over: "kept", or a row's x.
    ``moments`` say which chunk, or in the ``basis`` of cosines which wave, each three channels of
    a joint are of."""
    return {
        "format": FORMAT,
        "kind": "report",
        "title": title,
        "source": source,
        "synthetic": synthetic,
        "warnings": list(warnings),
        "facts": [list(fact) for fact in facts],
        "notes": list(notes),
        "missing": [asdict(one) for one in missing],
        "command": command,
        "axis": axis,
        "rows": rows,
        "methods": methods,
        "published": published,
        "layers": dict(layers),
        "chosen": chosen,
        "rule": rule,
        "of_network": of_network,
        "networks": dict(networks),
        "dense_multiplications": dense_multiplications,
        "confusions": dict(confusions),
        "examples": None if examples is None else dict(examples),
        "chunks": chunks,
        "basis": basis,
        "moments": list(moments),
        "classes": classes,
        "skeleton": skeleton,
    }
