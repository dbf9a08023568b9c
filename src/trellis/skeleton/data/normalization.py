"""What is done to a chunked recording before a network sees it: part of the saved model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from ...schema import InputNormalisation, fitted
from .layouts import Layout

FRAMES = ("camera", "body")
SIZES = ("recorded", "alike")
# Of a body's height or its span, whichever is larger: an axis that short points nowhere. Single
# precision, in which devices compute (turn.h has the same rule), is sure of a hundredth of it.
_NOWHERE = 1e-4
# Of the usual length of bones: what is shorter was lost by its sensor, and is no skeleton of some
# size (size.h has the same rule).
_LOST = 0.05


@dataclass(frozen=True)
class Normalisation:
    """Coordinates relative to where the skeleton is on average, in units of ``scale``.

    The mean over time of the mean position of the ``roots`` becomes the origin, so that it does
    not matter where the recording took place, while its motion stays. With ``body``, four joints
    (bottom, top, left, right), the recording is also turned as a whole, so that its average body
    stands upright and faces the same way: y is from bottom to top, x from left to right. Then it
    does not matter where the camera stood. With ``bones``, pairs of joints, it is also brought to
    one size, in which their mean length over time is ``length``, what is usual in the training
    split: then it matters neither how tall somebody is nor, where coordinates are a picture's, how
    far away. ``scale`` is one number, learnt from the training split: the standard deviation of
    what has become of the coordinates by then.

    >>> x = np.zeros((1, 2, 6), np.float32)     # one recording, two joints, two chunks
    >>> x[0, :, ::3] = [[10, 12], [14, 16]]     # x of both joints, over time
    >>> Normalisation(roots=(0,), scale=2.0)(x)[0, :, ::3]
    array([[-0.5,  0.5],
           [ 1.5,  2.5]], dtype=float32)
    """

    roots: tuple[int, ...]
    scale: float
    body: tuple[int, ...] | None = None
    bones: tuple[tuple[int, int], ...] = ()
    length: float = 1.0

    def __post_init__(self) -> None:
        if not self.roots:
            raise TrellisError("roots are empty: expected at least one joint that is the origin")
        if not (np.isfinite(self.scale) and np.float32(self.scale) > 0):
            raise TrellisError(
                f"the scale of the coordinates is {self.scale!r}; it must be a finite number above "
                "0 (are all joints of all recordings in one place?)"
            )
        if self.body is not None and len(self.body) != 4:
            raise TrellisError(f"body is {self.body!r}: give four joints, bottom, top, left, right")
        if not all(len(bone) == 2 for bone in self.bones):
            raise TrellisError(f"bones are {self.bones!r}: give pairs of joints")
        if not (np.isfinite(self.length) and np.float32(self.length) > 0):
            raise TrellisError(f"bones are {self.length!r} long: give a finite length above 0")

    @classmethod
    def fit(
        cls,
        x: NDArray[np.float32],
        layout: Layout,
        frame: str = FRAMES[0],
        size: str = SIZES[0],
    ) -> Normalisation:
        """Learn the scale from chunked training recordings, (recordings, joints, chunks * 3)."""
        if frame not in FRAMES:
            raise TrellisError(f"frame={frame!r} is unknown: it is {' or '.join(FRAMES)}")
        if frame == "body" and layout.body is None:
            raise TrellisError(
                f"the layout {layout.name!r} does not say which joints its body stands and faces "
                "by: take the camera's frame, or give its layout.json a 'body' of four joints, "
                "bottom, top, left and right"
            )
        if size not in SIZES:
            raise TrellisError(f"size={size!r} is unknown: it is {' or '.join(SIZES)}")
        if size == "alike" and not layout.bones:
            raise TrellisError(
                f"the layout {layout.name!r} has no bones to tell a skeleton's size by: take the "
                "size as recorded, or say in its layout.json (or .npz) which 'parents' joints have"
            )
        plain = cls(tuple(layout.roots), 1.0, layout.body if frame == "body" else None)
        if size == "alike":
            usual = float(np.median(bone_lengths(x, layout.bones)))
            if not usual > 0:
                raise TrellisError(
                    "the bones of most training recordings have no length: take the size as "
                    "recorded"
                )
            plain = replace(plain, bones=layout.bones, length=usual)
        return replace(plain, scale=float(plain(x).std(dtype=np.float64)))

    @property
    def frame(self) -> str:
        """Whose frame coordinates are in: the camera's or the body's."""
        return "camera" if self.body is None else "body"

    @property
    def size(self) -> str:
        """Whether skeletons are as large as they were recorded, or all alike."""
        return "alike" if self.bones else "recorded"

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(recordings, joints, chunks * 3), the same shape out."""
        found = _centred(x, self.roots)
        if self.body is not None:
            points = found.reshape(*x.shape[:2], -1, 3)
            turns = body_axes(points.mean(axis=2, dtype=np.float64)[:, list(self.body)])
            found = np.einsum("njmc,nac->njma", points, turns.astype(np.float32)).reshape(x.shape)
        if self.bones:
            lengths = bone_lengths(found, self.bones)
            lost = lengths <= _LOST * self.length
            factors = self.length / np.where(lost, self.length, lengths)
            found = found * factors.astype(np.float32)[:, None, None]
        return (found / np.float32(self.scale)).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        body = None if self.body is None else list(self.body)
        found = {"roots": list(self.roots), "scale": self.scale, "body": body}
        if self.bones:
            found |= {"bones": [list(bone) for bone in self.bones], "length": self.length}
        return found

    @classmethod
    def from_dict(cls, given: Any) -> Normalisation:
        """The inverse of `to_dict`, from a file."""
        found = fitted(given, InputNormalisation)
        body = found.get("body")
        if found.get("bones") and "length" not in found:
            raise TrellisError("expected the key 'length' beside 'bones', got none")
        return cls(
            tuple(found["roots"]),
            found["scale"],
            None if body is None else tuple(body),
            tuple(found.get("bones", ())),
            found.get("length", 1.0),
        )


