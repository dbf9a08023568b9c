"""The content of a page: what it shows of a run, a model or an audit."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..paths.audit import Audit
from ..skeleton import Layout
from ..skeleton.data.dataset import branches, turn_of

# The positions at which joints are drawn, on a plane.


Points = NDArray[np.float64]
HANDS = ("fpha", "hand", "mediapipe-hand", "shrec17")

# An open right hand seen from its back, thumb first: the base of each finger (distance from the
# wrist, angle in degrees), the direction of each finger, and the lengths of its bones, in mm.
_BASES = ((46, -52), (92, -18), (91, -2), (86, 13), (80, 28))
_POINTS = (-47, -14, -1, 12, 27)
_BONES = ((42, 33, 28), (46, 28, 23), (51, 31, 24), (47, 29, 24), (37, 23, 21))


def drawn_pose(layout: Layout, mean: Sequence[Sequence[float]] | None) -> list[list[float]]:
    """Return (joints, 2): right and down, the larger extent from 0 to 1.

    Hands of known layouts are drawn open, whatever their recordings do; others in the ``mean``
    pose of their recordings, seen from the front; without one, as a tree of bones.

    >>> arm = Layout("arm", ("shoulder", "elbow", "hand"), (-1, 0, 1))
    >>> drawn_pose(arm, [[0, 0, 0], [1, 0, 0], [1, 2, 0]])
    [[0.0, 1.0], [0.5, 1.0], [0.5, 0.0]]
    >>> drawn_pose(arm, None)
    [[0.0, 1.0], [0.0, 0.5], [0.0, 0.0]]
    """
    points = _hand(layout) if layout.name in HANDS else None
    if points is None and mean is not None:
        points = (np.asarray(mean, float) @ turn_of(layout).T)[:, :2] * (1, -1)
    if points is None:
        points = _tree(layout)
    points = points - points.min(axis=0)
    size = points.max() or 1.0
    return [[round(float(x), 4), round(float(y), 4)] for x, y in points / size]


def _hand(layout: Layout) -> Points | None:
    """Draw five chains of four joints, thumb first; a palm lies between the knuckles."""
    points = np.zeros((len(layout.joints), 2))
    tips = [j for j in range(len(layout.joints)) if j not in layout.parents]
    if len(tips) != 5:
        return None
    knuckles = []
    for finger, tip in enumerate(tips):
        chain = [tip]
        while len(chain) < 4:
            chain.append(layout.parents[chain[-1]])
        far, aside = _BASES[finger]
        place = far * _direction(aside)
        knuckles.append(place)
        points[chain.pop()] = place
        for length in _BONES[finger]:
            place = place + length * _direction(_POINTS[finger])
            points[chain.pop()] = place
    between = {layout.parents[joint] for joint in range(len(layout.joints))} - {-1, 0}
    for joint in between:
        if not points[joint].any():
            points[joint] = np.mean(knuckles[1:], axis=0) / 2
    return points


def _direction(degrees: float) -> Points:
    return np.array([math.sin(math.radians(degrees)), -math.cos(math.radians(degrees))])


def _tree(layout: Layout) -> Points:
    """Draw joints as a tree: each above its parent, leaves side by side."""
    depth = [0] * len(layout.joints)
    for joint in range(len(layout.joints)):
        above, seen = joint, {joint}
        while (above := layout.parents[above]) >= 0 and above not in seen:
            seen.add(above)
            depth[joint] += 1
    across = [0.0] * len(layout.joints)
    ends = [j for j in range(len(layout.joints)) if j not in layout.parents]
    for joint in sorted(range(len(layout.joints)), key=lambda j: -depth[j]):
        below = [across[j] for j, parent in enumerate(layout.parents) if parent == joint]
        across[joint] = ends.index(joint) if joint in ends else float(np.mean(below))
    return np.array([[x, -y] for x, y in zip(across, depth, strict=True)], float)


FORMAT = 1


@dataclass(frozen=True)
class Missing:
    """Something that the page cannot show, and how to get it."""

    what: str
    how: str


def skeleton_part(layout: Layout, mean: Sequence[Sequence[float]] | None) -> dict[str, Any]:
    """Return joints, bones, fingers or limbs, and the positions of joints."""
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
    nested: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """``rows[0]`` is the dense network. ``axis`` is what curves run over: "kept", or a row's x.
    ``moments`` say which chunk, or in the ``basis`` of cosines which wave, each three channels of
    a joint are of. ``nested`` has the ``keys`` of the rows of nested networks, largest first, and
    of those that were ``asked`` for."""
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
        "nested": nested,
    }


# The page of an audit.


def audit_report(
    found: Audit, target: str, facts: Iterable[tuple[str, str]] = (), version: str = ""
) -> dict[str, Any]:
    """Return the content of an audit's page, for any network.

    Args:
        found: The audit.
        target: The name of what was audited.
        facts: More rows, (name, text), for the page's table of facts.
        version: The version of Trellis.
    """
    versions = f"trellis {version}, python {platform.python_version()}, torch {torch.__version__}"
    return found.to_dict() | {
        "format": 1,
        "kind": "audit",
        "title": "What is dead in this network",
        "target": target,
        "facts": [["Network", target], *map(list, facts), ["Versions", versions]],
    }
