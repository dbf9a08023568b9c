"""Trellis: make neural networks tiny without breaking them.

Prune PyTorch models to extreme sparsity so that every weight that is kept still lies on a path
from an input to an output.
"""

from .errors import TrellisError
from .masks import Masks, masks_of
from .paths.audit import Audit, audit
from .select.prune import prune
from .trace import Trellis, rule, trace

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Masks",
    "Trellis",
    "TrellisError",
    "audit",
    "masks_of",
    "prune",
    "rule",
    "trace",
]
