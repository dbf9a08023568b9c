"""Recognize actions of skeletons: recordings, their preparation, and the paper's GCN."""

from __future__ import annotations

from .data.augmentation import Augmentation, Augmenter
from .data.dataset import Fold, Frames, LeftOut, Skeletons
from .data.layouts import Layout
from .data.normalization import Normalization
from .data.readers.reading import Entry, Reading
from .data.readers.recording import read_recording
from .data.readers.registry import register_reader
from .data.representation import Channels, chunked
from .data.source import load_dataset
from .model.evaluation import Confusion, Evaluation
from .model.fitting import Teaching, evaluated, fit, metrics
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
    "Fold",
    "Frames",
    "Layout",
    "LeftOut",
    "Normalization",
    "Reading",
    "Recognizer",
    "Skeletons",
    "Teaching",
    "chunked",
    "evaluated",
    "fit",
    "load_dataset",
    "metrics",
    "read_recording",
    "register_reader",
]


def __dir__() -> list[str]:
    return list(__all__)
