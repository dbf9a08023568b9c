"""The command line: ``trellis COMMAND``.

Exit status: 0 success, 1 a failed check (``audit --fail-under``), 2 an error (one line on stderr),
130 Ctrl-C, 141 a closed pipe (``| head``).
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
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tyro

import trellis

from ..errors import TrellisError
from ..imports import imported
from .output import say

Command = Callable[..., int]


COMMANDS = (
    "audit", "prune", "demo", "data", "train", "tune", "shrink", "evaluate", "export", "reproduce",
    "report", "live", "record",
)  # fmt: skip

# The module of a command, where it is not named like the command.
MODULES = {"tune": "train", "record": "live"}
SUBCOMMANDS: dict[str, tuple[str, ...]] = {
    "data": ("info", "show", "export"),
    "export": ("onnx", "c", "wasm"),  # without plugins
}
_KINDS = {"N": "a whole number", "FRACTION": "a number such as 0.99"}

HELP = """\
usage: trellis COMMAND ...

Find the dead weights of a pruned network, and prune so that every kept weight is live.

  audit   count the kept connections that lie on no path from an input to an output
            trellis audit shop.models:detector --weights pruned.safetensors --input 1x3x224x224
  prune   keep the best connections, all of them live
            trellis prune shop.models:detector --weights trained.safetensors \\
                --input 1x3x224x224 --sparsity 0.99 --out pruned.safetensors
  demo    compare the paper's pruning with `trellis shrink` on built-in data (three minutes)
            trellis demo
  data    list the contents of a set of skeleton recordings, or show one recording
            trellis data info hands45
            trellis data show hands45 12 --out hand.html
            trellis data export hands45 167 --out wave.csv
  train   train a graph network on skeleton recordings
            trellis train hands45 --out hands
  tune    fine-tune a pruned network: removed connections stay removed
            trellis tune small --data hands45 --out tuned
  shrink  train, prune gradually and fine-tune in one command; or search the smallest network
            trellis shrink hands45 --sparsity 0.999
            trellis shrink csv:recordings --at-least 0.9
            trellis shrink shop.models:net --data shop.data:loaders --sparsity 0.99
  evaluate
          measure a model's accuracy, or name the action in a recording
            trellis evaluate hands --data hands45
            trellis evaluate hands wave.csv
  export  write a model as ONNX, C or WebAssembly, without its dead units
            trellis export onnx small --out small.onnx
  reproduce
          compute the tables of the paper, with its figures beside ours
            trellis reproduce table2 --data fpha:PATH --seeds 5 --device cuda --recipe paper
  report  write one page about a run or a model
            trellis report runs/demo/paper
  live    record gestures with a camera, train on them, and recognise them live
            trellis live
  record  record gestures from video files
            trellis record my-gestures --video wave/1.mp4 wave/2.mp4

`trellis COMMAND --help` explains a command; `trellis --version` prints the version.
Exit status: 0 success, 1 below --fail-under, 2 an error (one line on stderr).
"""


class _ArgumentError(Exception):
    """The words after a command do not fit it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    trellis ...
    0
    """
    _prepare_output()
    command, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if command in ("-h", "--help", "--version"):
        about = f"trellis {trellis.__version__}\n" if command == "--version" else HELP
        return _status_of(lambda: min(sys.stdout.write(about), 0))
    if command not in COMMANDS:
        close = difflib.get_close_matches(command, COMMANDS, n=1)
        known = f"did you mean {close[0]!r}?" if close else f"expected {', '.join(COMMANDS)}"
        return _failed(f"unknown command {command!r}: {known} (see trellis --help)")
    if "" in rest:  # an empty path would be the current folder
        before = rest[rest.index("") - 1] if rest[0] else command
        return _failed(f"an empty word follows {before!r}: was a variable not set?")
    for word in rest:
        if not _is_text(word):
            return _failed(f"{word!r} is not UTF-8, so files cannot name it: rename it")

    program = f"trellis {command}"
    if parts := SUBCOMMANDS.get(command):
        first = rest[0] if rest else None
        if command == "export" and first not in parts:
            from ..deploy.exporters import EXPORTERS

            parts = tuple(EXPORTERS.names())
        if first in parts:
            program = f"{program} {first}"
        elif first is not None and not first.startswith("-"):
            return _failed(
                f"expected {_one_of(parts)}, got {first!r}; see `{program} --help`", program
            )

    if command == "shrink":
        from .shrink import source_first

        rest = source_first(rest)

    def called() -> int:
        with _one_line_errors(rest, program):
            return tyro.cli(
                _imported(command, rest),
                prog=f"trellis {command}",
                args=rest,
                config=(tyro.conf.FlagCreatePairsOff,),
            )

    return _status_of(called, program)


def _one_line_errors(words: Sequence[str], program: str) -> contextlib.AbstractContextManager[None]:
    """Replace tyro's boxes by one line. A tyro without hooks for errors keeps its boxes."""
    found: Any = getattr(tyro, "_errors", None)
    if not hasattr(found, "on_parse_error"):
        return contextlib.nullcontext()

    def hook(event: Any) -> None:
        raise _ArgumentError(f"{_expected(event, words)}; see `{program} --help`")

    context: contextlib.AbstractContextManager[None] = found.on_parse_error(hook)
    return context


