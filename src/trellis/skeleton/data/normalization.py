"""Normalization of chunked recordings: origin, orientation, size and scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import TrellisError
from ...schema import InputNormalization, fitted
from .layouts import Layout

FRAMES = ("camera", "body")
SIZES = ("recorded", "alike")
ORIGINS = ("recording", "frame")
# An axis shorter than this share of the body's height or span has no reliable direction. Devices
# compute in float32 (turn.h has the same rule), whose error is a hundredth of it.
_NOWHERE = 1e-4
# A skeleton whose bones are shorter than this share of the usual length was lost by its sensor and
# is not rescaled (size.h has the same rule).
_LOST = 0.05


@dataclass(frozen=True)
class Normalization:
    """Normalization of recordings; it is stored with a model.

    Args:
        roots: Joints whose mean position becomes the origin.
        scale: Divisor of all coordinates: their standard deviation in the training recordings.
        body: Four joints (bottom, top, left, right). If given, each recording is rotated so that
            its average body stands upright (y) and faces the same way (x from left to right). The
            position of the camera then does not matter.
        bones: Pairs of joints. If given, each recording is rescaled so that the mean length of
            these bones is ``length``. Body height and camera distance then do not matter.
        length: The usual mean length of the bones in the training recordings.
        origin: "recording": the mean position of the roots over time, so that the motion of the
            whole skeleton is kept. "frame": their position in each chunk, which is the mean of the
            frames taken relative to their own roots.

    Raises:
        TrellisError: An argument is out of range.

    Example:
        >>> x = np.zeros((1, 2, 6), np.float32)     # one recording, two joints, two chunks
        >>> x[0, :, ::3] = [[10, 12], [14, 16]]     # x of both joints, over time
        >>> Normalization(roots=(0,), scale=2.0)(x)[0, :, ::3]
        array([[-0.5,  0.5],
               [ 1.5,  2.5]], dtype=float32)
    """

    roots: tuple[int, ...]
    scale: float
    body: tuple[int, ...] | None = None
    bones: tuple[tuple[int, int], ...] = ()
    length: float = 1.0
    origin: str = ORIGINS[0]

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
        if self.origin not in ORIGINS:
            raise TrellisError(f"origin={self.origin!r} is unknown: it is {' or '.join(ORIGINS)}")

    @classmethod
    def fit(
        cls,
        x: NDArray[np.float32],
        layout: Layout,
        frame: str = FRAMES[0],
        size: str = SIZES[0],
        origin: str = ORIGINS[0],
    ) -> Normalization:
        """Return the normalization fitted to chunked training recordings.

        Args:
            x: Recordings (recordings, joints, chunks * 3).
            layout: The skeleton.
            frame: "camera", or "body" to rotate recordings into the body's frame.
            size: "recorded", or "alike" to rescale all skeletons to one size.
            origin: "recording", or "frame" to place every frame relative to its own roots.

        Raises:
            TrellisError: The layout names no body joints or bones, but they are needed.
        """
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
        body = layout.body if frame == "body" else None
        plain = cls(tuple(layout.roots), 1.0, body, origin=origin)
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
        """The frame of the coordinates: "camera" or "body"."""
        return "camera" if self.body is None else "body"

    @property
    def size(self) -> str:
        """The size of skeletons: "recorded" or "alike"."""
        return "alike" if self.bones else "recorded"

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return normalized recordings of the same shape, (recordings, joints, chunks * 3)."""
        found = _centered(x, self.roots, self.origin)
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
        """Return the settings as JSON can hold them."""
        body = None if self.body is None else list(self.body)
        found = {"roots": list(self.roots), "scale": self.scale, "body": body}
        if self.bones:
            found |= {"bones": [list(bone) for bone in self.bones], "length": self.length}
        if self.origin != ORIGINS[0]:  # files without it are centered as they always were
            found["origin"] = self.origin
        return found

    @classmethod
    def from_dict(cls, given: Any) -> Normalization:
        """Return what `to_dict` stored in a file."""
        found = fitted(given, InputNormalization)
        body = found.get("body")
        if found.get("bones") and "length" not in found:
            raise TrellisError("expected the key 'length' beside 'bones', got none")
        return cls(
            tuple(found["roots"]),
            found["scale"],
            None if body is None else tuple(body),
            tuple(found.get("bones", ())),
            found.get("length", 1.0),
            found.get("origin", ORIGINS[0]),
        )


def body_axes(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rotation into the body's frame of each recording.

    The rows of a rotation are the body's x, y and z axes. It is the identity if the axes cannot be
    found: one is far shorter than the other, or both are parallel.

    Shapes: (recordings, 4, 3), bottom, top, left and right -> (recordings, 3, 3).

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
    """Return the mean length of the bones of each recording, over time.

    Shapes: (recordings, joints, chunks * 3) -> (recordings,).

    >>> arm = np.array([[[0, 0, 0], [0, 3, 4]], [[7, 7, 7], [7, 7, 7]]], np.float32)
    >>> bone_lengths(arm, ((0, 1),))
    array([5., 0.])
    """
    points = x.reshape(*x.shape[:2], -1, 3)
    found = np.zeros(len(x))
    for one, other in bones:  # one by one, because all together need several times the memory of x
        apart = np.subtract(points[:, one], points[:, other], dtype=np.float64)
        found += np.sqrt((apart**2).sum(axis=-1)).mean(axis=1)
    return found / len(bones)


def _centered(x: NDArray[np.float32], roots: tuple[int, ...], origin: str) -> NDArray[np.float32]:
    points = x.reshape(*x.shape[:2], -1, 3)  # recordings, joints, chunks, axes
    over = 1 if origin == "frame" else (1, 2)
    center = points[:, list(roots)].mean(axis=over, keepdims=True, dtype=np.float64)
    centered: NDArray[np.float32] = points - center.astype(np.float32)
    return centered.reshape(x.shape)
