"""``trellis.Runtime``: a ``.trellis`` file, ready to predict."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TrellisError
from .format.read import content, read_meta
from .native_library import library
from .recording import bone_length, cosine_table, divisor, waves

# One recording as the input of a network, by the same C that a device runs.


def recorded(frames: NDArray[np.float32], recording: Mapping[str, Any]) -> NDArray[np.float32]:
    """(frames, joints, 3), contiguous, -> (joints, chunks · 3), as the notes of a `Recording` say.

    >>> notes = {"joints": ["hand"], "chunks": 2, "roots": [0], "scale": 0.5}
    >>> recorded(np.arange(12, dtype=np.float32).reshape(4, 1, 3), notes)
    array([[-6., -6., -6.,  6.,  6.,  6.]], dtype=float32)
    """
    count, joints = frames.shape[:2]
    chunks = recording["chunks"]
    roots = np.array(recording["roots"], np.uintc)
    made = np.empty((joints, chunks * 3), np.float32)
    table = work = None
    body, bones = (
        np.array(recording[name], np.uintc) if recording.get(name) else None
        for name in ("body", "bones")
    )
    if waves(recording):
        table = np.append(cosine_table(chunks), np.float32(0))  # of one chunk, it is empty
        work = np.empty(3 * chunks, np.float32)
    library().trellis_recorded(
        frames.ctypes.data, count, joints, chunks, roots.ctypes.data, len(roots),
        divisor(recording), made.ctypes.data, _place(body), _place(bones),
        0 if bones is None else len(bones), bone_length(recording), _place(table), _place(work),
    )  # fmt: skip
    return made


def _place(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


Floats = NDArray[np.float32]


class Runtime:
    """A network's tables in the compiled sparse run-time.

    Reads nothing but data: the kernel is built once, from the source in this package, by the
    machine's C compiler (or ``pip install ziglang``) into the user's cache. Any number of threads
    may predict with one `Runtime`; Python's interpreter lock is released meanwhile.

    >>> import tempfile, torch, trellis
    >>> layer = torch.nn.Linear(3, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = trellis.export_c(layer, torch.zeros(1, 3), folder)
    ...     network = Runtime(os.path.join(folder, "model.trellis"))
    >>> x = np.ones((5, 3), np.float32)
    >>> network.predict(x).shape, network
    ((5, 2), Runtime((3,) -> (2,), fp32))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        data = content(path)
        meta = read_meta(data, str(path))
        self.inputs = [tuple(shape) for shape in meta["inputs"]]
        self.outputs = [tuple(shape) for shape in meta["outputs"]]
        self.values: str = meta["values"]
        self.classes: list[str] | None = meta.get("classes")
        self.recording: dict[str, Any] | None = meta.get("recording")
        self._library = library()
        why = ctypes.create_string_buffer(200)
        self._model = self._library.trellis_open(data, len(data), why, len(why))
        if not self._model:
            raise TrellisError(
                f"{str(path)!r} is no sound .trellis file: {why.value.decode('ascii', 'replace')}"
            )
        self._close = weakref.finalize(self, self._library.trellis_close, self._model)
        found = (
            self._library.trellis_inputs(self._model),
            self._library.trellis_outputs(self._model),
        )
        if found != (sum(map(math.prod, self.inputs)), sum(map(math.prod, self.outputs))):
            raise TrellisError(f"{str(path)!r} is no sound .trellis file: its shapes do not fit")
        self._widths = found
        self._local = threading.local()

    def predict(self, *inputs: Any) -> Any:
        """The network's output for one input after another, or for a batch of them.

        An input has the shape of the model's, with a batch in front or without; arrays, tensors
        and nested lists will do. Returns a float32 array, or a tuple of them if the model has
        several outputs.
        """
        if len(inputs) != len(self.inputs):
            raise TrellisError(
                f"the model has {len(self.inputs)} inputs and {len(inputs)} are given"
            )
        parts = [_array(x) for x in inputs]
        single = parts[0].shape == self.inputs[0]
        batch = 1 if single or parts[0].ndim == 0 else parts[0].shape[0]
        for part, shape in zip(parts, self.inputs, strict=True):
            if part.shape != (shape if single else (batch, *shape)):
                raise TrellisError(
                    f"an input has the shape {part.shape}; the model reads {shape}, or a batch "
                    f"of them: (batch, {', '.join(map(str, shape))})"
                )
        flat = [part.reshape(batch, math.prod(part.shape[not single :])) for part in parts]
        x = np.ascontiguousarray(flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1))
        if not np.isfinite(x).all():  # a kernel without branches would make numbers of it
            raise TrellisError("an input holds a number that is not finite: repair it first")
        y = self._run(x)
        if not np.isfinite(y).all():
            raise TrellisError(
                "an output is not finite: the network overflows on these inputs; give inputs like "
                "those it was trained on"
            )
        results = self._split(y)
        results = [result[0] for result in results] if single else results
        return results[0] if len(results) == 1 else tuple(results)

    def prepared(self, recordings: Sequence[Any]) -> Floats:
        """Recordings, (frames, joints, 3) each, as inputs, in C: averaged over chunks, centred
        and scaled; turned, where the network reads the body's frame; brought to one size, where it
        does; and transformed, where it reads waves."""
        if self.recording is None:
            raise TrellisError("this model says nothing of recordings: give its inputs to predict")
        joints = len(self.recording["joints"])
        made = np.empty((len(recordings), joints, self.recording["chunks"] * 3), np.float32)
        for number, given in enumerate(recordings):
            frames = np.ascontiguousarray(_array(given))
            if frames.shape[1:] != (joints, 3) or len(frames) == 0 or not np.isfinite(frames).all():
                raise TrellisError(
                    f"recording {number} has the shape {frames.shape}; at least one frame of "
                    f"({joints}, 3) finite numbers is expected"
                )
            made[number] = recorded(frames, self.recording)
        return made

    def _run(self, x: Floats) -> Floats:
        y = np.empty((len(x), self._widths[1]), np.float32)
        self._library.trellis_predict(
            self._model, x.ctypes.data, len(x), y.ctypes.data, self._scratch(len(x))
        )
        return y

    def _scratch(self, batch: int) -> int:
        """Where memory of this thread's own lies, 64-byte aligned; it is kept for the next call."""
        kept: tuple[int, int, Any] = getattr(self._local, "scratch", (-1, 0, None))
        if kept[0] < batch:
            size = self._library.trellis_scratch(self._model, batch)
            raw = np.zeros(size + 64, np.uint8)
            kept = batch, raw.ctypes.data + -raw.ctypes.data % 64, raw
            self._local.scratch = kept
        return kept[1]

    def _split(self, y: Floats) -> list[Floats]:
        if len(self.outputs) == 1:
            return [y.reshape(len(y), *self.outputs[0])]
        ends = np.cumsum([math.prod(shape) for shape in self.outputs])[:-1]
        return [
            part.reshape(len(y), *shape)
            for part, shape in zip(np.split(y, ends, axis=1), self.outputs, strict=True)
        ]

    def __repr__(self) -> str:
        shapes = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"Runtime({shapes[0]} -> {shapes[1]}, {self.values})"


def _array(value: Any) -> Floats:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError) as error:
        raise TrellisError(f"an input is no array of numbers: {error}") from None


# Tables evaluated by the C run-time, from Python.


__all__ = ["Runtime"]
