"""A network with the preparation of its inputs, which names the action in a recording."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...deploy.recording import Recording
from ...deploy.stream import Stream, Streaming
from ...errors import TrellisError
from ...saving import save
from ...saving.folder import DESCRIPTION, read_folder
from ...saving.model import nested_in, rebuilt
from ...saving.nested import Nested
from ...schema import RecognizerNotes, fitted
from ..data.dataset import Fold, Frames, Indices, Skeletons
from ..data.layouts import Layout
from ..data.preparation import BASES, CHUNKS, COORDINATES, Channels, Normalization, chunked
from .gcn import GCN

NOTES = "recogniser"  # its key among a saved model's notes; stored files spell it so
NOTHING = "nothing"  # the background class
_BATCH = 600


class NotARecognizer(TrellisError):
    """A folder holds a model that does not describe recordings."""

    def __init__(self, folder: Path, remedy: str = "") -> None:
        super().__init__(
            f"expected a model of recordings, got {str(folder)!r}, which says nothing about "
            "recordings; "
            + (
                remedy
                or "give a folder that `trellis train` or Recognizer.save wrote, or load this "
                "model with trellis.load"
            )
        )
        self.folder = folder


@dataclass(frozen=True, eq=False)
class Recognizer:
    """A GCN with everything that is needed to apply it to a recording.

    Args:
        model: The network.
        chunks: The number of chunks that a recording is averaged to.
        normalization: The normalization of the chunked coordinates.
        classes: The names of the classes.
        layout: The skeleton.
        history: What was done to the network, oldest first: dictionaries with a ``step``
            ("train", "prune", "tune", "shrink") and its settings and metrics.
        kinds: The channels of each joint (`Channels`): "coordinates", "velocity", "bones",
            "windows".
        basis: "chunks" for moments in time, or "cosines" for the discrete cosine transform.
        streaming: How gestures are found in a stream of frames, or None.

    Raises:
        TrellisError: The network does not fit the classes, joints or channels.

    Example:
        >>> arm = Layout("arm", ("shoulder", "elbow", "hand"), parents=(-1, 0, 1))
        >>> gcn = GCN(nodes=3, channels=4 * 3, classes=2, heads=2, filters=5)
        >>> recognizer = Recognizer(gcn, 4, Normalization((0,), 1.0), ("wave", "point"), arm)
        >>> moving = np.zeros((50, 3, 3), np.float32)      # frames, joints, coordinates
        >>> recognizer.inputs([moving]).shape, recognizer.probabilities([moving]).shape
        ((1, 3, 12), (1, 2))
    """

    model: GCN
    chunks: int
    normalization: Normalization
    classes: tuple[str, ...]
    layout: Layout
    history: tuple[dict[str, Any], ...] = ()
    kinds: tuple[str, ...] = COORDINATES
    basis: str = BASES[0]
    streaming: Streaming | None = None

    def __post_init__(self) -> None:
        sizes = self.model.sizes
        joints = len(self.layout.joints)
        channels = self.channels.count(self.chunks)
        windows, size = self.channels.windows(self.chunks)
        fits = {
            "nodes": (joints, f"nodes={joints}, one for each joint"),
            "channels": (channels, f"channels={channels} for chunks={self.chunks}"),
            "windows": (windows, f"windows={windows} for the channels {', '.join(self.kinds)}"),
            "per_window": (size, f"per_window={size} for chunks={self.chunks}"),
            "classes": (len(self.classes), f"classes={len(self.classes)}"),
        }
        for name, (wanted, words) in fits.items():
            if sizes.get(name, 0) != wanted:
                raise TrellisError(
                    f"expected a network with {words}, got {name}={sizes.get(name, 0)}"
                )
        for name, chosen in (
            ("roots", self.normalization.roots),
            ("body", self.normalization.body or ()),
            ("bones", [joint for bone in self.normalization.bones for joint in bone]),
        ):
            if not all(0 <= joint < joints for joint in chosen):
                raise TrellisError(f"the normalization's {name} are {chosen}, of {joints} joints")

    @property
    def channels(self) -> Channels:
        """The channels that the network reads."""
        return Channels.of(self.layout, self.kinds, self.basis)

    def network(self) -> nn.Module:
        """Return the network as a function of what `prepared` returns, for export.

        It contains the computation of channels other than coordinates.

        Shapes: (recordings, joints, chunks * 3) -> (recordings, classes).
        """
        if self.kinds == COORDINATES:
            return self.model
        return _Seeing(self.channels, self.chunks, self.model)

    @classmethod
    def fresh(
        cls,
        data: Skeletons,
        fold: Fold,
        *,
        chunks: int = CHUNKS,
        kinds: Sequence[str] = COORDINATES,
        basis: str = BASES[0],
        frame: str = "camera",
        size: str = "recorded",
        origin: str = "recording",
        seed: int = 0,
        **options: Any,
    ) -> Recognizer:
        """Return an untrained recognizer for the classes and joints of recordings.

        Args:
            data: The recordings.
            fold: The fold whose training recordings the normalization is fitted to.
            chunks: The number of chunks.
            kinds: The channels of each joint.
            basis: "chunks" or "cosines".
            frame: "camera", or "body" to rotate recordings into the body's frame.
            size: "recorded", or "alike" to rescale all skeletons to one size.
            origin: "recording", or "frame" to place every frame relative to its own root joints.
            seed: The seed of the weights.
            **options: Options of `GCN`, such as ``heads``, ``filters`` and ``blocks``.

        Raises:
            TrellisError: The layout lacks the bones or body joints that an option needs.
        """
        if "bones" in kinds and not data.layout.bones:
            raise TrellisError(
                f"channels {', '.join(kinds)}: nothing says how the joints of {data.source!r} hang "
                "together; name a layout with bones (docs/skeletons.md), or leave bones out"
            )
        inputs = chunked([data.sequences[i] for i in fold.train], chunks)
        normalization = Normalization.fit(inputs, data.layout, frame, size, origin)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            channels = Channels.of(data.layout, kinds, basis)
            windows, per_window = channels.windows(chunks)
            if windows:
                options |= {"windows": windows, "per_window": per_window}
            model = GCN(
                len(data.layout.joints), channels.count(chunks), len(data.classes), **options
            )
        classes = tuple(data.classes)
        return cls(
            model, chunks, normalization, classes, data.layout, kinds=tuple(kinds), basis=basis
        )

    def inputs(self, sequences: Sequence[Frames]) -> NDArray[np.float32]:
        """Return the inputs of the network.

        Shapes: (frames, joints, 3) each -> (recordings, joints, channels).
        """
        found: NDArray[np.float32] = self.channels(self.places(sequences))
        return found

    def places(self, sequences: Sequence[Frames]) -> NDArray[np.float32]:
        """Return chunked and normalized coordinates.

        Shapes: (frames, joints, 3) each -> (recordings, joints, chunks * 3).
        """
        joints = len(self.layout.joints)
        for i, frames in enumerate(sequences):
            if frames.ndim != 3 or frames.shape[1:] != (joints, 3) or len(frames) == 0:
                raise TrellisError(
                    f"recording {i} has the shape {tuple(frames.shape)}; this model wants at least "
                    f"one frame of {joints} joints ({_few(self.layout.joints)}), 3 coordinates each"
                )
            if not np.isfinite(frames).all():
                raise TrellisError(f"recording {i} holds a coordinate that is not finite")
        return self.normalization(chunked(sequences, self.chunks))

    def prepared(self, sequences: Sequence[Frames]) -> NDArray[np.float32]:
        """Return normalized coordinates in the recognizer's basis: the inputs of `network`.

        Shapes: (frames, joints, 3) each -> (recordings, joints, chunks * 3).
        """
        found: NDArray[np.float32] = Channels.of(self.layout, basis=self.basis)(
            self.places(sequences)
        )
        return found

    def probabilities(self, sequences: Sequence[Frames]) -> NDArray[np.float32]:
        """Return the probability of each class, (recordings, classes).

        Raises:
            TrellisError: A recording has another shape or a coordinate that is not finite.
        """
        x = torch.from_numpy(self.inputs(sequences)).to(self.model.dense.weight.device)
        with torch.no_grad():
            many = _BATCH // max(1, self.model.sizes.get("windows", 0))
            parts = [torch.softmax(self.model(part), dim=1) for part in x.split(many)]
        found: NDArray[np.float32] = torch.cat(parts).float().cpu().numpy()
        if not np.isfinite(found).all():
            place = int(np.argmin(np.isfinite(found).all(axis=1)))
            raise TrellisError(
                f"the model's answer for recording {place} is not finite: a weight is NaN, or a "
                "coordinate is far larger than those it was trained on; train it again, or repair "
                "the recording"
            )
        return found

    def stream(self, settings: Streaming | None = None) -> Stream:
        """Return a stream that finds gestures in frames as they come.

        Args:
            settings: The settings. By default the recognizer's own, or else windows of 16, 32 and
                64 frames, and the class called "nothing", if there is one, as no gesture.

        Example:
            >>> arm = Layout("arm", ("shoulder", "elbow", "hand"), parents=(-1, 0, 1))
            >>> gcn = GCN(nodes=3, channels=4 * 3, classes=2, heads=2, filters=5)
            >>> recognizer = Recognizer(gcn, 4, Normalization((0,), 1.0), ("wave", "nothing"), arm)
            >>> stream = recognizer.stream()
            >>> stream.push(np.zeros((3, 3), np.float32)), stream.settings.nothing
            (None, 1)
        """
        settings = settings or self.streaming
        if settings is None:
            nothing = self.classes.index(NOTHING) if NOTHING in self.classes else None
            settings = Streaming((16, 32, 64), nothing)
        device = self.model.dense.weight.device

        def predict(recordings: list[Frames]) -> NDArray[np.float32]:
            with torch.no_grad():
                logits = self.model(torch.from_numpy(self.inputs(recordings)).to(device))
            found: NDArray[np.float32] = logits.float().cpu().numpy()
            return found

        joints = len(self.layout.joints)
        scale = self.normalization.scale
        return Stream(settings, self.classes, joints, self.chunks, scale, predict)

    @property
    def recording(self) -> Recording:
        """What the network expects of a recording, for `trellis.export_c` and others."""
        normalization = self.normalization
        return Recording(
            self.layout.joints, self.chunks, normalization.roots, normalization.scale, self.basis,
            normalization.body, normalization.bones, normalization.length, self.streaming,
            normalization.origin,
        )  # fmt: skip

    def labels(self, data: Skeletons) -> Indices:
        """Return the labels of ``data`` as indices into this model's classes.

        Raises:
            TrellisError: The joints differ, or a recording's class is unknown to the model.
        """
        own, other = self.layout.joints, data.layout.joints
        if len(own) != len(other):
            raise TrellisError(
                f"{data.source!r} has {len(other)} joints ({_few(other)}) and the model was "
                f"trained on {len(own)} ({_few(own)}): give data of the same skeleton"
            )
        if own != other:
            place = next(i for i in range(len(own)) if own[i] != other[i])
            raise TrellisError(
                f"joint {place} of {data.source!r} is {other[place]!r:.60} and the model's is "
                f"{own[place]!r:.60}: give data with the same joints in the same order"
            )
        place_of = {name: i for i, name in enumerate(self.classes)}
        used = np.unique(data.labels)
        if unknown := [data.classes[i] for i in used if data.classes[i] not in place_of]:
            raise TrellisError(
                f"{data.source!r} has recordings of {unknown[0]!r:.60}, which the model does not "
                f"know: its classes are {_few(self.classes, 8)}"
            )
        table = np.array([place_of.get(name, -1) for name in data.classes], np.int64)
        return table[data.labels]

    @property
    def synthetic(self) -> bool:
        """Whether it was trained on synthetic recordings."""
        return any(step.get("synthetic", False) for step in self.history)

    def after(self, **step: Any) -> Recognizer:
        """Return the recognizer with one more step in its history."""
        return dataclasses.replace(self, history=(*self.history, step))

    def save(self, folder: str | PathLike[str], *, nested: Nested | None = None) -> None:
        """Save the recognizer to a folder, as `trellis.save` does.

        Args:
            folder: The folder.
            nested: Nested networks, of which this is the largest.
        """
        layout = dataclasses.asdict(self.layout)
        notes = {
            "chunks": self.chunks,
            "normalisation": self.normalization.to_dict(),
            "classes": list(self.classes),
            "layout": layout,
            "history": list(self.history),
            "channels": list(self.kinds),
            "basis": self.basis,
            **({} if self.streaming is None else {"stream": self.streaming.notes()}),
        }
        save(self.model, folder, notes={NOTES: notes}, nested=nested)

    @classmethod
    def load(
        cls,
        folder: str | PathLike[str],
        *,
        sparsity: float | None = None,
        keep: int | None = None,
    ) -> Recognizer:
        """Return the recognizer that `save` wrote.

        Args:
            folder: The folder.
            sparsity: The fraction of connections removed, for a folder of nested networks
                (default: that of the largest).
            keep: The number of connections kept, in place of ``sparsity``.

        Raises:
            TrellisError: The folder holds no recognizer, its files are damaged, or the rate is out
                of range.
        """
        path = Path(folder)
        saved = read_folder(path)
        nested = nested_in(saved, sparsity, keep)
        notes = saved.notes.get(NOTES)
        if notes is None:
            raise NotARecognizer(path)
        model = rebuilt(saved)
        if not isinstance(model, GCN):
            raise TrellisError(f"{str(path)!r} holds a {type(model).__name__}, not a GCN")
        try:
            found = fitted(notes, RecognizerNotes, f"$.notes.{NOTES}")
            recognizer = cls(
                model,
                found["chunks"],
                Normalization.from_dict(found["normalisation"]),
                tuple(found["classes"]),
                Layout.from_dict(found["layout"]),
                tuple(notes["history"]),  # with keys of other releases and commands
                tuple(found.get("channels", COORDINATES)),
                found.get("basis", BASES[0]),
                Streaming.from_notes(found["stream"]) if "stream" in found else None,
            )
        except TrellisError as error:
            raise TrellisError(
                f"{str(path / DESCRIPTION)!r}: {error!s:.400}; save or download the model again"
            ) from None
        if nested is None:
            return recognizer
        example = torch.zeros(1, model.sizes["nodes"], model.sizes["channels"])
        masks = nested.apply(model, example, sparsity=sparsity, keep=keep)
        return recognizer.after(step="rate", kept=masks.kept, total=masks.total)


class _Seeing(nn.Module):
    """A network that computes its channels from coordinates."""

    def __init__(self, channels: Channels, chunks: int, model: nn.Module) -> None:
        super().__init__()
        self.channels, self.model = channels, model
        # Matrices are made now: while a model is traced, they would not be real tensors.
        channels.seen(torch.zeros(1, len(channels.parents), chunks * 3))

    def forward(self, places: Tensor) -> Tensor:
        logits: Tensor = self.model(self.channels.seen(places))
        return logits


def _few(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(f"{name:.40}" for name in names[:most]) + (", …" if len(names) > most else "")
