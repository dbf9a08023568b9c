"""Ctrl-C while the command ``trellis`` imports torch, which takes seconds: no traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading


def watch_imports() -> None:
    """Let Ctrl-C end the command ``trellis`` with status 130, until `imported` is called.

    Does nothing in other programs that import the package.
    """
    named = os.path.basename(sys.argv[0]) if sys.argv else ""
    by_module = named == "-m" and bool({"trellis", "trellis.cli"} & set(sys.orig_argv))
    is_command = named in ("trellis", "trellis.exe") or by_module
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nohup ignores it
    if is_command and usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _leave)


def imported() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os._exit(130)
