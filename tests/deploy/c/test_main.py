"""The exported program names the action in a recording as Python does, or tells what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import trellis
from tests.deploy.tools import SANITIZED, compiled, ran, tool
from trellis.deploy.recording import Recording
from trellis.skeleton import GCN, Layout, Normalization, Recognizer

ARM = Layout("arm", ("shoulder", "left hand", "elbow"), parents=(-1, 2, 0), roots=(0, 2))
CLASSES = ('say "hi"', "point, slowly", "wave??/")  # what C would take amiss


def recogniser(
    chunks: int = 4,
    basis: str = "chunks",
    body: tuple[int, ...] | None = None,
    bones: tuple[tuple[int, int], ...] = (),
    origin: str = "recording",
) -> Recognizer:
    gcn = GCN(nodes=3, channels=chunks * 3, classes=3, heads=4, filters=6)
    trellis.prune(gcn, torch.zeros(1, 3, chunks * 3), sparsity=0.6)
    normalisation = Normalization(ARM.roots, 0.37, body, bones, 2.5, origin)
    return Recognizer(gcn, chunks, normalisation, CLASSES, ARM, basis=basis)


def described(one: Recognizer) -> dict[str, Any]:
    how = one.normalization
    made = Recording(
        ARM.joints, one.chunks, how.roots, how.scale, one.basis, how.body, how.bones, how.length,
        origin=how.origin,
    )  # fmt: skip
    return {"classes": one.classes, "recording": made}


@pytest.fixture(scope="module")
def one() -> Recognizer:
    torch.manual_seed(0)
    return recogniser()


@pytest.fixture(scope="module")
def program(one: Recognizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c")
    trellis.export_c(one.model, torch.zeros(1, 3, 12), folder, **described(one))
    return compiled([folder / "model.c", folder / "main.c"], folder / "model", *SANITIZED)


def recording(frames: int) -> NDArray[np.float32]:
    return np.random.default_rng(frames).normal(size=(frames, 3, 3)).astype(np.float32)


def rows(frames: NDArray[np.float32], mark: str = ",") -> list[str]:
    return [mark.join(map(repr, frame.reshape(-1).tolist())) for frame in frames]


def outputs(one: Recognizer, frames: NDArray[np.float32]) -> NDArray[np.float32]:
    with torch.no_grad():
        found: NDArray[np.float32] = one.model(torch.from_numpy(one.inputs([frames])))[0].numpy()
    return found


# Fewer frames than chunks, as many, a multiple, and others.
@pytest.mark.parametrize("frames", [1, 2, 3, 4, 5, 8, 11, 100])
def test_recordings(one: Recognizer, program: Path, frames: int) -> None:
    given = recording(frames)
    wanted = outputs(one, given)
    done = ran(program, "\n".join(rows(given)), "--outputs")
    names, found = zip(*(line.rsplit(",", 1) for line in done.stdout.splitlines()), strict=True)
    assert names == CLASSES
    given_out = np.array(found, np.float32)
    np.testing.assert_allclose(given_out, wanted, atol=1e-5 * np.abs(wanted).max())
    best = CLASSES[int(wanted.argmax())]
    share = torch.softmax(torch.from_numpy(wanted), 0).max().item()
    assert ran(program, "\n".join(rows(given))).stdout == f"{best} {100 * share:.1f} %\n"


def test_ways_to_write_one(program: Path) -> None:
    """Separators, a frame number, a header in another order, blank lines, comments, a BOM."""
    given = recording(6)
    plain = ran(program, "\n".join(rows(given)), "--outputs").stdout
    assert plain
    semicolons = [row.replace(".", ",") for row in rows(given, ";")]
    numbered = [f"{n} {row}" for n, row in enumerate(rows(given, " "))]
    order = [2, 0, 1]
    header = [f"{ARM.joints[j]}_{axis}" for j in order for axis in "XyZ"]
    named = [",".join(["time", *header]), *(f"0.5,{row}" for row in rows(given[:, order]))]
    for lines in (
        rows(given, "\t"), semicolons, numbered, named, [row + "," for row in rows(given)],
        ["", "# frames", *rows(given), ""], [row + "\r" for row in rows(given)],
        ["\ufeff" + rows(given)[0], *rows(given)[1:]],
    ):  # fmt: skip
        done = ran(program, "\n".join(lines), "--outputs")
        assert (done.stdout, done.stderr) == (plain, "")


@pytest.mark.parametrize(
    "text, told",
    [
        ("", "no frames"),
        ("\n# nothing\n", "no frames"),
        ("1,2,3\n", "line 1: too few numbers"),
        ("1 2 3 4 5 6 7 8 9 10 11\n", "line 1: too many numbers"),
        ("1 2 3 4 5 6 7 8 9\n1 2 3 4 5 6 7 8 x\n", "line 2: something that is no number"),
        ("1 2 3 4 5 6 7 8 9\n1 2 3 4 5 6 7 8 nan\n", "line 2: something that is no number"),
        ("1 2 3 4 5 6 7 8 9\n1 2 3 4 5 6 7 8 1e39\n", "line 2: something that is no number"),
        ("1 2 3 4 5 6 7 8 9\n\n1,2,3,4,,6,7,8,9\n", "line 3: something that is no number"),
        ("1 2 3 4 5 6 7 8 9\n1 2 3 4 5 6 7 8 9 10\n", "line 2: too many numbers"),
        ("hip_x,hip_y,hip_z\n", "line 1: a column that is no joint_x"),
        ("shoulder_x,shoulder_x,shoulder_z\n", "line 1: a joint without its x, y and z"),
        (f"{'9' * 100} 2 3 4 5 6 7 8 9\n", "line 1: something that is no number"),
        ("1 " * 2_000_000, "line 1: the line is too long"),
    ],
)
def test_what_is_wrong_is_told(program: Path, text: str, told: str) -> None:
    done = ran(program, text)
    assert done.returncode == 2 and done.stdout == ""
    assert told in done.stderr and done.stderr.count("\n") == 1


def test_wrong_use_is_told(program: Path) -> None:
    done = ran(program, "", "--help")
    assert done.returncode == 2 and done.stderr.startswith("usage: ")


@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("values", ["fp32", "fp16", "int8"])
def test_every_kind_of_values_compiles(
    one: Recognizer, values: str, cc: str, tmp_path: Path
) -> None:
    found = tool(cc)
    x = torch.zeros(1, 3, 12)
    trellis.export_c(one.model, x, tmp_path, values=values, **described(one))
    sources = [tmp_path / "model.c", tmp_path / "main.c"]
    built = compiled(sources, tmp_path / "model", *SANITIZED, cc=found)
    given = recording(9)
    wanted = outputs(one, given)
    lines = ran(built, "\n".join(rows(given)), "--outputs").stdout.splitlines()
    error = {"fp32": 1e-5, "fp16": 3e-3, "int8": 3e-2}[values]
    values_ = np.array([line.rsplit(",", 1)[1] for line in lines], np.float32)
    np.testing.assert_allclose(values_, wanted, atol=error * np.abs(wanted).max())


def test_flags_that_take_roundings_for_zero_are_refused(one: Recognizer, tmp_path: Path) -> None:
    trellis.export_c(one.model, torch.zeros(1, 3, 12), tmp_path, **described(one))
    with pytest.raises(AssertionError, match="compile this file without it"):
        compiled([tmp_path / "model.c"], tmp_path / "model.o", "-ffast-math", "-c")
    assert "without `-ffast-math`" in (tmp_path / "README.md").read_text()


def test_readme_and_licence(one: Recognizer, tmp_path: Path) -> None:
    trellis.export_c(one.model, torch.zeros(1, 3, 12), tmp_path, **described(one))
    for name in ("model.h", "model.c", "main.c", "README.md"):
        assert "may be used under any licence" in (tmp_path / name).read_text()
    assert "malloc" not in (tmp_path / "model.c").read_text()
    text = (tmp_path / "README.md").read_text()
    assert "cc -std=c99 -O2 -o model model.c main.c -lm" in text
