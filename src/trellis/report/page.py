"""One HTML file that needs nothing else: content, style and program within it.

Content is JSON in a data block that no parser can leave early, and the program shows it as text
alone. A content security policy lets nothing run but that program, by its hash, and nothing be
fetched from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

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
    """The page that shows this content.

    >>> "<b>" in page({"kind": "report", "title": "a <b> & c"}).split("<style>")[0]
    False
    """
    program, style = _part("page.js"), _part("page.css")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(program)}",
            f"style-src {_hash(style)}",
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
    # A lone half of a character pair is no text, and no file can hold it.
    return text.encode("utf-8", "replace").decode("utf-8")


def inside_script(value: Any) -> str:
    """JSON that cannot end, or begin a comment in, the script element it stands in.

    >>> inside_script("</script><!-- & \\u2028")
    '"\\\\u003c/script\\\\u003e\\\\u003c!-- \\\\u0026 \\\\u2028"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _part(name: str) -> str:
    text = files("trellis.report").joinpath(name).read_text(encoding="utf-8")
    assert "</s" not in text.lower(), f"{name} would end its own element"
    return text


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
