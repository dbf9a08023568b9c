"""Ctrl-C while the command ``trellis`` imports torch, which takes seconds: no traceback.

Imported before anything else of the package, so that it is in time.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def watch_imports() -> None:
    """From now on Ctrl-C ends the process with status 130, if it is the command, until
    `imported`."""
    named = os.path.basename(sys.argv[0]) if sys.argv else ""
    by_module = named == "-m" and bool({"trellis", "trellis.cli"} & set(sys.orig_argv))
    is_command = named in ("trellis", "trellis.exe") or by_module
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nohup ignores it
    if is_command and usual and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _leave)


def imported() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os._exit(130)


watch_imports()
