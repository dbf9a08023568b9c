"""``trellis record``: clips of gestures from video files."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

from ..errors import TrellisError
from .data_arguments import arg
from .live import Folder, NoOpen, Port, bound, detector, needed
from .output import counted, say

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
