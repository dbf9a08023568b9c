"""From recordings to the input of a network: chunked, normalized, and as channels.

Chunks make all recordings equally long. `Normalization` sets origin, orientation, size and scale.
`Channels` are coordinates, velocities or bones, or their cosine transform.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import TrellisError
from ...limits import check_bytes, check_count
from ...schema import InputNormalization, fitted
from ...training.stacks import Forward
from .layouts import Layout

CHUNKS = 32  # the paper's M


def chunked(sequences: Sequence[NDArray[np.float32]], chunks: int = CHUNKS) -> NDArray[np.float32]:
    """Average recordings of any length to a fixed number of chunks.

    Frame t of T belongs to chunk ⌊tM/T⌋, and a chunk is the mean of its frames. If T < M, some
    chunks have no frame; they are interpolated linearly at their center, (m + ½)T/M. The channels
    of a joint are its M means one after another, x y z each.

    Args:
        sequences: Recordings, (frames, joints, 3) each.
        chunks: The number of chunks M.

    Returns:
        (recordings, joints, chunks * 3).

    >>> ramp = np.arange(4, dtype=np.float32).reshape(4, 1, 1) * np.ones((1, 1, 3), np.float32)
    >>> chunked([ramp], chunks=2)[0, 0]
    array([0.5, 0.5, 0.5, 2.5, 2.5, 2.5], dtype=float32)
    >>> chunked([ramp], chunks=8)[0, 0, ::3]
    array([0.  , 0.75, 1.  , 1.75, 2.  , 2.75, 3.  , 3.  ], dtype=float32)
    """
    check_count("chunks", chunks)
    if len(sequences) == 0:
        raise TrellisError("there are no recordings to chunk")
    lengths = np.array([len(frames) for frames in sequences])
    if lengths.min() == 0:
        raise TrellisError(f"recording {int(lengths.argmin())} has no frames to chunk")
    joints, axes = sequences[0].shape[1:]
    check_bytes(
        4 * len(sequences) * chunks * joints * axes,
        f"{len(sequences):,} recordings in {chunks:,} chunks",
        "give fewer chunks, or fewer recordings",
    )
    frames = np.concatenate(sequences).reshape(lengths.sum(), joints * axes)
    first = np.concatenate([[0], np.cumsum(lengths)])[:-1]  # of each recording, among all frames

    # A chunk's first frame is the smallest t with tM/T >= m.
    starts = -(-np.arange(chunks) * lengths[:, None] // chunks)  # (recordings, chunks)
    counts = np.diff(starts, axis=1, append=lengths[:, None])
    full = counts > 0
    sums = np.add.reduceat(frames, (first[:, None] + starts)[full], axis=0, dtype=np.float64)
    means = np.empty((len(lengths), chunks, joints * axes), np.float32)
    means[full] = sums / counts[full][:, None]

    row, chunk = np.nonzero(~full)
    last = lengths[row] - 1
    center = np.minimum((chunk + 0.5) * lengths[row] / chunks, last)
    before = np.floor(center).astype(np.int64)
    after = np.minimum(before + 1, last)
    weight = (center - before)[:, None]
    means[row, chunk] = (1 - weight) * frames[first[row] + before] + weight * frames[
        first[row] + after
    ]
    by_joint = means.reshape(len(lengths), chunks, joints, axes).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(by_joint).reshape(len(lengths), joints, chunks * axes)


# Discrete cosine transform (DCT-II) of each coordinate over its chunks. A weight on a chunk reads
# one moment; a weight on a coefficient reads one frequency of the whole motion. A dense network can
# compute one from the other. A network with one weight in a thousand cannot, and is more accurate
# on coefficients (docs/results/choosing.md).


def cosines(chunks: int) -> NDArray[np.float64]:
    """Return the orthonormal matrix (chunks, chunks) of the discrete cosine transform (DCT-II).

    >>> cosines(2).round(3).tolist()
    [[0.707, 0.707], [0.707, -0.707]]
    >>> bool(np.allclose(cosines(5) @ cosines(5).T, np.eye(5)))
    True
    """
    k, m = np.arange(chunks)[:, None], np.arange(chunks)
    matrix = np.sqrt(2 / chunks) * np.cos(np.pi * (m + 0.5) * k / chunks)
    matrix[0] = np.sqrt(1 / chunks)
    found: NDArray[np.float64] = matrix
    return found


def cosine_transform(x: Tensor) -> Tensor:
    """Return the discrete cosine transform over chunks.

    Shapes: (…, chunks * 3), x y z of each chunk -> (…, chunks * 3), x y z of each coefficient.

    >>> still = torch.tensor([1.0, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3])        # at four moments
    >>> cosine_transform(still).round(decimals=3).tolist()[:6]
    [2.0, 4.0, 6.0, 0.0, 0.0, 0.0]
    """
    with torch.autocast(
        x.device.type, enabled=False
    ):  # in full precision: bfloat16 would distort the transform
        found: Tensor = x @ _by_axis(x.shape[-1] // 3, x.dtype, x.device)
    return found


@functools.cache
def _by_axis(chunks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the transposed transform of x, y and z, (chunks * 3, chunks * 3).

    It is cached, because a captured CUDA graph cannot copy it from the host.
    """
    with torch.inference_mode(False):
        return torch.from_numpy(np.kron(cosines(chunks).T, np.eye(3))).to(device, dtype)


