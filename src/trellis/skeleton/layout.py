"""Which joints a skeleton has, and how bones join them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import TrellisError
from ..schema import SkeletonLayout


@dataclass(frozen=True)
class Layout:
    """The joints of a recording, in the order of its columns, and the bones between them.

    ``parents[j]`` is the joint that a bone ties joint ``j`` to, −1 where none does. ``roots`` are
    the joints whose mean position is where the skeleton is (the wrist of a hand, the torsos of two
    people). ``mirror[j]`` is the joint that ``j`` becomes in a mirror; a layout of the right hand
    has none, because its mirror image is the left; one of either hand has each joint itself.
    ``body`` is four joints, bottom, top, left and right (hips and neck, two shoulders): the way
    that a person stands and faces.

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
        """The inverse of `dataclasses.asdict`, from a file."""
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
        """(parent, joint) for every joint that has a parent."""
        return tuple((parent, joint) for joint, parent in enumerate(self.parents) if parent >= 0)

    def adjacency(self) -> NDArray[np.float32]:
        """(joints, joints): 1 between a joint and itself and along bones, rows summing to one.

        >>> Layout("arm", ("shoulder", "elbow", "hand"), (-1, 0, 1)).adjacency()[0]
        array([0.5, 0.5, 0. ], dtype=float32)
        """
        graph = np.eye(len(self.joints), dtype=np.float32)
        for parent, joint in self.bones:
            graph[parent, joint] = graph[joint, parent] = 1
        graph /= graph.sum(axis=1, keepdims=True)
        return graph
