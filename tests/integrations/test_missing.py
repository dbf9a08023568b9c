"""Trellis without the packages of its integrations."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from trellis.errors import TrellisError

PACKAGES = {
    "lightning": ["lightning", "lightning.pytorch", "pytorch_lightning"],
    "transformers": ["transformers"],
    "hub": ["huggingface_hub"],
}


@pytest.mark.parametrize("extra", PACKAGES)
def test_a_missing_package_is_one_error_that_names_the_extra(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in PACKAGES[extra]:
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"trellis.integrations.{extra}", raising=False)
    with pytest.raises(TrellisError, match=rf"trellis-prune\[{extra}\]"):
        importlib.import_module(f"trellis.integrations.{extra}")


def test_trellis_imports_none_of_them() -> None:
    code = (
        "import sys, trellis; trellis.Pruner, trellis.shrink, trellis.compact; "
        "print([n for n in ('lightning', 'pytorch_lightning', 'transformers', 'peft', "
        "'accelerate', 'huggingface_hub') if n in sys.modules])"
    )
    paths = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
