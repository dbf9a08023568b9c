"""``python -m trellis``: the command line, where ``trellis`` is not on the path."""

import sys

from trellis.cli import main

if __name__ == "__main__":
    sys.exit(main())
