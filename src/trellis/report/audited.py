"""What the page shows of an audit: any network's layers, with what is live and dead in each."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Any

import torch

from ..paths.audit import Audit


def audit_report(
    found: Audit, target: str, facts: Iterable[tuple[str, str]] = (), version: str = ""
) -> dict[str, Any]:
    """``target`` is what was audited, as it was named; ``facts`` are what else to say of it."""
    versions = f"trellis {version}, python {platform.python_version()}, torch {torch.__version__}"
    return found.to_dict() | {
        "format": 1,
        "kind": "audit",
        "title": "What is dead in this network",
        "target": target,
        "facts": [["Network", target], *map(list, facts), ["Versions", versions]],
    }
