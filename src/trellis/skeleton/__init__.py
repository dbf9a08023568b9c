"""Recognize actions of skeletons: recordings, their preparation, and the paper's GCN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..imports import lazy

if TYPE_CHECKING:
    from ..deploy.stream import Event, Stream, Streaming
    from .data.augmentation import Augmentation, Augmenter
    from .data.dataset import Fold, Frames, LeftOut, Skeletons
    from .data.layouts import Layout
    from .data.preparation import Channels, Normalization, chunked
    from .data.readers.reader import Entry, Reading, load_dataset, register_reader
    from .data.readers.recording import read_recording
    from .model.fitting import Confusion, Evaluation, Teaching, evaluated, fit, metrics
    from .model.gcn import GCN
    from .model.recognizer import Recognizer

__all__ = [
    "GCN",
    "Augmentation",
    "Augmenter",
    "Channels",
    "Confusion",
    "Entry",
    "Evaluation",
    "Event",
    "Fold",
    "Frames",
    "Layout",
    "LeftOut",
    "Normalization",
    "Reading",
    "Recognizer",
    "Skeletons",
    "Stream",
    "Streaming",
    "Teaching",
    "chunked",
    "evaluated",
    "fit",
    "load_dataset",
    "metrics",
    "read_recording",
    "register_reader",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "GCN": ".model.gcn",
        "Augmentation": ".data.augmentation",
        "Augmenter": ".data.augmentation",
        "Channels": ".data.preparation",
        "Confusion": ".model.fitting",
        "Entry": ".data.readers.reader",
        "Evaluation": ".model.fitting",
        "Event": "..deploy.stream",
        "Fold": ".data.dataset",
        "Frames": ".data.dataset",
        "Layout": ".data.layouts",
        "LeftOut": ".data.dataset",
        "Normalization": ".data.preparation",
        "Reading": ".data.readers.reader",
        "Recognizer": ".model.recognizer",
        "Skeletons": ".data.dataset",
        "Stream": "..deploy.stream",
        "Streaming": "..deploy.stream",
        "Teaching": ".model.fitting",
        "chunked": ".data.preparation",
        "evaluated": ".model.fitting",
        "fit": ".model.fitting",
        "load_dataset": ".data.readers.reader",
        "metrics": ".model.fitting",
        "read_recording": ".data.readers.recording",
        "register_reader": ".data.readers.reader",
    },
)
