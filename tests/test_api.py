"""The public interface: every name and signature, compared with the committed list.

The list is ``tests/public_names.txt``, one line a name. ``make api`` writes it anew, so that a
change of the interface is visible in the commit.
"""

import difflib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe
import pytest

import trellis

ROOT = Path(__file__).parents[1]
SNAPSHOT = ROOT / "tests" / "public_names.txt"
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
MODULES = ["trellis", *(f"trellis.{name}" for name in trellis.__all__
                        if isinstance(getattr(trellis, name), ModuleType))]  # fmt: skip
# Each has public names of its own, and is not imported here: its package may be missing.
INTEGRATIONS = [f"integrations.{name}" for name in ("hub", "lightning", "peft", "transformers")]


def declared() -> dict[str, Any]:
    """The public names of the integrations, with what they stand for."""
    package: Any = griffe.load("trellis", search_paths=[ROOT / "src"], resolve_aliases=True)
    return {
        f"trellis.{module}.{name}": package[module].members[str(name)]
        for module in INTEGRATIONS
        for name in sorted(map(str, package[module].exports))
    }


def interface() -> list[str]:
    """Every public name with its signature, as the source says it, sorted within its module."""
    package: Any = griffe.load("trellis", search_paths=[ROOT / "src"], resolve_aliases=True)
    lines = []
    for module in MODULES:
        home = package[module.partition(".")[2]] if "." in module else package
        for name in sorted(importlib.import_module(module).__all__):
            if f"{module}.{name}" not in MODULES:
                lines += list(_lines(f"{module}.{name}", _target(home.members[name])))
    for path, found in declared().items():
        lines += list(_lines(path, _target(found)))
    return lines


def _target(found: Any) -> Any:
    """What a name stands for; a function rather than the module of the same name it is in."""
    while found.is_alias or found.is_module:
        found = found.final_target if found.is_alias else found.members[found.name]
    return found


def _lines(path: str, found: Any) -> Iterator[str]:
    if found.is_function:
        yield f"{path}({_parameters(found.parameters)}){_of(' -> ', found.returns)}"
    elif found.is_class:
        bases = ", ".join(map(str, found.bases))
        yield f"class {path}({_parameters(found.parameters)})" + (
            f" extends {bases}" if bases else ""
        )
        for name, member in sorted(found.all_members.items()):
            if not name.startswith("_") and not member.is_class:
                yield from _lines(f"{path}.{name}", _target(member))
    else:
        yield f"{path}{_of(': ', found.annotation)}"


def _parameters(found: Any) -> str:
    parts = []
    kinds = [p.kind for p in found]
    for place, p in enumerate(found):
        if place == 0 and p.name in ("self", "cls"):
            continue
        if p.kind is griffe.ParameterKind.keyword_only and (
            griffe.ParameterKind.var_positional not in kinds and "*" not in parts
        ):
            parts.append("*")
        star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
        implied = p.kind in star  # griffe says that their default is () or {}
        default = "" if implied or p.default is None else f" = {p.default}"
        parts.append(f"{star.get(p.kind, '')}{p.name}{_of(': ', p.annotation)}{default}")
    return ", ".join(parts)


def _of(before: str, annotation: Any) -> str:
    return "" if annotation is None else re.sub(r"\s+", " ", f"{before}{annotation}")


def test_the_interface_changes_on_purpose_only() -> None:
    now, before = interface(), SNAPSHOT.read_text().splitlines()
    changes = [line for line in difflib.unified_diff(before, now, lineterm="", n=0)
               if not line.startswith(("---", "+++", "@@"))]  # fmt: skip
    assert not changes, "\n".join([
        "the public interface differs from tests/public_names.txt:", *changes,
        "If that is meant, run `make api` (python -m tests.test_api) and commit the file.",
    ])  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_dir_lists_the_public_names(module: str) -> None:
    found = importlib.import_module(module)
    assert sorted(n for n in dir(found) if not n.startswith("_")) == sorted(found.__all__)
    assert all(hasattr(found, name) for name in found.__all__)


def test_the_reference_describes_every_public_name_and_no_other() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    described = re.findall(r"^::: (trellis\..+)$", pages, re.MULTILINE)
    public = {f"{m}.{n}" for m in MODULES for n in importlib.import_module(m).__all__}
    assert sorted(described) == sorted((public - set(MODULES)) | declared().keys())


if __name__ == "__main__":
    SNAPSHOT.write_text("".join(f"{line}\n" for line in interface()))