def _expected(event: Any, words: Sequence[str]) -> str:
    """Say what was expected and what came, for a parsing error of tyro."""
    kind = type(event).__name__
    if kind == "MissingArgs":
        unknown = [word for word in event.unrecognized_tokens if word.startswith("-")]
        if unknown:
            return f"unknown option {unknown[0]!r}"
        return f"expected {', '.join(_argument(each.arg) for each in event.missing_arguments)}"
    if kind == "UnrecognizedArgs":
        first = str(event.tokens[0])
        return f"{'unknown option' if first.startswith('-') else 'unexpected argument'} {first!r}"
    if kind == "InvalidChoice":
        return f"{_flag(event.argument)}expected {_one_of(event.choices)}, got {event.value!r}"
    if kind == "MissingSubcommand":
        got = "" if event.found_token is None else f", got {event.found_token!r}"
        return f"expected {_one_of(event.subcommand_spec.parser_from_name)}{got}"
    if kind in ("BadValue", "InstantiationFailure") and event.argument is not None:
        metavar = event.argument.lowered.metavar
        wanted = f"{_flag(event.argument)}expected {_KINDS.get(metavar, metavar)}"
        given = getattr(event, "offending_value", None)
        if given is None and not event.argument.is_positional():
            given = _following(_argument(event.argument), words)
        return wanted if given is None else f"{wanted}, got {given!r}"
    text = getattr(event, "message", None) or getattr(event, "reason", None) or kind
    return " ".join(str(text).split())


def _argument(argument: Any) -> str:
    """Return the flag of an option, or what a positional argument stands for."""
    if argument.is_positional():
        return str(argument.lowered.metavar)
    return str(argument.lowered.name_or_flags[-1])


def _flag(argument: Any) -> str:
    return "" if argument.is_positional() else f"{_argument(argument)}: "


def _one_of(names: Iterable[str]) -> str:
    """
    >>> _one_of(["a", "b", "c"])
    'a, b or c'
    """
    *most, last = map(str, names)
    return f"{', '.join(most)} or {last}" if most else last


def _following(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of a flag on the command line: the next word, or what follows ``=``."""
    for place, word in enumerate(words):
        if word.startswith(f"{flag}="):
            return word[len(flag) + 1 :]
        if word == flag:
            return words[place + 1] if place + 1 < len(words) else None
    return None


def _status_of(called: Callable[[], int], program: str = "trellis") -> int:
    """Call a command, and return its exit status whatever happens."""
    try:
        try:
            status = called()
        except SystemExit:  # tyro, after --help
            sys.stdout.flush()
            raise
        sys.stdout.flush()  # now: later, Python itself would report a closed pipe
        return status
    except TrellisError as error:
        status = _failed(str(error))
        if hint := getattr(error, "hint", ()):
            with contextlib.suppress(BrokenPipeError):
                say(*(f"    {line}" for line in hint), to=sys.stderr)
        return status
    except _ArgumentError as error:
        return _failed(str(error), program)
    except KeyboardInterrupt:
        return 130
    except (BrokenPipeError, SystemExit) as error:
        # rich ends the process with status 1 if a pipe is closed. For `audit` in continuous
        # integration, status 1 means "below --fail-under".
        closed = error if isinstance(error, BrokenPipeError) else error.__context__
        if not isinstance(closed, BrokenPipeError):
            raise  # tyro, after --help
        # The reader of our output is done (`| head`). Without this, Python would complain once
        # more while it closes the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if _of_memory(error):
            return _failed(f"there is not enough memory: {error}")
        if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
            return _failed(f"{error.strerror}: {str(error.filename or 'the output')!r:.200}")
        # Not status 1: in continuous integration that means "below --fail-under".
        say(traceback.format_exc().rstrip("\n"), to=sys.stderr)
        return _failed("this is a bug in Trellis: please report the lines above")


# Errors of the file system or the disk, not bugs in Trellis.
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
    """Discard output if it is closed (``>&-``), and escape letters that its encoding lacks."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _imported(name: str, words: Sequence[str]) -> Command:
    """Import one command only.

    tyro's own subcommands need the functions of all commands, and so all their imports, even for
    ``--help``. A module whose flags depend on the words of the command line has a function
    ``command_for(words)``.
    """
    module = importlib.import_module(f"trellis.cli.{MODULES.get(name, name)}")
    imported()
    make = getattr(module, "command_for", None)
    return bounded(getattr(module, name) if make is None else make(words))


def bounded(command: Command) -> Command:
    """Let a command name the option whose number is out of range for arithmetic.

    Every option checks its own range; this catches the rest.

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
    """Whether memory ran out; torch has no exception class for this on a CPU.

    >>> _of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ..."))
    True
    """
    texts = "can't allocate memory", "not enough memory", "out of memory"
    found = isinstance(error, RuntimeError) and any(each in str(error) for each in texts)
    return found or isinstance(error, MemoryError)


def _failed(message: str, program: str = "trellis") -> int:
    with contextlib.suppress(BrokenPipeError):  # the exit status is still correct
        say(f"{program}: error: {' '.join(message.split())}", to=sys.stderr)
    return 2
