"""``python -m trellis``: the command line, where ``trellis`` is not on the path."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
