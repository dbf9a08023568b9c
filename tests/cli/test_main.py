"""The commands as a person finds them."""

from __future__ import annotations

import dataclasses
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.text import Text

import trellis
from tests.cli.arms import SMALL
from tests.cli.conftest import Fails, Run
from tests.cli.shell import shell
from tests.skeleton.moving import arms, write_npz
from trellis.cli import COMMANDS
from trellis.cli.output import Screen
from trellis.errors import TrellisError


def process(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return shell(shlex.join([sys.executable, "-m", "trellis", *words]), folder)


def test_help_names_every_command_with_an_example(run: Run) -> None:
    for words in ([], ["--help"], ["-h"]):
        ran = run(*words)
        assert ran.status == 0
        assert all(f"\n            trellis {name}" in ran.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself_with_an_example(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.status == 0
    assert f"\n  trellis {name}" in ran.out


NASTY = "\x1b[2J\x1b]0;mine\x07\x9b31m\r\u202e\x7f"


def test_no_name_of_a_file_reaches_the_terminal_as_a_command(run: Run, tmp_path: Path) -> None:
    """Classes, joints, folders and files, in tables, lines, JSON and errors."""
    data = arms(24)
    classes, joints = (tuple(f"{name}{NASTY}" for name in names) for names in (
        data.classes, data.layout.joints))  # fmt: skip
    layout = dataclasses.replace(data.layout, joints=joints)
    source, model, wave = f"npz:{NASTY}.npz", f"m{NASTY}", f"w{NASTY}.npz"
    write_npz(tmp_path / f"{NASTY}.npz", dataclasses.replace(data, classes=classes, layout=layout))
    np.savez(tmp_path / wave, frames=data.sequences[0])
    (tmp_path / f"bad{NASTY}.csv").write_text(f"{NASTY}\n")
    train = ("train", source, *SMALL, "--epochs", "1", "--out")
    few = ("--data", source, "--course", "quick", "--length", "0.1", *SMALL)
    for status, *words in (
        (0, "data", "info", source),
        (0, "data", "show", source, "0", "--out", f"{NASTY}.html"),
        (0, *train, model),
        (2, *train, model),
        (0, "evaluate", model, "--data", source),
        (0, "evaluate", model, "--data", source, "--json"),
        (0, "evaluate", model, wave),
        (0, "evaluate", model, wave, f"bad{NASTY}.csv", "--skip-bad"),
        (2, "evaluate", model, f"bad{NASTY}.csv"),
        (0, "prune", model, "--sparsity", "0.5", "--out", f"p{NASTY}"),
        (0, "audit", model, "--html", f"a{NASTY}.html"),
        (0, "report", model),
        (0, "export", "c", model, "--out", f"c{NASTY}"),
        (2, "shrink", *few, "--keep", "60", "--out", model),
        (0, "shrink", *few, "--keep", "60", "--out", f"s{NASTY}"),
        (2, "shrink", *few, "--keep", "1", "--out", f"t{NASTY}"),
    ):
        ran = run(*words)
        assert ran.status == status, ran.err
        assert not set(NASTY) & set(ran.out + ran.err) - set("[2J]0;mine31m"), words


def test_a_screen_keeps_its_own_codes() -> None:
    out = io.StringIO()
    screen = Screen(file=out, force_terminal=True, color_system="standard", width=80)
    screen.print(Text(f"name{NASTY}", style="red"))
    assert out.getvalue().startswith("\x1b[31mname\\x1b[2J") and "\x9b" not in out.getvalue()
    assert out.getvalue().count("\x1b") == 2


def test_version(run: Run) -> None:
    assert run("--version").out == f"trellis {trellis.__version__}\n"


def test_unknown_command(run: Run) -> None:
    ran = run("audti")
    assert ran.status == 2
    assert "did you mean 'audit'?" in ran.err
    assert "expected audit, prune, demo" in run("fly").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("audit", "trellis audit: error: expected MODULE:FACTORY|FOLDER"),
        ("audit x --inputs-of 3", "trellis audit: error: unknown option '--inputs-of'"),
        ("audit a b", "trellis audit: error: unexpected argument 'b'"),
        ("prune x --keep 1.5", "trellis prune: error: --keep: expected a whole number, got '1.5'"),
        ("data", "trellis data: error: expected info, show or export"),
        ("export cc x", "trellis export: error: expected c, "),
        ("export c x", "trellis export c: error: expected --out"),
        ("reproduce table9", "error: expected table1, table2 or table3, got 'table9'"),
        ("train x --bones no --out x", "--bones: expected free, start, limit or fixed, got 'no'"),
    ],
)
def test_argument_errors_are_one_line(run: Run, words: str, said: str) -> None:
    ran = run(*words.split())
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err and ran.err.endswith("--help`\n")


def test_a_fault_of_ours_is_status_2_with_its_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> int:
        raise AssertionError("the audit disagrees")

    monkeypatch.setattr("trellis.cli.demo.demo", broken)
    ran = run("demo")
    assert ran.status == 2
    assert "Traceback" in ran.err and "please report" in ran.err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
    ],
)
def test_too_little_memory_is_told_in_one_line(
    fails: Fails, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def large() -> int:
        raise error

    monkeypatch.setattr("trellis.cli.demo.demo", large)
    assert f"there is not enough memory: {error}".strip() in fails("demo")


def test_a_network_of_any_size_is_one_line(fails: Fails, tmp_path: Path) -> None:
    words = ("shrink", "--data", "hands45", "--sparsity", "0.9", "--heads", "1000000000")
    assert "heads=1000000000" in fails(*words, "--out", "x")
    assert os.listdir(tmp_path) == []


def test_an_empty_word_is_no_folder(fails: Fails, tmp_path: Path) -> None:
    """What a shell makes of a variable that is not set."""
    for words, said in (
        (("shrink", "--data", "hands45", "--sparsity", "0.9", "--out", ""), "'--out'"),
        (("evaluate", ""), "'evaluate'"),
    ):
        assert f"an empty word follows {said}: was a variable not set?" in fails(*words)
    assert os.listdir(tmp_path) == []


def test_a_message_of_many_lines_is_told_in_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> int:
        raise TrellisError("first\n  second")

    monkeypatch.setattr("trellis.cli.demo.demo", failing)
    assert run("demo").err == "trellis: error: first second\n"


def test_as_a_process_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from torch import nn\nprint('importing')\ndef model():\n    return nn.Linear(3, 2)\n"
    )
    ran = process(tmp_path, "audit", "shop:model", "--input", "1x3", "--fail-under", "1.0")
    assert ran.returncode == 0, ran.stderr
    assert "live: 100 % of what is kept" in ran.stdout
    assert "importing" not in ran.stdout and "importing" in ran.stderr