def body_axes(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """(recordings, 4, 3), bottom, top, left and right -> (recordings, 3, 3): a turn for each, whose
    rows are its body's x, y and z. The turn is none where the four say nothing of one of them: up
    or across is next to nothing beside the other, or both point the same way.

    >>> bottom, top, left, right = [0, 0, 0], [0, 0, 2], [0, 1, 1], [0, -1, 1]
    >>> body_axes(np.array([[bottom, top, left, right]], float))[0] + 0.0
    array([[ 0., -1.,  0.],
           [ 0.,  0.,  1.],
           [-1.,  0.,  0.]])
    """
    up, across = points[:, 1] - points[:, 0], points[:, 3] - points[:, 2]
    height, span = (np.linalg.norm(axis, axis=1, keepdims=True) for axis in (up, across))
    y = up / np.maximum(height, np.finfo(np.float64).tiny)
    level = across - (across * y).sum(1, keepdims=True) * y
    width = np.linalg.norm(level, axis=1, keepdims=True)
    x = level / np.maximum(width, np.finfo(np.float64).tiny)
    turns = np.stack([x, y, np.cross(x, y)], axis=1)
    lost = np.minimum(height, width) <= _NOWHERE * np.maximum(height, span)
    turns[lost[:, 0]] = np.eye(3)
    return turns


def bone_lengths(x: NDArray[np.float32], bones: tuple[tuple[int, int], ...]) -> NDArray[np.float64]:
    """(recordings, joints, chunks * 3) -> (recordings,): the mean length of the bones, over time.

    >>> arm = np.array([[[0, 0, 0], [0, 3, 4]], [[7, 7, 7], [7, 7, 7]]], np.float32)
    >>> bone_lengths(arm, ((0, 1),))
    array([5., 0.])
    """
    points = x.reshape(*x.shape[:2], -1, 3)
    found = np.zeros(len(x))
    for one, other in bones:  # one by one: together they would take several times x
        apart = np.subtract(points[:, one], points[:, other], dtype=np.float64)
        found += np.sqrt((apart**2).sum(axis=-1)).mean(axis=1)
    return found / len(bones)


def _centred(x: NDArray[np.float32], roots: tuple[int, ...]) -> NDArray[np.float32]:
    points = x.reshape(*x.shape[:2], -1, 3)  # recordings, joints, chunks, axes
    centre = points[:, list(roots)].mean(axis=(1, 2), keepdims=True, dtype=np.float64)
    centred: NDArray[np.float32] = points - centre.astype(np.float32)
    return centred.reshape(x.shape)
