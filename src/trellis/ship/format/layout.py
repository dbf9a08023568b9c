"""What both ends of the format agree on.

========  ==========================================================================
bytes     content, little-endian
========  ==========================================================================
8         ``TRELLIS\\n``
4         version
4         how many sections there are
12 each   a section's tag (4 letters), its length, its CRC-32
4         CRC-32 of everything before
…         the sections, one after another, to the end of the file
========  ==========================================================================

``META`` is JSON: shapes, classes, what becomes of a recording. ``DATA`` is the tables: four
32-bit numbers (inputs, outputs, size of memory, steps) and the kind of values, then each step:

- kind, activation, flags (1 biased, 2 scaled, 4 unordered, 8 adds), 0; the activation's two
  numbers; how many groups, instances and terms it has; its first offset and its first out,
- biases of its groups (fp32) and scales (the upper half of an fp32) where the flags say so;
  weights, except of a max,
- Rice-coded (`rice`): fan of each group less that of the one before; count less 1; each group's
  gaps between its terms, of which the first is 0 (the terms of a dot are pairs, and their gaps
  zigzag); each later group's first offset less that of the group before, zigzag; gaps between the
  offsets of a group; each later group's first out less what follows the last of the group before,
  zigzag; the stride of each group of several instances; gaps between the outs of a group, divided
  by its stride, less 1 (where they are unordered, the gaps as they are, zigzag);

and at the end where the first output lies (32 bits) and, Rice-coded, where each other lies, less
what follows the one before, zigzag.
"""

from __future__ import annotations

MAGIC = b"TRELLIS\n"
VERSION = 1
SECTIONS = (b"META", b"DATA")
STEP = "<BBBBffIIIII"
BIASED, SCALED, UNORDERED, ADDS = 1, 2, 4, 8
MOST_UNITS = 1 << 24
MOST_USES = 1 << 26
MOST_STEPS = 1 << 16
MOST_BYTES = 1 << 30  # of a whole file