def test_inputs_that_do_not_fit_as_a_process_say_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from torch import nn\nmodel = nn.Linear(3, 2)\n")
    ran = process(tmp_path, "audit", "shop:model", "--input", "1x4")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1 and "float32 1x4" in ran.stderr


def test_a_reader_that_has_seen_enough_is_no_fault_of_ours() -> None:
    talk = (
        "import sys; from trellis import cli; from trellis.cli import demo; "
        "demo.demo = lambda: [print('x' * 99) for _ in range(9999)] and 0; "
        "sys.exit(cli.main(['demo']))"
    )
    line = f'{sys.executable} -c "{talk}" | head -1; exit ${{PIPESTATUS[0]}}'
    ran = shell(line, Path.cwd())
    assert (ran.returncode, ran.stderr) == (141, "")


def test_nor_is_one_that_sees_no_table(tmp_path: Path) -> None:
    """rich would end the process with 1, which is "below --fail-under"."""
    (tmp_path / "shop.py").write_text("from torch import nn\nmodel = nn.Linear(3, 2)\n")
    audit = f"{sys.executable} -m trellis audit shop:model --input 1x3 --fail-under 1.0"
    ran = shell(f"{audit} | true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "hands45", "--out", "a" * 300], "File name too long: '"),
        (["data", "info", "csv:\udcff"], "'csv:\\udcff' is not UTF-8"),
    ],
)
def test_what_no_file_system_takes_is_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    ran = process(tmp_path, *words)
    assert ran.returncode == 2 and not list(tmp_path.iterdir())
    [line] = ran.stderr.splitlines()
    assert line.startswith("trellis: error: ") and said in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without /dev/full")
