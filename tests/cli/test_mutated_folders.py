"""Folders whose JSON was changed at random: every command works or raises one TrellisError.

The suite runs a few hundred mutants. ``TRELLIS_MUTANTS=10000 pytest tests/cli/test_mutated_folders.py``
runs more; each mutant is named by its number, and `TRELLIS_MUTANT=17` runs one alone.
"""  # noqa: E501

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import trellis
from tests.skeleton.moving import arms, write_csv, write_npz
from trellis.cli import main
from trellis.cli.evaluate import evaluate
from trellis.cli.report import report
from trellis.cli.reproduce import reproduce
from trellis.cli.shrink import shrink
from trellis.errors import TrellisError
from trellis.skeleton.shrink import Outcome
from trellis.skeleton.shrink import run as running
from trellis.training.checkpoint import HEADER

MUTANTS = int(os.environ.get("TRELLIS_MUTANTS", "300"))
ONE = os.environ.get("TRELLIS_MUTANT")
SMALL: dict[str, Any] = {"heads": 2, "filters": 3, "chunks": 4}
TABLE: dict[str, Any] = SMALL | {
    "seeds": 1, "rates": (90.0,), "rows": ("mp", "tc"), "epochs": 1, "tune_epochs": 1,
    "recipe": "quick", "device": "cpu", "workers": 1,
}  # fmt: skip
COURSE: dict[str, Any] = SMALL | {"course": "quick", "length": 0.01, "device": "cpu"}


@dataclass(frozen=True)
class Folders:
    """What the commands wrote. ``killed`` is a shrink that still has its checkpoints."""

    path: Path
    data: str

    def __truediv__(self, name: str) -> Path:
        return self.path / name


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    path = tmp_path_factory.mktemp("mutants")
    write_npz(path / "arms.npz", arms(24))
    write_csv(path / "wave.csv", arms(24), 0)
    data = f"npz:{path / 'arms.npz'}"
    torch.manual_seed(0)
    with quiet():
        reproduce("table2", data=data, out=path / "table", **TABLE)
        shrink(data=data, at_least=0.3, out=path / "shrunk", **COURSE)
        shrink(data=data, keep=(150, 40), out=path / "nested", **COURSE)
        words = ["--heads", "2", "--filters", "3", "--chunks", "4", "--epochs", "2"]
        assert main(["train", data, "--out", str(path / "trained"), *words]) == 0
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(running, "_recognizer", _killed)
            shrink(data=data, keep=(60,), out=path / "killed", **COURSE)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    trellis.prune(model, torch.zeros(1, 4), sparsity=0.5)
    trellis.save(trellis.compact(model, torch.zeros(1, 4)), path / "compacted")
    return Folders(path, data)


def _killed(*_: object) -> Outcome:
    raise KeyboardInterrupt


@contextmanager
def quiet() -> Iterator[None]:
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        yield


# What is read of each file: mutants of it are tried with each of these.
Use = Callable[[Folders], Any]


def _report(name: str) -> Use:
    return lambda f: report(f / name, out=f / "page.html")


def _evaluate(name: str) -> Use:
    return lambda f: evaluate(f / name, data=f.data, as_json=True)


def _table_only(f: Folders) -> None:
    reproduce("table2", out=f / "table", table_only=True)


def _resumed(f: Folders) -> None:
    reproduce("table2", data=f.data, out=f / "table", **TABLE)


def _shrunk(f: Folders) -> None:
    shrink(data=f.data, keep=(60,), out=f / "killed", **COURSE)


def _rate(f: Folders) -> None:
    evaluate(f / "nested", data=f.data, sparsity=0.9, as_json=True)
    trellis.load(f / "nested" / "model", keep=90)


def _compacted(f: Folders) -> None:
    model = trellis.load(f / "compacted")
    str(model)
    if isinstance(model, trellis.Compacted):
        model.example()


USES: dict[str, tuple[Use, ...]] = {
    "table/settings.json": (_report("table"), _table_only, _resumed),
    "table/cells.jsonl": (_report("table"), _table_only, _resumed),
    "table/recordings.json": (_report("table"),),
    "shrunk/curve.json": (_report("shrunk"),),
    "shrunk/model/model.json": (_report("shrunk"), _evaluate("shrunk/model")),
    "nested/model/model.json": (_report("nested"), _rate),
    "trained/model.json": (_evaluate("trained"), _report("trained")),
    "killed/.training.safetensors": (_shrunk,),
    "compacted/model.json": (_compacted,),
}


def test_every_mutant_is_read_or_refused_in_one_line(folders: Folders) -> None:
    faults: Counter[str] = Counter()
    first: dict[str, int] = {}
    numbers = range(MUTANTS) if ONE is None else [int(ONE)]
    for number in numbers:
        for fault in _tried(folders, number):
            faults[fault] += 1
            first.setdefault(fault, number)
    told = [f"{times} times, first mutant {first[f]}: {f}" for f, times in faults.most_common()]
    assert not faults, f"{len(faults)} kinds of faults:\n" + "\n".join(told)


