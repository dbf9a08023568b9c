"""One small function an operation; importing this registers them all."""

from __future__ import annotations

from . import (
    activation,  # noqa: F401
    arithmetic,  # noqa: F401
    attention,  # noqa: F401
    contraction,  # noqa: F401
    convolution,  # noqa: F401
    norm,  # noqa: F401
    pool,  # noqa: F401
)
