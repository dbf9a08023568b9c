"""Tables evaluated by the C run-time, from Python."""

from .runtime import Runtime

__all__ = ["Runtime"]
