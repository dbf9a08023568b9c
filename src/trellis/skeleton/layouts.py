"""The skeletons that published data sets record.

>>> {name: len(layout.joints) for name, layout in LAYOUTS.items()}
{'fpha': 21, 'mediapipe-hand': 21, 'nw-ucla': 20, 'sbu': 30, 'shrec17': 22}
"""

from __future__ import annotations

from .layout import Layout

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
    roots=(2, 17),  # both torsos: who stands where, relative to each other, is kept
    mirror=(*_PERSON_MIRROR, *(15 + joint for joint in _PERSON_MIRROR)),
)
"""Two people of fifteen joints each, with no bone between them."""

LAYOUTS = {layout.name: layout for layout in (FPHA, MEDIAPIPE_HAND, NW_UCLA, SBU, SHREC17)}
