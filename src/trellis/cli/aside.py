"""Keeping stdout for results and stderr for one line, and terminals from what names hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Control characters but the end of a line; what turns the direction of text; halves of pairs.
_ACTS = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


@contextmanager
def aside() -> Iterator[None]:
    """Run the user's model: what it prints goes to stderr."""
    with redirect_stdout(sys.stderr):
        yield


def plain(text: str) -> str:
    """Text that a terminal only shows: names of files and classes may hold what it would act on.

    >>> plain("walk\\x1b[2J") == "walk\\\\x1b[2J", plain("größer ≥ 0\\n")
    (True, 'größer ≥ 0\\n')
    """
    return _ACTS.sub(lambda found: ascii(found[0])[1:-1], text)


def say(*lines: object, to: TextIO | None = None) -> None:
    """Print lines, on stdout if no other file is given."""
    for line in lines or ("",):
        print(plain(str(line)), file=to)


class Screen(Console):
    """A console for tables and bars whose own codes reach a terminal, and nobody else's."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=plain(segment.text))
