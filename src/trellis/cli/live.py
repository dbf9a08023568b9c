"""``trellis live`` and ``trellis record``: gestures from a camera or from video files."""

from __future__ import annotations

import importlib.util
import socket
import webbrowser
from pathlib import Path
from typing import Annotated

import tyro

from ..errors import TrellisError
from .data_arguments import arg
from .output import counted, say

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


# ``trellis record``: clips of gestures from video files.


Files = Annotated[
    tuple[Path, ...],
    arg(metavar="FILE", help="Video files of a hand that a browser plays."),
]
Gesture = Annotated[
    str | None, arg(metavar="NAME", help="Gesture in the videos (default: each file's folder).")
]
Cut = Annotated[
    float | None, arg(metavar="SECONDS", help="Length of a clip (default: a video is one clip).")
]


def record(
    folder: Folder = Path("gestures"),
    /,
    *,
    video: Files,
    gesture: Gesture = None,
    cut: Cut = None,
    port: Port = 0,
    no_open: NoOpen = False,
) -> int:
    """Record gestures from video files: a browser finds the hand in them, and clips are written.

    Clips are in FOLDER/clips, beside those of `trellis live`, and every command reads them as
    csv:FOLDER/clips. The page that does the work is served on 127.0.0.1 alone, behind a random
    token, and the videos stay on this machine.

      trellis record my-gestures --video wave/1.mp4 wave/2.mp4
      trellis record my-gestures --video all-day.webm --gesture nothing --cut 2
    """
    needed()
    from ..live.clips import Clips
    from ..live.server import application, new_token, serve
    from ..live.videos import Video, Videos, routes_of

    def told(each: Video) -> None:
        parts = [f"{counted(each.clips, 'clip')} of {each.gesture}"]
        if each.left_out:
            parts.append(f"left out {counted(len(each.left_out), 'part')}: {each.left_out[0]}")
        say(f"{each.path}: {'; '.join(parts)}")

    videos = Videos(video, Clips(folder / "clips"), gesture, cut, told)
    place, token, sock = detector(), new_token(), bound(port)
    number = sock.getsockname()[1]
    address = f"http://127.0.0.1:{number}/{token}/"
    say(f"open {address}", "it reads the videos; Ctrl-C stops")
    app = application("videos.html", routes_of(videos), place, token, number)
    serve(app, sock, None if no_open else lambda: webbrowser.open(address), videos.ended)
    total = sum(each.clips for each in videos.videos)
    unread = sum(not each.over for each in videos.videos)
    if unread:
        raise TrellisError(
            f"{counted(unread, 'video')} of {len(videos.videos)} not read; run the command again "
            "with those"
        )
    if not total:
        raise TrellisError("no clip was kept; the hand must be in the picture")
    say(f"{counted(total, 'clip')} in {videos.clips.folder}")
    return 0
