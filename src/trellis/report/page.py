"""One self-contained HTML file: content, style and program.

Content is JSON in a data block that cannot be closed early, and the program shows it as text only.
A content security policy allows only that program, by its hash, and no network access.
"""

from __future__ import annotations

import html
from importlib.resources import files
from typing import Any

from ..pages import inside_script, policy_hash, writable

_TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>This page draws its charts with a script that is part of it. Allow scripts for this
file to see them; nothing is fetched from anywhere.</p></noscript>
<main id="page"></main>
<script type="application/json" id="content">{content}</script>
<script>{program}</script>
</body>
</html>
"""


def page(content: dict[str, Any]) -> str:
    """Return the page with this content.

    >>> "<b>" in page({"kind": "report", "title": "a <b> & c"}).split("<style>")[0]
    False
    """
    program, style = _part("page.js"), _part("page.css")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {policy_hash(program)}",
            f"style-src {policy_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    text = _TEMPLATE.format(
        policy=html.escape(policy, quote=True),
        title=html.escape(f"{content['title']} · Trellis"),
        style=style,
        content=inside_script(content),
        program=program,
    )
    return writable(text)


def _part(name: str) -> str:
    text = files("trellis.report").joinpath(name).read_text(encoding="utf-8")
    assert "</s" not in text.lower(), f"{name} would end its own element"
    return text
