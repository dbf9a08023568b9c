"""Pages: one self-contained HTML file each, in which nothing but our own program can run.

Content is JSON in a data block that cannot be closed early, and the program shows it as text only.
A content security policy allows only that program, by its hash, and no network access.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..files import replacing


def inside_script(value: Any) -> str:
    """JSON that cannot end, or begin a comment in, the script element it stands in.

    >>> inside_script("</script><!-- & \\u2028")
    '"\\\\u003c/script\\\\u003e\\\\u003c!-- \\\\u0026 \\\\u2028"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def policy_hash(text: str) -> str:
    """How a content security policy names a script or style that may run.

    >>> policy_hash("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def writable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 files cannot hold, by question marks.

    >>> writable("a\\ud800")
    'a?'
    """
    return text.encode("utf-8", "replace").decode("utf-8")


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
    text = files("trellis.pages").joinpath(name).read_text(encoding="utf-8")
    assert "</s" not in text.lower(), f"{name} would end its own element"
    return text


def write_page(path: Path, content: dict[str, Any]) -> int:
    """Write the page with this content; return its size in bytes."""
    text = page(content).encode("utf-8")
    with replacing(path) as [draft]:
        draft.write_bytes(text)
    return len(text)