def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    command = f"{sys.executable} -m trellis data info hands45"
    found = [
        shell(f"{before} {command} {after}", tmp_path)
        for before, after in (("", ">/dev/full"), ("", ">&-"), ("PYTHONIOENCODING=ascii", ""))
    ]
    full, closed, narrow = found
    assert full.returncode == 2
    assert full.stderr == "trellis: error: No space left on device: 'the output'\n"
    assert closed.returncode == 0 and not closed.stderr
    assert narrow.returncode == 0 and "hands45" in narrow.stdout


INTERRUPTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize(
    ("name", "started"),
    [
        ("torch", "{0} -m trellis"),
        ("torch", "{0} bin/trellis"),
        ("tyro", "{0} bin/trellis"),
        ("trellis.skeleton", "{0} -m trellis"),
    ],
)
def test_ctrl_c_while_it_imports_is_status_130_and_silent(
    tmp_path: Path, name: str, started: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(name=name))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "trellis").write_text(
        "import sys\nfrom trellis.cli import main\nsys.exit(main())\n"
    )
    # A background job begins with SIGINT ignored.
    usual = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    usual += "os.execv(sys.argv[1], sys.argv[1:])"
    python = f'PYTHONPATH="$PWD:$PYTHONPATH" {sys.executable} -c "{usual}" {sys.executable}'
    ran = shell(f"{started.format(python)} audit nothing:there", tmp_path)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.parametrize("words", ["--help", "train --help"])
def test_a_closed_pipe_is_silent(tmp_path: Path, words: str) -> None:
    ran = shell(f"{sys.executable} -m trellis {words} 2> told | head -c0", tmp_path)
    told = (tmp_path / "told").read_text()
    assert ran.returncode == 0 and "Traceback" not in told and "ignored" not in told


@pytest.mark.parametrize(
    "words",
    [
        ("train", "npz:none.npz", "--out", "o", "--teacher", "m", "--temperature", "1e300"),
        ("train", "npz:none.npz", "--out", "o", "--teacher", "m", "--temperature", "nan"),
        ("train", "npz:none.npz", "--out", "o", "--epochs", str(10**400)),
        ("prune", "tests.cli.models:mlp", "--input", "1x16", "--sparsity", "nan"),
        ("prune", "tests.cli.models:mlp", "--input", "1x16", "--keep", str(10**400)),
        ("prune", "tests.cli.models:mlp", "--input", "1x16", "--inverse-alpha", "inf"),
        ("shrink", "--data", "npz:none.npz", "--at-least", "inf"),
        ("reproduce", "table2", "--rates", "90", "nan"),
        ("data", "show", "hands45", "9" * 5000),
        ("audit", "tests.cli.models:mlp", "--input", "9" * 5000),
        ("audit", "tests.cli.models:mlp", "--input", "x".join(["1"] * 71)),
        ("audit", "tests.cli.models:mlp", "--input", "int64:1=" + "9" * 5000),
    ],
    ids=lambda words: " ".join(words)[:60],
)
def test_numbers_beyond_reason_are_one_line(fails: Fails, words: tuple[str, ...]) -> None:
    assert len(fails(*words)) < 1000
