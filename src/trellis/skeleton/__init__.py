"""Skeletons that move: recordings, chunking, and the network that recognises actions."""

from .augmentation import Augmentation, Augmenter
from .channels import Channels
from .chunks import chunked
from .evaluation import Confusion, Evaluation
from .fitting import evaluated, fit, metrics
from .gcn import GCN
from .layout import Layout
from .normalisation import Normalisation
from .readers.recording import read_recording
from .recogniser import Recogniser
from .skeletons import Fold, Frames, LeftOut, Skeletons
from .source import load
from .teaching import Teaching

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
    "Normalisation",
    "Recogniser",
    "Skeletons",
    "Teaching",
    "chunked",
    "evaluated",
    "fit",
    "load",
    "metrics",
    "read_recording",
]
