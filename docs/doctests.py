"""Fences the doctests in docstrings, so that the site shows them as code.

Markdown reads ``>>> rows[0][1]`` as text with a link. `make docs` loads this Griffe extension.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^([ \t]*)>>> .*(?:\n(?![ \t]*$).*)*", re.MULTILINE)


class FencedDoctests(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring and "```" not in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


def _fenced(block: re.Match[str]) -> str:
    shown = re.sub(r"[ \t]*(<BLANKLINE>|# doctest:.*)", "", block[0])
    return f"{block[1]}```pycon\n{shown}\n{block[1]}```"
