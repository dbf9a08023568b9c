"""``python -m trellis.cli``."""

import sys

from trellis.cli import main

sys.exit(main())
