"""`trellis.Runtime`: run a ``.trellis`` file with the compiled sparse kernel."""

from __future__ import annotations

import ctypes
import functools
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
from .recording import bone_length, cosine_table, divisor, follows, waves
from .stream import Stream, Streaming

# From a recording to the input of a network, by the same C that a device runs.


def recorded(frames: NDArray[np.float32], recording: Mapping[str, Any]) -> NDArray[np.float32]:
    """Prepare a contiguous (frames, joints, 3) as (joints, chunks · 3), by a `Recording`'s notes.

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
        table = np.append(cosine_table(chunks), np.float32(0))  # for one chunk the table is empty
        work = np.empty(3 * chunks, np.float32)
    library().trellis_recorded(
        frames.ctypes.data, count, joints, chunks, roots.ctypes.data, len(roots),
        divisor(recording), made.ctypes.data, _place(body), _place(bones),
        0 if bones is None else len(bones), bone_length(recording), _place(table), _place(work),
        follows(recording),
    )  # fmt: skip
    return made


def _place(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


Floats = NDArray[np.float32]
_FLOAT = np.dtype(np.float32)


# Small inputs are copied to memory at a known address. Asking numpy for the address of an array
# takes longer than such a copy, and nearly as long as a network at 99.9 %.

_SMALL = 16384  # numbers


class _Workspace:
    """Memory for one sample: input, output and scratch at fixed addresses.

    Attributes:
        places: For each shape that one sample may have, with a batch of one or without: the memory
            of the input, and that of the output in the shape of the result.
        addresses: Arguments of ``trellis_checked``.
    """

    def __init__(self, runtime: Runtime) -> None:
        widths, scratch = runtime._widths, runtime._scratch_bytes(1)
        x, y = (np.zeros(width, np.float32) for width in widths)
        raw = np.zeros(scratch + 64, np.uint8)
        self._kept = x, y, raw
        shapes = runtime.inputs[0], runtime.outputs[0]
        self.places: dict[tuple[int, ...], tuple[Floats, Floats]] = {
            (*batch, *shapes[0]): (x.reshape(*batch, *shapes[0]), y.reshape(*batch, *shapes[1]))
            for batch in ((1,), ())
        }
        self.addresses = x.ctypes.data, 1, y.ctypes.data, _aligned(raw)


def _aligned(raw: NDArray[np.uint8]) -> int:
    """Return the first 64-byte aligned address of an array."""
    address = raw.ctypes.data
    return address + -address % 64


class Runtime:
    """A network in the compiled sparse run-time.

    The kernel is built once, from the source in this package, by the machine's C compiler (or
    ``pip install ziglang``), into the user's cache. A ``.trellis`` file holds data only, no code.
    Any number of threads may share one `Runtime`; Python's interpreter lock is released while it
    computes.

    Args:
        path: A ``.trellis`` file, such as `trellis.export_c` writes.

    Attributes:
        inputs: Shapes of the inputs, without the batch.
        outputs: Shapes of the outputs, without the batch.
        values: How weights are stored: ``"fp32"``, ``"fp16"`` or ``"int8"``.
        classes: Names of the classes, or None.
        recording: What the network expects of a recording, or None.

    Raises:
        TrellisError: If the file is damaged, or the kernel cannot be built.

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
                f"{str(path)!r} is damaged or not a .trellis file: "
                f"{why.value.decode('ascii', 'replace')}"
            )
        self._close = weakref.finalize(self, self._library.trellis_close, self._model)
        found = (
            self._library.trellis_inputs(self._model),
            self._library.trellis_outputs(self._model),
        )
        if found != (sum(map(math.prod, self.inputs)), sum(map(math.prod, self.outputs))):
            raise TrellisError(
                f"{str(path)!r} is damaged or not a .trellis file: its shapes do not fit"
            )
        self._widths = found
        self._local = threading.local()
        self._checked = functools.partial(self._library.trellis_checked, self._model)
        # A call takes a workspace and puts it back. So two threads never share one, nor do a call
        # and a signal handler that interrupts it.
        self._workspaces: list[_Workspace] = []
        shape = self.inputs[0]
        small = len(self.inputs) == len(self.outputs) == 1 and found[0] <= _SMALL
        self._alone = frozenset({shape, (1, *shape)} if small else ())

    def predict(self, *inputs: Any) -> Any:
        """Compute the network's outputs for one sample or for a batch.

        Args:
            *inputs: One array, tensor or nested list per input of the model, of the model's shape
                or with a batch in front.

        Returns:
            A float32 array, or a tuple of them if the model has several outputs; with a batch in
            front if the inputs had one.

        Raises:
            TrellisError: If shapes do not fit, or a number is not finite.
        """
        if len(inputs) != len(self.inputs):
            raise TrellisError(f"expected {len(self.inputs)} inputs, got {len(inputs)}")
        first = inputs[0]
        if type(first) is not np.ndarray or first.dtype is not _FLOAT:
            first = _array(first)
        if first.shape in self._alone:
            return self._one(first)
        return self._several([first, *map(_array, inputs[1:])])

    def _one(self, x: Floats) -> Floats:
        """Compute one sample, of a model with one small input and one output."""
        try:
            workspace = self._workspaces.pop()
        except IndexError:
            workspace = _Workspace(self)
        given, made = workspace.places[x.shape]
        given[...] = x
        bad = self._checked(*workspace.addresses)
        found = None if bad else made.copy()
        self._workspaces.append(workspace)
        if found is None:
            raise _not_finite(bad)
        return found

    def _several(self, parts: list[Floats]) -> Any:
        """Compute a batch, or one sample of any model."""
        single = parts[0].shape == self.inputs[0]
        batch = 1 if single or parts[0].ndim == 0 else parts[0].shape[0]
        for part, shape in zip(parts, self.inputs, strict=True):
            if part.shape != (shape if single else (batch, *shape)):
                raise TrellisError(
                    f"expected an input of shape {shape} or, as a batch, (batch, "
                    f"{', '.join(map(str, shape))}), got {part.shape}"
                )
        flat = [part.reshape(batch, math.prod(part.shape[not single :])) for part in parts]
        x = np.ascontiguousarray(flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1))
        y = np.empty((batch, self._widths[1]), np.float32)
        bad = self._checked(x.ctypes.data, batch, y.ctypes.data, self._scratch(batch))
        if bad:
            raise _not_finite(bad)
        results = self._split(y)
        results = [result[0] for result in results] if single else results
        return results[0] if len(results) == 1 else tuple(results)

    def prepared(self, recordings: Sequence[Any]) -> Floats:
        """Prepare recordings as inputs of the network, in C.

        Each recording is averaged over chunks, centred and scaled. If the network was trained so,
        it is also turned into the body's frame, rescaled to one size, and cosine transformed.

        Args:
            recordings: Arrays of shape (frames, joints, 3).

        Returns:
            An array of shape (recordings, joints, chunks · 3), for `predict`.

        Raises:
            TrellisError: If the model does not read recordings, or a recording does not fit.
        """
        if self.recording is None:
            raise TrellisError("this model does not read recordings; give its inputs to predict")
        joints = len(self.recording["joints"])
        made = np.empty((len(recordings), joints, self.recording["chunks"] * 3), np.float32)
        for number, given in enumerate(recordings):
            frames = np.ascontiguousarray(_array(given))
            if frames.shape[1:] != (joints, 3) or len(frames) == 0 or not np.isfinite(frames).all():
                raise TrellisError(
                    f"recording {number}: expected finite numbers of shape (frames, {joints}, 3), "
                    f"got {frames.shape}"
                )
            made[number] = recorded(frames, self.recording)
        return made

    def stream(self, settings: Streaming | None = None) -> Stream:
        """Return a stream that finds gestures in frames as they come.

        Args:
            settings: The settings (default: those that the model was exported with).

        Raises:
            TrellisError: The model does not read recordings, has no classes or no settings.
        """
        recording = self.recording
        if recording is None or self.classes is None:
            raise TrellisError("this model does not name what happens in recordings")
        if settings is None and "stream" not in recording:
            raise TrellisError(
                "this model has no settings of a stream; give trellis.skeleton.Streaming(windows)"
            )
        return Stream(
            settings or Streaming.from_notes(recording["stream"]), self.classes,
            len(recording["joints"]), recording["chunks"], recording["scale"],
            lambda recordings: self.predict(self.prepared(recordings)),
        )  # fmt: skip

    def _scratch(self, batch: int) -> int:
        """Return the address of this thread's scratch memory, 64-byte aligned and reused."""
        kept: tuple[int, int, Any] = getattr(self._local, "scratch", (-1, 0, None))
        if kept[0] < batch:
            raw = np.zeros(self._scratch_bytes(batch) + 64, np.uint8)
            kept = batch, _aligned(raw), raw
            self._local.scratch = kept
        return kept[1]

    def _scratch_bytes(self, batch: int) -> int:
        return int(self._library.trellis_scratch(self._model, batch))

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


def _not_finite(code: int) -> TrellisError:
    """Return the error for what `trellis_checked` found."""
    if code == -1:
        return TrellisError("an input holds a number that is not finite; repair it first")
    return TrellisError(
        "an output is not finite: the network overflows; give inputs like those it was trained on"
    )


def _array(value: Any) -> Floats:
    if hasattr(value, "detach"):
        try:
            value = value.numpy()
        except (RuntimeError, TypeError):  # it needs a gradient, lies on a GPU, or is bfloat16
            value = value.detach().cpu().float().numpy()
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError) as error:
        raise TrellisError(f"expected an array of numbers: {error}") from None


__all__ = ["Runtime"]
