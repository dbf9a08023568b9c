"""Skeleton layouts: joints and bones, with those of published data sets.

>>> {name: len(layout.joints) for name, layout in LAYOUTS.items()}
{'fpha': 21, 'mediapipe-hand': 21, 'nw-ucla': 20, 'sbu': 30, 'shrec17': 22}
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from ...schema import SkeletonLayout


@dataclass(frozen=True)
class Layout:
    """The joints of a recording, in the order of its columns, and the bones between them.

    Args:
        name: The name of the layout.
        joints: The names of the joints.
        parents: The joint that a bone connects each joint to; -1 for none.
        roots: The joints whose mean position is the position of the skeleton (the wrist of a hand,
            the torsos of two people).
        mirror: The joint that each joint becomes in a mirror image. None if the mirror image is
            another layout: that of a right hand is a left hand.
        body: Four joints, bottom, top, left and right (hips and neck, two shoulders), which define
            how a person stands and faces.

    Raises:
        TrellisError: The joints in the arguments do not fit together.

    Example:
        >>> arm = Layout("arm", ("shoulder", "elbow", "hand"), parents=(-1, 0, 1))
        >>> arm.bones
        ((0, 1), (1, 2))
    """

    name: str
    joints: tuple[str, ...]
    parents: tuple[int, ...]
    roots: tuple[int, ...] = (0,)
    mirror: tuple[int, ...] | None = None
    body: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.joints)
        if count == 0:
            raise TrellisError(f"layout {self.name!r} has no joints")
        if len(self.parents) != count:
            raise TrellisError(
                f"layout {self.name!r} has {count} joints and {len(self.parents)} parents"
            )
        for joint, parent in enumerate(self.parents):
            if not -1 <= parent < count or parent == joint:
                raise TrellisError(
                    f"layout {self.name!r}: the parent of joint {joint} is {parent}; give another "
                    f"joint, 0 to {count - 1}, or -1 for none"
                )
        if not self.roots or not all(0 <= root < count for root in self.roots):
            raise TrellisError(
                f"layout {self.name!r}: roots are {self.roots}; give joints from 0 to {count - 1}"
            )
        if self.mirror is not None and sorted(self.mirror) != list(range(count)):
            raise TrellisError(f"layout {self.name!r}: mirror does not name every joint once")
        for joint, other in enumerate(self.mirror or ()):
            if self.mirror is not None and self.mirror[other] != joint:
                raise TrellisError(
                    f"layout {self.name!r}: in a mirror joint {joint} becomes {other}, which "
                    f"becomes {self.mirror[other]}; a mirror image mirrored is the original"
                )
        if self.body is not None and not (
            len(self.body) == len(set(self.body)) == 4
            and all(0 <= joint < count for joint in self.body)
        ):
            raise TrellisError(
                f"layout {self.name!r}: body is {self.body}; give four joints, bottom, top, left "
                f"and right, from 0 to {count - 1}"
            )

    @classmethod
    def from_dict(cls, given: SkeletonLayout) -> Layout:
        """Return what `dataclasses.asdict` stored in a file."""
        mirror, body = given.get("mirror"), given.get("body")
        return cls(
            given["name"],
            tuple(given["joints"]),
            tuple(given["parents"]),
            tuple(given["roots"]),
            None if mirror is None else tuple(mirror),
            None if body is None else tuple(body),
        )

    @property
    def bones(self) -> tuple[tuple[int, int], ...]:
        """(parent, joint) for every joint with a parent."""
        return tuple((parent, joint) for joint, parent in enumerate(self.parents) if parent >= 0)

    def adjacency(self) -> NDArray[np.float32]:
        """Return the adjacency matrix (joints, joints) with self-loops; rows sum to 1.

        >>> Layout("arm", ("shoulder", "elbow", "hand"), (-1, 0, 1)).adjacency()[0]
        array([0.5, 0.5, 0. ], dtype=float32)
        """
        graph = np.eye(len(self.joints), dtype=np.float32)
        for parent, joint in self.bones:
            graph[parent, joint] = graph[joint, parent] = 1
        graph /= graph.sum(axis=1, keepdims=True)
        return graph


FPHA = Layout(
    "fpha",
    joints=(
        "Wrist", "TMCP", "IMCP", "MMCP", "RMCP", "PMCP", "TPIP", "TDIP", "TTIP", "IPIP", "IDIP",
        "ITIP", "MPIP", "MDIP", "MTIP", "RPIP", "RDIP", "RTIP", "PPIP", "PDIP", "PTIP",
    ),
    parents=(-1, 0, 0, 0, 0, 0, 1, 6, 7, 2, 9, 10, 3, 12, 13, 4, 15, 16, 5, 18, 19),
)  # fmt: skip
"""One hand, wrist first, knuckles next, then finger by finger from the knuckle to the tip."""

MEDIAPIPE_HAND = Layout(
    "mediapipe-hand",
    joints=(
        "WRIST", "THUMB_CMC", "THUMB_MCP", "THUMB_IP", "THUMB_TIP",
        *(
            f"{finger}_{joint}"
            for finger in ("INDEX_FINGER", "MIDDLE_FINGER", "RING_FINGER", "PINKY")
            for joint in ("MCP", "PIP", "DIP", "TIP")
        ),
    ),
    parents=(-1, 0, 1, 2, 3, 0, 5, 6, 7, 0, 9, 10, 11, 0, 13, 14, 15, 0, 17, 18, 19),
    mirror=tuple(range(21)),
)  # fmt: skip
"""One hand, either of both, wrist first, then finger by finger from the palm to the tip."""

SHREC17 = Layout(
    "shrec17",
    joints=(
        "wrist", "palm",
        *(
            f"{finger} {joint}"
            for finger in ("thumb", "index", "middle", "ring", "pinky")
            for joint in ("base", "first", "second", "tip")
        ),
    ),
    # The thumb grows from the wrist, the other fingers from the palm.
    parents=(-1, 0, 0, 2, 3, 4, 1, 6, 7, 8, 1, 10, 11, 12, 1, 14, 15, 16, 1, 18, 19, 20),
)  # fmt: skip
"""One hand, wrist, palm, then four joints a finger from its base to its tip."""

NW_UCLA = Layout(
    "nw-ucla",
    joints=(
        "hip centre", "spine", "shoulder centre", "head",
        "left shoulder", "left elbow", "left wrist", "left hand",
        "right shoulder", "right elbow", "right wrist", "right hand",
        "left hip", "left knee", "left ankle", "left foot",
        "right hip", "right knee", "right ankle", "right foot",
    ),
    parents=(-1, 0, 1, 2, 2, 4, 5, 6, 2, 8, 9, 10, 0, 12, 13, 14, 0, 16, 17, 18),
    mirror=(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15),
    body=(0, 2, 4, 8),
)  # fmt: skip
"""One person, the twenty joints of the first Kinect."""

_PERSON = (
    "head", "neck", "torso", "left shoulder", "left elbow", "left hand", "right shoulder",
    "right elbow", "right hand", "left hip", "left knee", "left foot", "right hip", "right knee",
    "right foot",
)  # fmt: skip
_PERSON_PARENTS = (1, 2, -1, 1, 3, 4, 1, 6, 7, 2, 9, 10, 2, 12, 13)
_PERSON_MIRROR = (0, 1, 2, 6, 7, 8, 3, 4, 5, 12, 13, 14, 9, 10, 11)

SBU = Layout(
    "sbu",
    joints=tuple(f"{joint} {person}" for person in (1, 2) for joint in _PERSON),
    parents=(*_PERSON_PARENTS, *(15 + p if p >= 0 else p for p in _PERSON_PARENTS)),
    roots=(2, 17),  # both torsos, so that the distance between the people is kept
    mirror=(*_PERSON_MIRROR, *(15 + joint for joint in _PERSON_MIRROR)),
)
"""Two people of fifteen joints each, with no bone between them."""

LAYOUTS = {layout.name: layout for layout in (FPHA, MEDIAPIPE_HAND, NW_UCLA, SBU, SHREC17)}
