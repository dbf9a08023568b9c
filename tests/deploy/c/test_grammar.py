"""Recordings in text: the exported program and Python accept the same files, and read the same
numbers, to the bit. The grammar is in docs/skeletons.md."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.tools import SANITIZED, compiled
from trellis.errors import TrellisError
from trellis.skeleton import Layout, read_recording

JOINTS = ("hip", "left hand", 'a,b;"c"', "é")
LAYOUT = Layout("own", JOINTS, (-1, 0, 0, 0))
WIDTH = 3 * len(JOINTS)

# The exported main.c, of which no network but the frames themselves come out: of every file that is
# named, in hexadecimal, or what is wrong with it.
MODEL = """
#include <stddef.h>
#define TRELLIS_JOINTS {count}
#define TRELLIS_FRAME {width}
#define TRELLIS_OUTPUTS 1
#define TRELLIS_SCRATCH 1
static const char *const trellis_joints[] = {{{names}}};
static const char *const trellis_classes[] = {{"one"}};
int trellis_input(const float *recording, size_t frames, float *input);
int trellis_run(const float *input, float *output, float *scratch);
"""
DRIVER = """
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#ifdef COMMA /* as where the decimal point is written in two bytes, of which one is a comma */
static struct lconv *commas(void) {
    static struct lconv found;
    static char point[] = ",,";
    found.decimal_point = point;
    return &found;
}
static double by_commas(const char *word, char **end) {
    char copied[200] = {0}, *comma;
    strncpy(copied, word, sizeof copied - 1);
    if (end || strchr(word, '.')) return 1e9; /* which none of the files says */
    comma = strstr(copied, ",,");
    if (comma) *comma = '.', memmove(comma + 1, comma + 2, strlen(comma + 1));
    return strtod(copied, NULL);
}
#define localeconv commas
#define strtod by_commas
#endif

#define main recognise
#include "main.c"
#undef main

int trellis_input(const float *given, size_t count, float *input) {
    (void)input;
    const size_t all = count * TRELLIS_FRAME;
    for (size_t i = 0; i < all && i < 10000; i++) printf("%a ", (double)given[i]);
    return count == 0;
}