# Windows: an eighth of the chunks lies from one window to the next, and a window spans a quarter of
# them. A filter that reads a window finds a movement wherever in the recording it happens.
_STEP, _SPAN = 8, 4


def window_count(chunks: int) -> int:
    """Return the number of windows of a recording.

    Raises:
        TrellisError: The chunks cannot be divided into windows.

    >>> window_count(32)
    7
    """
    if chunks % _STEP:
        raise TrellisError(
            f"windows need a number of chunks that is a multiple of {_STEP}, got {chunks}; give "
            "another number of chunks, or the channels 'coordinates' alone"
        )
    return (chunks - chunks // _SPAN) // (chunks // _STEP) + 1


@functools.cache
def _windowing(chunks: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the map from a recording's cosine coefficients to those of all its windows.

    Shapes: (chunks * 3, windows * chunks / 4 * 3).
    """
    width, step = chunks // _SPAN, chunks // _STEP
    found = np.zeros((window_count(chunks), width, chunks))
    for window, rows in enumerate(found):
        rows[:, window * step : window * step + width] = cosines(width)
    matrix = found.reshape(-1, chunks) @ cosines(chunks).T
    with torch.inference_mode(False):
        return torch.from_numpy(np.kron(matrix.T, np.eye(3))).to(device, dtype)


KINDS = ("coordinates", "velocity", "bones", "windows")
COORDINATES = KINDS[:1]
BASES = ("chunks", "cosines")


@dataclass(frozen=True)
class Channels:
    """The channels that a network reads of each joint; stored with a model.

    Takes numpy arrays and tensors, (…, joints, chunks * 3) -> (…, joints, count(chunks)).

    Args:
        parents: The parent of each joint, -1 for none.
        kinds: One or more of "coordinates" (x y z of each chunk), "velocity" (the difference to
            the chunk before, for all chunks but the first), "bones" (the difference to the
            parent joint; a joint without a parent keeps its coordinates) and "windows" (the cosine
            coefficients of the coordinates in each of seven overlapping windows). "windows" come
            first and are never alone: see `GCN`.
        basis: "chunks" for moments in time, or "cosines" for coefficients of the discrete cosine
            transform, lowest frequency first. "cosines" does not allow "velocity".

    Raises:
        TrellisError: A kind or the basis is unknown, or they do not fit together.

    Example:
        >>> arm = Layout("arm", ("shoulder", "hand"), parents=(-1, 0))
        >>> channels = Channels.of(arm, ("velocity", "bones"))
        >>> channels.count(chunks=2)
        9
        >>> x = np.array([[1, 1, 1, 2, 3, 4], [5, 5, 5, 7, 7, 7]], np.float32)  # two chunks
        >>> channels(x)
        array([[1., 2., 3., 1., 1., 1., 2., 3., 4.],
               [2., 2., 2., 4., 4., 4., 5., 4., 3.]], dtype=float32)
    """

    parents: tuple[int, ...]
    kinds: tuple[str, ...] = COORDINATES
    basis: str = BASES[0]

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise TrellisError(f"channels {kind!r} are unknown: they are {', '.join(KINDS)}")
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise TrellisError(
                f"channels are {self.kinds!r}: give one kind or more of {', '.join(KINDS)}, each "
                "once"
            )
        if self.basis not in BASES:
            raise TrellisError(f"basis={self.basis!r} is unknown: it is {' or '.join(BASES)}")
        if self.basis == "cosines" and "velocity" in self.kinds:
            raise TrellisError(
                f"channels {', '.join(self.kinds)} in the basis 'cosines': velocity is from one "
                "chunk to the next; give coordinates, bones, or both, or take the basis 'chunks'"
            )
        if "windows" in self.kinds:
            if self.kinds[0] != "windows" or len(self.kinds) == 1:
                raise TrellisError(
                    f"channels {', '.join(self.kinds)}: windows come first, and other channels "
                    "after them; give windows and coordinates"
                )
            if self.basis != "cosines":
                raise TrellisError(
                    f"channels {', '.join(self.kinds)} in the basis {self.basis!r}: windows are "
                    "given as cosine coefficients; take the basis 'cosines', or leave out windows"
                )
        count = len(self.parents)
        if not all(-1 <= parent < count for parent in self.parents):
            raise TrellisError(f"the parents {self.parents} are not among {count} joints")

    @classmethod
    def of(
        cls, layout: Layout, kinds: Sequence[str] = COORDINATES, basis: str = BASES[0]
    ) -> Channels:
        """Return channels of these ``kinds``, in this order, for a layout."""
        if isinstance(kinds, str):
            raise TrellisError(f"channels are {kinds!r}: give a list of kinds, ({kinds!r},)")
        return cls(tuple(layout.parents), tuple(kinds), basis)

    def count(self, chunks: int) -> int:
        """Return the number of channels of a joint."""
        windows, size = self.windows(chunks)
        others = [kind for kind in self.kinds if kind != "windows"]
        return windows * size + sum(
            3 * (chunks - 1 if kind == "velocity" else chunks) for kind in others
        )

    def windows(self, chunks: int) -> tuple[int, int]:
        """Return the number of windows and the channels of a joint in each; zeros for none.

        >>> Channels((-1,), ("windows", "coordinates"), "cosines").windows(32)
        (7, 24)
        """
        if "windows" not in self.kinds:
            return 0, 0
        return window_count(chunks), 3 * (chunks // _SPAN)

    @overload
    def __call__(self, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: NDArray[Any]) -> NDArray[Any]: ...
    def __call__(self, x: Tensor | NDArray[Any]) -> Tensor | NDArray[Any]:
        """Return the channels of recordings, as the same type of array."""
        if x.ndim < 2 or x.shape[-2] != len(self.parents) or x.shape[-1] % 3 or not x.shape[-1]:
            raise TrellisError(
                f"recordings of the shape {tuple(x.shape)}: channels are made of (…, "
                f"{len(self.parents)} joints, 3 coordinates for each chunk)"
            )
        if not isinstance(x, Tensor):
            found: NDArray[Any] = self(torch.tensor(np.ascontiguousarray(x))).numpy()
            return found
        return self.seen(cosine_transform(x) if self.basis == "cosines" else x)

    def seen(self, x: Tensor) -> Tensor:
        """Return the channels of recordings that are given in the basis already."""
        if self.kinds == COORDINATES:
            return x
        return torch.cat([self._channels(kind, x) for kind in self.kinds], dim=-1)

    def _channels(self, kind: str, x: Tensor) -> Tensor:
        if kind == "coordinates":
            return x
        if kind == "windows":
            with torch.autocast(x.device.type, enabled=False):
                found: Tensor = x @ _windowing(x.shape[-1] // 3, x.dtype, x.device)
            return found
        if kind == "velocity":
            return x[..., 3:] - x[..., :-3]
        # Slices, not an index tensor: a captured CUDA graph cannot copy an index from the host.
        joints = [x[..., j : j + 1, :] for j in range(len(self.parents))]
        ends = zip(joints, self.parents, strict=True)
        bones = [joint - joints[p] if p >= 0 else joint for joint, p in ends]
        return torch.cat(bones, dim=-2)


def reading_channels(channels: Channels, forward: Forward) -> Forward:
    """Return the function of a stack that takes coordinates, for networks with these channels."""
    return lambda weights, places: forward(weights, channels(places))


# Normalization of chunked recordings: origin, orientation, size and scale.


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
