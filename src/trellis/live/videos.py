"""Clips from video files: what the page of ``trellis record`` works with.

The browser plays the videos and finds the hand in them, as it does with a camera. Clips of a video
are held until its end, and written together: a page that is closed in the middle leaves no half.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from ..errors import TrellisError
from ..skeleton import Frames
from ..skeleton.data.dataset import branches
from .clips import LAYOUT, LONGEST, MOST, RATE, Clips, checked_frames, checked_name
from .server import answered, body_of


@dataclass(eq=False)
class Video:
    """A video file and what became of it.

    Attributes:
        path: The file.
        gesture: The gesture that it shows.
        clips: How many clips of it were kept.
        left_out: Why parts of it, or all of it, were not kept.
        over: Whether it has been read.
    """

    path: Path
    gesture: str
    clips: int = 0
    left_out: list[str] = field(default_factory=list)
    over: bool = False


class Videos:
    """One run of ``trellis record``.

    Args:
        paths: The video files.
        clips: Where clips are written.
        gesture: The gesture that all videos show (default: the name of each file's folder).
        cut: The length of a clip in seconds (default: a video is one clip).
        told: Called with each video that has been read.

    Attributes:
        videos: The videos.
        ended: Set when all have been read.

    Raises:
        TrellisError: A file is missing, or a name or a length is invalid.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        clips: Clips,
        gesture: str | None = None,
        cut: float | None = None,
        told: Callable[[Video], None] = lambda video: None,
    ) -> None:
        if cut is not None and not 5 / RATE <= cut <= LONGEST / RATE:
            raise TrellisError(
                f"expected clips of {5 / RATE:.2f} to {LONGEST // RATE} seconds, got {cut:g}"
            )
        if not paths:
            raise TrellisError("expected a video file or more, got none")
        self.videos: list[Video] = []
        for path in paths:
            if not path.is_file():
                raise TrellisError(f"{str(path)!r:.200} is not a file")
            name = path.absolute().parent.name if gesture is None else gesture
            self.videos.append(Video(path, checked_name(name)))
        self.clips, self.told = clips, told
        self.cut = None if cut is None else round(cut * RATE)
        self.ended = threading.Event()
        self._held: dict[int, list[Frames]] = {}
        self._page = ""

    def open(self, page: str) -> dict[str, Any]:
        """Give the videos that are left to a page, and return what it shows."""
        self._page = page
        self._held.clear()
        return {
            "videos": [
                {"name": each.path.name, "gesture": each.gesture, "over": each.over}
                for each in self.videos
            ],
            "cut": self.cut,
            "longest": LONGEST,
            "rate": RATE,
            "bones": [list(bone) for bone in LAYOUT.bones],
            "branches": branches(LAYOUT),
        }

    def add(self, number: int, page: Any, frames: Any) -> None:
        """Check a clip of a video, and hold it until the video's end."""
        video = self._video(number, page)
        held = self._held.setdefault(number, [])
        if len(held) >= MOST:
            raise TrellisError(f"expected at most {MOST} clips of a video; cut longer ones")
        try:
            held.append(checked_frames(frames))
        except TrellisError as error:
            video.left_out.append(str(error))
            raise

    def end(self, number: int, page: Any, why: Any = None) -> int:
        """Write the clips of a video, and return their number.

        Args:
            number: The video.
            page: The page that read it.
            why: Why it could not be read to its end, in words.
        """
        video = self._video(number, page)
        if why is not None:
            video.left_out.append(str(why)[:300])
        for frames in self._held.pop(number, []):
            self.clips.add(video.gesture, frames.reshape(len(frames), -1).tolist())
            video.clips += 1
        video.over = True
        self.told(video)
        if all(each.over for each in self.videos):
            self.ended.set()
        return video.clips

    def _video(self, number: int, page: Any) -> Video:
        if page != self._page:
            raise TrellisError("this page is open elsewhere; close one of them")
        if number >= len(self.videos) or self.videos[number].over:
            raise TrellisError("there is no such video")
        return self.videos[number]


def routes_of(videos: Videos) -> list[Route]:
    """Return what the page of ``trellis record`` asks for."""

    async def opened(request: Request) -> Response:
        return answered(videos.open(str((await body_of(request)).get("page", ""))[:80]))

    async def file(request: Request) -> Response:
        number: int = request.path_params["number"]
        if number >= len(videos.videos):
            raise KeyError(number)
        return FileResponse(videos.videos[number].path)

    async def add(request: Request) -> Response:
        given = await body_of(request)
        number = request.path_params["number"]
        videos.add(number, given.get("page"), given.get("frames"))
        return answered({})

    async def end(request: Request) -> Response:
        given = await body_of(request)
        number = request.path_params["number"]
        kept = await run_in_threadpool(videos.end, number, given.get("page"), given.get("why"))
        return answered({"clips": kept})

    return [
        Route("/open", opened, methods=["POST"]), Route("/videos/{number:int}", file),
        Route("/videos/{number:int}/clip", add, methods=["POST"]),
        Route("/videos/{number:int}/end", end, methods=["POST"]),
    ]  # fmt: skip
