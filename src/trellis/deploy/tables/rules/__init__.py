"""How each operation becomes sparse tables: one small function per operation.

Importing this package registers them all.
"""

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
