"""The command line: ``trellis COMMAND``.

Exit status: 0 is well, 1 is a check that failed (``audit --fail-under``), 2 is an error, told in
one line on stderr. 141 is a reader that has seen enough (``| head``).
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import tyro

import trellis

from ..errors import TrellisError
from ..interrupt import imported
from .output import say

Command = Callable[..., int]


COMMANDS = (
    "audit", "prune", "demo", "data", "train", "tune", "shrink", "evaluate", "export", "reproduce",
    "report",
)  # fmt: skip

HELP = """\
usage: trellis COMMAND ...

See which weights of a pruned network are dead, and prune so that none is.

  audit   which kept connections lie on no path from an input to an output
            trellis audit shop.models:detector --weights pruned.safetensors --input 1x3x224x224
  prune   keep the best connections, every one of them live
            trellis prune shop.models:detector --weights trained.safetensors \\
                --input 1x3x224x224 --sparsity 0.99 --out pruned.safetensors
  demo    train the paper's network on built-in recordings, prune it in three ways, compare
            trellis demo
  data    what a set of recorded skeletons holds, and what a recording looks like
            trellis data info hands45
            trellis data show hands45 12 --out hand.html
  train   a graph network on recordings of moving skeletons
            trellis train hands45 --out hands
  tune    a pruned network again: kept connections learn, removed ones stay removed
            trellis tune small --data hands45 --out tuned
  shrink  all of it at once: train, prune while training, tune; or search how small it may be
            trellis shrink --data hands45 --sparsity 0.999
            trellis shrink --data csv:recordings --at-least 0.9
  evaluate
          how well a trained model names actions, or the action in a recording
            trellis evaluate hands --data hands45
            trellis evaluate hands wave.csv
  export  a model as ONNX, or as C for devices, without its dead units
            trellis export onnx small --out small.onnx
  reproduce
          the tables of the paper, its figures beside ours; a killed run goes on
            trellis reproduce table2 --data fpha:PATH --seeds 5 --device cuda --recipe paper
  report  one page that shows a run or a model: how much can go, what is kept, what survived
            trellis report runs/demo

`trellis COMMAND --help` explains a command; `trellis --version` prints the version.
Exit status: 0 fine, 1 below --fail-under, 2 an error (one line on stderr).
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    trellis ...
    0
    """
    imported()
    _prepare_output()
    command, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if command in ("-h", "--help", "--version"):
        about = f"trellis {trellis.__version__}\n" if command == "--version" else HELP
        return _told(lambda: min(sys.stdout.write(about), 0))
    if command not in COMMANDS:
        close = difflib.get_close_matches(command, COMMANDS, n=1)
        known = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(COMMANDS)}"
        return _failed(f"{command!r} is no command: {known} (see trellis --help)")
    if "" in rest:  # a path of no letters would be the current folder
        before = rest[rest.index("") - 1] if rest[0] else command
        return _failed(f"an empty word follows {before!r}: was a variable not set?")
    for word in rest:
        if not _is_text(word):
            return _failed(f"{word!r} is not UTF-8, and no file could tell of it: rename it")

    def called() -> int:
        return tyro.cli(
            _imported(command, rest),
            prog=f"trellis {command}",
            args=rest,
            config=(tyro.conf.FlagCreatePairsOff,),
        )

    return _told(called)


def _told(called: Callable[[], int]) -> int:
    """The exit status of a call, whatever becomes of it."""
    try:
        try:
            status = called()
        except SystemExit:  # tyro, after --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()  # now: later a closed pipe is a complaint of Python's
        return status
    except TrellisError as error:
        return _failed(str(error))
    except KeyboardInterrupt:
        return 130
    except (BrokenPipeError, SystemExit) as error:
        # rich ends the process itself where a pipe is closed, with status 1: in somebody's CI that
        # is "below --fail-under".
        closed = error if isinstance(error, BrokenPipeError) else error.__context__
        if not isinstance(closed, BrokenPipeError):
            raise  # tyro, after --help or a misspelt option
        # Whoever read our output has seen enough (`| head`); Python would complain once more
        # while it closes the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if _of_memory(error):
            return _failed(f"there is not enough memory: {error}")
        if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
            return _failed(f"{error.strerror}: {str(error.filename or 'the output')!r:.200}")
        # Status 1 would read as "below --fail-under" in somebody's CI.
        say(traceback.format_exc().rstrip("\n"), to=sys.stderr)
        return _failed("this is a fault of Trellis, not yours: please report the lines above")


# What a file system or a disk has to say is no fault of ours.
_OF_THE_SYSTEM = (
    errno.EACCES, errno.EDQUOT, errno.EIO, errno.ENAMETOOLONG, errno.ENOSPC, errno.EPERM,
    errno.EROFS,
)  # fmt: skip


def _is_text(word: str) -> bool:
    """
    >>> _is_text("Wörter"), _is_text("\\udcff")  # a byte of another encoding
    (True, False)
    """
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _prepare_output() -> None:
    """Output that is closed (``>&-``) is as good as none, and letters that its encoding does not
    have are written as numbers."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _imported(name: str, words: Sequence[str]) -> Command:
    """Import a command when it is asked for: `trellis report` does not wait for exporters.

    A module whose flags depend on the command line has a function ``command(words)``.
    """
    module = importlib.import_module(f"trellis.cli.{name}")
    make = getattr(module, "command", None)
    return bounded(getattr(module, name) if make is None else make(words))


def bounded(command: Command) -> Command:
    """The same command, which names the number that it could not compute with, if one is to blame.
    Every option checks its own range; this is for what one forgets.

    >>> def show(*, rate: float = 30.0) -> int:
    ...     return int(rate)
    >>> bounded(show)(rate=float("inf"))
    Traceback (most recent call last):
        ...
    trellis.errors.TrellisError: --rate inf: expected a finite number within 2^63
    """

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> int:
        try:
            return command(*args, **options)
        except TrellisError:
            raise
        except (ArithmeticError, ValueError):
            for name, value in options.items():
                for one in value if isinstance(value, tuple) else (value,):
                    number = isinstance(one, int | float)
                    if number and not -(2**63) < one < 2**63:  # nor is NaN
                        flag = name.replace("_", "-")
                        raise TrellisError(
                            f"--{flag} {one!s:.20}: expected a finite number within 2^63"
                        ) from None
            raise

    return checked


def _of_memory(error: Exception) -> bool:
    """Whether there was too little memory; torch has no class for that on a CPU.

    >>> _of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ..."))
    True
    """
    words = "can't allocate memory", "not enough memory", "out of memory"
    told = isinstance(error, RuntimeError) and any(each in str(error) for each in words)
    return told or isinstance(error, MemoryError)


def _failed(message: str) -> int:
    with contextlib.suppress(BrokenPipeError):  # the status still tells
        say(f"trellis: error: {' '.join(message.split())}", to=sys.stderr)
    return 2
