"""How each operation becomes sparse tables: one small function per operation.

Importing this package registers them all.
"""

from __future__ import annotations

from . import contraction, convolution, elementwise  # noqa: F401
