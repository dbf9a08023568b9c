"""Ways to break a file: bytes and lines of it, and members of a zip beneath its checksums."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

from hypothesis import strategies as st

NASTY = [
    b"nan", b"inf", b"1e999", b"1e30", b"-", b",", b";", b",,", b"\0", b"\xff", b"\r", b"\n\n",
    b'"', b"(", b")", b"[", b"]", b"{", b"}", b"9" * 400, b"\xef\xbb\xbf", b"1_0", b"true",
    b"null", b"../", b" ", b"\x1c", b"\xc2\xa0", "٣".encode(), b"0x10", b"Test 9\n", b"#",
]  # fmt: skip

Change = Callable[[bytes], bytes | None]  # None: the file is gone


def overwrite(at: float, size: int, new: bytes) -> Change:
    def change(old: bytes) -> bytes:
        start = int(at * len(old))
        return old[:start] + new + old[start + size :]

    return change


def lines(at: float, times: int) -> Change:
    """A line no times, or twice, or more often."""

    def change(old: bytes) -> bytes:
        rows = old.splitlines(keepends=True) or [b""]
        which = min(int(at * len(rows)), len(rows) - 1)
        return b"".join(rows[:which] + rows[which : which + 1] * times + rows[which + 1 :])

    return change


def truncate(at: float) -> Change:
    return lambda old: old[: int(at * len(old))]


where = st.floats(0, 1)
changes = st.one_of(
    st.builds(overwrite, where, st.integers(0, 9), st.sampled_from(NASTY)),
    st.builds(overwrite, where, st.integers(0, 9), st.binary(max_size=9)),
    st.builds(lines, where, st.sampled_from([0, 2])),
    st.builds(truncate, where),
    st.just(lambda old: None),
    st.just(lambda old: b""),
)


def member(at: float, change: Change) -> Change:
    """A change of one file within a zip, which is then a sound zip again."""

    def changed_zip(old: bytes) -> bytes:
        with ZipFile(BytesIO(old)) as archive:
            parts = {name: archive.read(name) for name in sorted(archive.namelist())}
        name = list(parts)[min(int(at * len(parts)), len(parts) - 1)]
        after = change(parts.pop(name))
        made = BytesIO()
        with ZipFile(made, "w") as archive:
            for kept, content in (parts if after is None else {**parts, name: after}).items():
                archive.writestr(kept, content)
        return made.getvalue()

    return changed_zip


def described(key: str, value: str) -> Change:
    """What the header of a .npy says of its array, instead of what is so."""

    def change(old: bytes) -> bytes:
        size = int.from_bytes(old[8:10], "little")
        told = old[10 : 10 + size].decode("latin-1")
        told = re.sub(rf"'{key}': (\(.*?\)|'.*?'|\w+)", lambda _: f"'{key}': {value}", told)
        header = told.encode("latin-1")
        return old[:8] + len(header).to_bytes(2, "little") + header + old[10 + size :]

    return change


DTYPES = [
    "<f8", "<f4", "<f2", ">f8", "<i8", "<u8", "|i1", "|b1", "<c16", "|O", "|V8", "|S3", "<U2",
    "<U0", "|S0", "<M8[s]", "<f16", "nonsense", "",
]  # fmt: skip
SHAPES = [
    "()", "(0,)", "(4,)", "(12,)", "(4, 3)", "(12, 4, 3)", "(3, 4, 4, 3)", "(0, 4, 3)", "(-1,)",
    "(12, 0, 3)", "(-1, 4, 3)", "(99999999999,)", "(4294967296, 4294967296, 3)", "(1.5,)", "None",
    "(True,)",
]  # fmt: skip
headers = st.one_of(
    st.builds(described, st.just("descr"), st.sampled_from([repr(name) for name in DTYPES])),
    st.builds(described, st.just("descr"), st.just("[('x', '<f8'), ('y', '<f8')]")),
    st.builds(described, st.just("shape"), st.sampled_from(SHAPES)),
    st.builds(described, st.just("fortran_order"), st.sampled_from(["True", "1", "'no'"])),
)
members = st.builds(member, where, st.one_of(changes, headers))


@contextmanager
def changed(path: Path, change: Change) -> Iterator[None]:
    """While this lasts, the file is so."""
    before = path.read_bytes()
    after = change(before)
    try:
        path.unlink()
        if after is not None:
            path.write_bytes(after)
        yield
    finally:
        path.write_bytes(before)