def _tried(folders: Folders, number: int) -> list[str]:
    """What went wrong with a mutant, where anything did."""
    chance = random.Random(number)
    file = chance.choice(sorted(USES))
    path, faults = folders / file, []
    sound = path.read_bytes()
    for use in USES[file]:
        kept = folders / "kept"
        folder = folders / file.partition("/")[0]
        shutil.copytree(folder, kept)
        path.write_bytes(mutated(sound, file, random.Random(number)))
        try:
            with quiet():
                use(folders)
        except TrellisError as error:
            if "\n" in str(error) or len(str(error)) > 3000:
                faults.append(f"{file}: {str(error)[:200]!r} is not one short line")
        except BaseException as error:
            if ONE is not None:
                raise
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            code = where and f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}"
            faults.append(f"{file}: {type(error).__name__}: {str(error)[:150]} ({code})")
        finally:
            shutil.rmtree(folder)
            kept.rename(folder)
    return faults


def mutated(sound: bytes, file: str, chance: random.Random) -> bytes:
    """The same bytes with one to three changes."""
    if file.endswith(".safetensors"):
        return _header_mutated(sound, chance)
    if file.endswith(".jsonl"):
        lines = sound.splitlines(keepends=True)
        if chance.random() < 0.2:
            return _bytes_mutated(sound, chance)
        for at in chance.sample(range(len(lines)), chance.randint(1, 2)):
            lines[at] = _json_mutated(lines[at], chance) + b"\n"
        return b"".join(lines)
    if chance.random() < 0.25:
        return _bytes_mutated(sound, chance)
    return _json_mutated(sound, chance)


def _header_mutated(sound: bytes, chance: random.Random) -> bytes:
    (length,) = struct.unpack("<Q", sound[:8])
    head = json.loads(sound[8 : 8 + length])
    inner = head["__metadata__"][HEADER].encode()
    change = _bytes_mutated if chance.random() < 0.25 else _json_mutated
    head["__metadata__"][HEADER] = change(inner, chance).decode("utf-8", "replace")
    text = json.dumps(head).encode("utf-8", "replace")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + sound[8 + length :]


def _bytes_mutated(sound: bytes, chance: random.Random) -> bytes:
    content = bytearray(sound)
    at = chance.randrange(len(content))
    kind = chance.randrange(6)
    if kind == 0:
        content[at] ^= chance.randint(1, 255)
    elif kind == 1:
        del content[at:]
    elif kind == 2:
        del content[at : at + chance.randint(1, 40)]
    elif kind == 3:
        content[at:at] = chance.choice(
            [b"\xff\xfe", b"\x00", b"[" * 100_000, b"\xed\xa0\x80", b'"', b"}", b"9" * 5000]
        )
    elif kind == 4:
        content[at : at + 20] = content[: chance.randint(1, 60)]
    else:
        content[:0] = chance.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"null", b" "])
    return bytes(content)


# What JSON can say and a library's own writer cannot stands for itself between these.
RAW, END = "\u27e6", "\u27e7"
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 10_001, 2**31, 2**53, 2**63, -(2**63), 10**400, 0.5, -0.5,
    1e-300, 1e300, "", "x", "0", "dense", "x" * 20_000, "\x00\x1b[31m", "\ud800", "é\u202e", [], {},
    [1], [[1]], [None], ["x"], [0] * 1000, {"a": 1}, {"": None}, f"{RAW}NaN{END}",
    f"{RAW}-Infinity{END}", f"{RAW}1e999{END}", f"{RAW}{'9' * 5000}{END}",
    f"{RAW}{'[' * 500}{']' * 500}{END}", f"{RAW}{'[' * 50_000}{']' * 50_000}{END}",
    RAW + "{\"a\":" * 3000 + "1" + "}" * 3000 + END, f'{RAW}{{"a":1,"a":2}}{END}',
)  # fmt: skip


def _json_mutated(sound: bytes, chance: random.Random) -> bytes:
    value = {"whole": json.loads(sound)}
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(value))
        home, key = chance.choice(places)
        kind = chance.randrange(6)
        if kind <= 2:
            home[key] = copy.deepcopy(chance.choice(JUNK))
        elif kind == 3:
            home[key] = _like(home[key], chance)
        elif kind == 4 and home is not value:
            del home[key]
        elif isinstance(home, dict) and home is not value:
            other, name = chance.choice(places)
            home[chance.choice(("extra", "step", "kept", key))] = copy.deepcopy(other[name])
        else:
            home[key] = [home[key], home[key]]
    text = json.dumps(value["whole"], ensure_ascii=chance.random() < 0.5)
    text = text.replace(json.dumps(RAW)[1:-1], RAW).replace(json.dumps(END)[1:-1], END)
    text = re.sub(f'"{RAW}(.*?){END}"', lambda raw: raw[1].replace('\\"', '"'), text)
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each value inside of another, by what holds it and where; lists of numbers by a few."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if isinstance(value, list) and key > 8:
            break
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _like(value: Any, chance: random.Random) -> Any:
    """Another value of the same kind, or the same one in another."""
    if isinstance(value, bool) or value is None:
        return chance.choice((not value, 1, "true"))
    if isinstance(value, int | float):
        return chance.choice((value + 1, value - 1, -value, value * 1000, f"{value}", [value]))
    if isinstance(value, str):
        return chance.choice((value + "x", value[1:], [value], value.upper(), value * 3))
    if isinstance(value, list):
        return chance.choice(
            (
                value[:-1],
                value + value[:1],
                value[::-1],
                {str(i): one for i, one in enumerate(value)},
            )
        )
    pairs = list(value.items())
    return chance.choice((list(map(list, pairs)), list(value), dict(pairs[1:])))
