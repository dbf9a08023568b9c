"""Rules of the tracer: one small function per operation. Importing this package registers them."""

from __future__ import annotations

from . import elementwise, linear, movement, recurrent, reduction

__all__ = ["elementwise", "linear", "movement", "recurrent", "reduction"]