int trellis_run(const float *input, float *output, float *scratch) {
    (void)input, (void)scratch;
    output[0] = 0.0f;
    return 0;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char name[] = "recognise", *words[] = {name, NULL};
        recording = NULL;
        frames = room = 0;
        if (!freopen(argv[i], "rb", stdin)) return 1;
        printf("=%d\\n", recognise(1, words));
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c")
    return built(folder, *SANITIZED)


def built(folder: Path, *flags: str) -> Path:
    names = ", ".join('"' + "".join(f"\\{b:03o}" for b in n.encode()) + '"' for n in JOINTS)
    source = files("trellis.deploy.c").joinpath("source")
    parts = "".join(source.joinpath(name).read_text() for name in ("frame.h", "lines.h"))
    main = source.joinpath("recording_main.c").read_text().replace("@INCLUDES@", parts)
    model = MODEL.format(count=len(JOINTS), width=WIDTH, names=names)
    (folder / "model.h").write_text(model)
    (folder / "main.c").write_text(main)
    (folder / "driver.c").write_text(DRIVER)
    return compiled([folder / "driver.c"], folder / "driver", f"-I{folder}", *flags)


def by_c(program: Path, paths: Sequence[Path]) -> list[list[float] | None]:
    done = subprocess.run(
        [str(program), *map(str, paths)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[list[float] | None] = []
    for part in done.stdout.split("=")[: len(paths)]:
        lines = part.split("\n")  # what the one before returned, then what this one has to say
        hexes = [word for line in lines for word in line.split() if "0x" in word]
        found.append([float.fromhex(word) for word in hexes] or None)
    codes = [part.split("\n")[0] for part in done.stdout.split("=")[1:]]
    assert codes == ["2" if values is None else "0" for values in found]
    return found


def by_python(path: Path) -> list[float] | None:
    try:
        frames = read_recording(path, LAYOUT)
    except TrellisError:
        return None
    assert frames.dtype == np.float32
    return [float(value) for value in frames.reshape(-1)]


NUMBERS = [
    "0", "1", "-1.5", "+2", ".5", "5.", "-.25e1", "1e9", "-1E+9", "1e-3", "00012", "0.1", "1e-45",
    "1e-300", "4.9e-324", "1e-400", "1" * 58 + "e-56", "0." + "1" * 61, "0.30000000000000004",
    "16777217", "0.1000000014901161193847656250", "1.00000005960464477539062500001", "-0", "1e0",
]  # fmt: skip
ODD = [
    "1e9.", "1000000001", "1e999", "-1e999", "nan", "inf", "-Infinity", "0x10", "0x1p3", "1_0",
    "1e", "e1", ".", "+", "-", "--1", "1.2.3", "1 2", "", '""', '"1"', '" 1 "', '"1""', "'1'", "1f",
    "1d3", "٣", "\xa01", "1\x0b", "\x0c1", "1\x00", "1" * 63, "1" * 64, "0." + "1" * 62, "1,5",
    "1.5,", "#", "1#", "$1", "1e+", "1e+1+", "\ufeff1", "−1", "1\x1c", "TRUE", "1;", '1"', '"',
    "1\u2028", "(1)",
]  # fmt: skip
ENDS = ["\n", "\r\n", "\r", "\n\r", "\n\n", "\r\r\n", "\x0b", "\x0c", "\x85", "\u2028"]
EXTRAS = ["# a note", " #", "", " ", "\t", "\xa0", "#\xe9", '"#"', "\x1a", ",", ";", ",,,", '""']
WHEN = ["frame", "Time", "TIMESTAMP", "t", "index", "", "Frame ", "when", "İndex", "tIme"]
PIECES = [
    b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n", b'"', b",", b";",
    b" ", b"\t", b"#", b"_x", b"1", b"e", b".", b"-", b"\xf4\x90\x80\x80", b"\xc0\xaf",
    b"\xe2\x80\xa8",
]  # fmt: skip


def odd_file(seed: int) -> bytes:
    """A file that is a recording, nearly one, or far from it."""
    rng = random.Random(seed)
    wild = rng.choice([0.0, 0.0, 0.02, 0.1])
    mark = rng.choice([",", ";", " ", "\t", ", ", " ; ", "  "])
    end = rng.choice(ENDS[:3])
    joints = list(JOINTS)
    rng.shuffle(joints)
    lines: list[str] = []
    width = WIDTH
    named = rng.random() < 0.5
    when: list[int] = []

    def odd(usual: str, others: Sequence[str]) -> str:
        return rng.choice(others) if rng.random() < wild else usual

    planar = rng.random() < 0.25
    if planar:
        width = 2 * len(JOINTS)
    if named and planar:
        cells = [f"{j}_{a}" for j in joints for a in odd("xy", ["xyz", "xyz_", "yx"])]
        if wild and rng.random() < 0.2:
            cells.append(f"{joints[0]}_z")
    elif named:
        cells = [f"{j}_{odd(a, 'XYZ_w')}" for j in joints for a in odd("xyz", ["xYz", "xy", "xx"])]
    if named:
        if rng.random() < 0.2:
            rng.shuffle(cells)
        for _ in range(rng.choice([0, 0, 1, 2, 8, 9]) if rng.random() < 0.5 else 0):
            cells.insert(rng.randint(0, len(cells)), rng.choice(WHEN if wild else WHEN[:6]))
        if wild and rng.random() < 0.1:
            cells.append(rng.choice(cells))
        when = [n for n, cell in enumerate(cells) if cell.strip().lower() in WHEN[:6]]
        plain = ',;" \t' if rng.random() < 0.8 else ""
        quoted = [
            '"' + cell.replace('"', '""') + '"'
            if any(c in cell for c in plain) or not cell or rng.random() < 0.1
            else cell
            for cell in cells
        ]
        lines.append(mark.join(quoted))
        width = len(cells)
    elif rng.random() < 0.3:
        width += 1
        when = [0]
    for _ in range(rng.randint(0 if wild else 1, 4)):
        own = mark if rng.random() < 0.9 else rng.choice([",", ";", " ", "\t"])
        row = []
        for n in range(max(1, width + int(odd("0", ["-1", "1", "-3"])))):
            cell = odd(rng.choice(NUMBERS), ODD)
            if n in when and rng.random() < 0.3:
                cell = "1.7e12"
            if ";" in own and rng.random() < 0.3:
                cell = cell.replace(".", ",")
            if rng.random() < 0.03:
                cell = f'"{cell}"'
            row.append(cell)
        lines.append(own.join(row) + odd("", [own.strip(), own, own * 2, " ", "x"]))
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 2)):
            lines.insert(rng.randint(0, len(lines)), rng.choice(EXTRAS if wild else EXTRAS[:5]))
    text = "".join(line + odd(end, ENDS) for line in lines)
    if rng.random() < 0.2:
        text = text.rstrip("\r\n")
    data = odd("", ["\ufeff", "\ufeff\ufeff"]).encode() + text.encode()
    if not wild and rng.random() < 0.2:
        data = b"\xef\xbb\xbf" + data
    for _ in range(rng.randint(1, 3) if rng.random() < wild else 0):
        place = rng.randint(0, len(data))
        data = data[:place] + rng.choice(PIECES) + data[place + rng.randint(0, 2) :]
    return data


def differing(program: Path, folder: Path, seeds: Sequence[int]) -> tuple[list[int], int]:
    """Which of these files the two read differently, and how many both accept."""
    paths = []
    for seed in seeds:
        paths.append(folder / f"{seed}.csv")
        paths[-1].write_bytes(odd_file(seed))
    found = by_c(program, paths)
    wrong, accepted = [], 0
    for seed, path, values in zip(seeds, paths, found, strict=True):
        expected = by_python(path)
        same = (values is None) == (expected is None) and np.array_equal(
            np.array(values or [], np.float32).view(np.uint32),
            np.array(expected or [], np.float32).view(np.uint32),
        )
        accepted += values is not None
        if not same:
            wrong.append(seed)
        else:
            path.unlink()
    return wrong, accepted


@pytest.mark.parametrize("part", range(4))
def test_odd_files_are_read_alike(program: Path, tmp_path: Path, part: int) -> None:
    wrong, accepted = differing(program, tmp_path, range(100 * part, 100 * part + 100))
    assert wrong == []
    assert 20 < accepted < 95


@pytest.mark.parametrize("cell", [*NUMBERS, *ODD])
def test_every_kind_of_cell(program: Path, tmp_path: Path, cell: str) -> None:
    rest = ["2"] * (WIDTH - 1)
    paths = []
    for number, mark in enumerate([",", ";", " "]):
        paths.append(tmp_path / f"{number}.csv")
        paths[-1].write_text(mark.join([cell, *rest]) + "\n", "utf-8", newline="")
    assert by_c(program, paths) == [by_python(path) for path in paths]


def test_limits(program: Path, tmp_path: Path) -> None:
    row = ",".join(["1"] * WIDTH)
    header = ",".join(f'"{j.replace(chr(34), chr(34) * 2)}_{a}"' for j in JOINTS for a in "xyz")
    texts = {
        row + " " * ((1 << 20) - len(row)): True,
        row + " " * ((1 << 20) - len(row) + 1): False,
        "#" + "é" * (1 << 19) + "\n" + row: False,
        header + "," * 9 + "\n" + row + ",1" * 8: True,
        header + "," * 10 + "\n" + row + ",1" * 9: False,
        "frame," + header + "\n1.7e300," + row: True,
        "frame," + header + "\n1e309," + row: False,
    }
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"{number}.csv")
        paths[-1].write_text(text, "utf-8")
    assert [values is not None for values in by_c(program, paths)] == list(texts.values())
    assert [by_python(path) is not None for path in paths] == list(texts.values())


def test_as_many_frames_as_are_read(tmp_path: Path) -> None:
    """A million, in C as in Python; one joint, and few cells, so that this does not take long."""
    source = files("trellis.deploy.c").joinpath("source").joinpath("recording_main.c").read_text()
    assert "#define MOST_FRAMES 1000000u" in source
    program = built(tmp_path, "-O2")
    row = " ".join("1" * WIDTH) + "\n"
    for count, fits in ((600_000, True), (1_000_001, False)):
        path = tmp_path / "long.csv"
        path.write_text(row * count)
        done = subprocess.run(
            [str(program), str(path)], capture_output=True, text=True, check=False
        )
        assert done.stdout.endswith("=0\n" if fits else "=2\n")


def test_no_locale_changes_what_a_number_is(tmp_path: Path) -> None:
    program = built(tmp_path, "-DCOMMA", *SANITIZED)
    paths = []
    for number, cell in enumerate(NUMBERS):
        paths.append(tmp_path / f"{number}.csv")
        paths[-1].write_text(" ".join([cell] * WIDTH))
    assert by_c(program, paths) == [by_python(path) for path in paths]
