"""What every page that we write needs, so that nothing in it but our own program can run."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any


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
