"""Text that others wrote, made safe to show anywhere."""

from __future__ import annotations

import unicodedata


def one_line(text: str) -> str:
    """Without line breaks or characters that steer a terminal.

    >>> one_line("a\\nb\\x1b[31mc")
    'a b [31mc'
    """
    clean = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text
    )
    return " ".join(clean.split())
