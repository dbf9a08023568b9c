"""Recognize actions of skeletons: recordings, their preparation, and the paper's GCN."""

from __future__ import annotations

from .data.augmentation import Augmentation, Augmenter
from .data.dataset import Fold, Frames, LeftOut, Skeletons
from .data.layouts import Layout
from .data.normalization import Normalization
from .data.readers.recording import read_recording
from .data.representation import Channels, chunked
from .data.source import load
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
    "Evaluation",
    "Fold",
    "Frames",
    "Layout",
    "LeftOut",
    "Normalization",
    "Recognizer",
    "Skeletons",
    "Teaching",
    "chunked",
    "evaluated",
    "fit",
    "load",
    "metrics",
    "read_recording",
]
