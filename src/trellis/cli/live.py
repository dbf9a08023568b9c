"""``trellis live``: record gestures with a camera, train on them, and recognise them live."""

from __future__ import annotations

import importlib.util
import socket
import webbrowser
from pathlib import Path
from typing import Annotated

import tyro

from ..errors import TrellisError
from .data_arguments import arg
from .output import say

Folder = Annotated[
    Path,
    tyro.conf.Positional,
    arg(metavar="FOLDER", help="Folder for clips and models; created if needed."),
]
Port = Annotated[int, arg(metavar="N", help="Port. 0: a free one.")]
NoOpen = Annotated[bool, arg(help="Do not open the page in a browser; print its address only.")]
SetUp = Annotated[bool, arg(help="Fetch the hand detector with npm, once, and stop.")]
Length = Annotated[float, arg(metavar="TIMES", help="Factor on the length of training.")]


def needed() -> None:
    """Raise if the packages of the extra are not installed."""
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise TrellisError(f"{name} is not installed; run `pip install 'trellis-prune[live]'`")


def live(
    folder: Folder = Path("gestures"),
    /,
    *,
    port: Port = 0,
    no_open: NoOpen = False,
    set_up: SetUp = False,
    length: Length = 0.7,
) -> int:
    """Open a page that records gestures with a camera, trains on them and recognises them live.

    Everything stays on this machine: the page is served on 127.0.0.1 alone, behind a random token.
    The first start fetches the hand detector (@mediapipe/hands, 13 MB) with npm; later ones need no
    network. Clips are in FOLDER/clips, and every command reads them as csv:FOLDER/clips.

      trellis live
      trellis live my-gestures --no-open
    """
    needed()
    if not 0 < length <= 100:
        raise TrellisError(f"--length {length:g}: expected a number above 0 and up to 100")
    place = detector()
    if set_up:
        say(f"the hand detector is in {place}")
        return 0
    from ..live.server import application, new_token, routes_of, serve
    from ..live.session import Session

    session = Session(folder, place, length)
    sock, token = bound(port), new_token()
    number = sock.getsockname()[1]
    address = f"http://127.0.0.1:{number}/{token}/"
    say(f"open {address}", f"clips: {session.clips.folder}; Ctrl-C stops")
    app = application("page.html", routes_of(session), place, token, number)
    try:
        serve(app, sock, ready=None if no_open else lambda: webbrowser.open(address))
    finally:
        session.stop()
    return 0


def detector() -> Path:
    """Return the folder of the hand detector; say so if it is fetched now."""
    from ..live import hands

    if not hands.sound(hands.default_folder()):
        say("fetching the hand detector, @mediapipe/hands, with npm, once")
    return hands.fetch()


def bound(port: int) -> socket.socket:
    """Return a socket that listens on this machine alone."""
    if not 0 <= port < 65536:
        raise TrellisError(f"--port {port}: expected a number from 0 to 65535")
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
    except OSError as error:
        sock.close()
        raise TrellisError(f"--port {port}: {error.strerror}; choose another") from None
    return sock
