"""`trellis record`: video files become clips, through the page of a real Chromium."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the extra: pip install 'trellis-prune[live]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'trellis-prune[live]'")

from tests.deploy.tools import tool
from tests.live.camera import browsing, detector, film, photo
from tests.live.test_server import motion
from trellis.errors import TrellisError
from trellis.live.clips import JOINTS, LONGEST, Clips
from trellis.live.videos import Video, Videos
from trellis.skeleton import load_dataset


def encoded(source: list[str], target: Path, seconds: float) -> Path:
    """A video that Chromium plays."""
    target.parent.mkdir(exist_ok=True)
    codec = ["-t", str(seconds), "-c:v", "libvpx", "-b:v", "2M", "-deadline", "realtime"]
    words = [tool("ffmpeg"), "-v", "error", "-y", *source, *codec, "-an", str(target)]
    subprocess.run(words, check=True, timeout=120)
    return target


def test_videos_become_clips_that_every_command_reads(tmp_path: Path) -> None:
    detector()
    moving = film(tmp_path / "film.mjpeg", photo("thumb_up.jpg"), parts=1)
    wave = encoded(["-f", "mjpeg", "-r", "15", "-i", str(moving)], tmp_path / "side" / "1.webm", 3)
    empty = encoded(["-f", "lavfi", "-i", "color=c=gray:s=320x240"], tmp_path / "no" / "2.webm", 1)
    broken = tmp_path / "no" / "3.webm"
    broken.write_text("not a video")
    command = [sys.executable, "-m", "trellis", "record", str(tmp_path / "own"), "--no-open"]
    command += ["--cut", "1.4", "--video", *map(str, (empty, wave, broken))]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run, browsing(None) as context:  # fmt: skip
        assert run.stdout is not None
        address = run.stdout.readline().split()[-1]
        complaints: list[str] = []
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        out, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
        assert complaints == []
    assert "2 clips in" in out and "2 clips of side" in out
    assert "the hand was seen in 0 of" in out and "cannot play it" in out
    data = load_dataset(f"csv:{tmp_path / 'own' / 'clips'}")
    assert data.classes == ("side",) and [len(frames) for frames in data.sequences] == [21, 21]
    # The hand of the film goes 110 of 640 pixels to either side, and back, in 1.4 seconds.
    across = data.sequences[0][:, 9, 0]
    assert 0.25 < across.max() - across.min() < 0.45
    assert np.abs(data.sequences[0][:, 9] - data.sequences[1][:, 9]).max() < 0.08


def test_a_video_is_written_at_its_end_or_not_at_all(tmp_path: Path) -> None:
    paths = [tmp_path / "wave" / name for name in ("a.mp4", "b.mp4")]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_bytes(b"")
    seen: list[Video] = []
    videos = Videos(paths, Clips(tmp_path / "clips"), told=seen.append)
    first = videos.open("one")["videos"]
    assert [(v["name"], v["gesture"]) for v in first] == [("a.mp4", "wave"), ("b.mp4", "wave")]
    videos.add(0, "one", motion(0))
    videos.open("two")  # another page took over in the middle
    with pytest.raises(TrellisError, match="open elsewhere"):
        videos.add(0, "one", motion(1))
    with pytest.raises(TrellisError, match="open elsewhere"):
        videos.end(0, "one")
    videos.add(0, "two", motion(2))
    with pytest.raises(TrellisError, match="0 of 9 frames"):
        videos.add(0, "two", [None] * 9)
    assert not videos.clips.clips
    assert videos.end(0, "two") == 1 and not videos.ended.is_set()
    with pytest.raises(TrellisError, match="no such video"):
        videos.end(0, "two")
    assert videos.open("three")["videos"][0]["over"]
    videos.end(1, "three", "it has no picture")
    assert videos.ended.is_set() and [video.clips for video in seen] == [1, 0]
    assert seen[0].left_out == ["the hand was seen in 0 of 9 frames only; keep it in the picture"]
    [clip] = videos.clips.clips
    kept = np.array(motion(2), np.float32).reshape(-1, JOINTS, 3)
    np.testing.assert_allclose(videos.clips.frames(clip), kept, atol=1e-6)


def test_what_cannot_be_recorded_is_said_before_the_page_opens(tmp_path: Path) -> None:
    clips = Clips(tmp_path / "clips")
    with pytest.raises(TrellisError, match=r"gone\.mp4"):
        Videos([tmp_path / "gone.mp4"], clips)
    here = tmp_path / "here.mp4"
    here.write_bytes(b"")
    for cut in (0.0, float("nan"), 0.1, LONGEST):
        with pytest.raises(TrellisError, match="seconds"):
            Videos([here], clips, "wave", cut)
    with pytest.raises(TrellisError, match="a name of"):
        Videos([here], clips, " ")
    with pytest.raises(TrellisError, match="video file"):
        Videos([], clips)
