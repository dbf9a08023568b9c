"""The server of ``trellis live``: only the page that was opened may read or write anything."""

from __future__ import annotations

import functools
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the extra: pip install 'trellis-prune[live]'")
pytest.importorskip("uvicorn", reason="needs the extra: pip install 'trellis-prune[live]'")

from tests.live.camera import served
from trellis.errors import TrellisError
from trellis.live.clips import JOINTS, LAYOUT, Clips
from trellis.live.session import Session
from trellis.live.training import Take, train
from trellis.skeleton import load_dataset

HOSTILE = (
    "../../etc/passwd", "</script><script>alert(1)</script>", "..", "a/b\\c", 'x,"y";z',
    "=cmd()", "CON", "👋🏽 wave", "-rf", "%2e%2e%2f", "labels.csv", ".hidden",
)  # fmt: skip


@functools.cache
def pose() -> Any:
    """A hand in a picture."""
    hand = load_dataset("hands45").sequences[0][0]
    return (hand - hand[0]) / 800 + 0.5


def motion(seed: int, frames: int = 24, turns: tuple[float, float] = (1, 0)) -> list[list[float]]:
    """A hand that goes round, as a page sends it."""
    random = np.random.default_rng(seed)
    hand = pose()
    time = np.linspace(0, 2 * np.pi * 2, frames)[:, None]
    path = 0.2 * np.sin(time + random.normal()) * np.array([[*turns, 0]])
    places = hand + path[:, None] + 0.003 * random.normal(size=(frames, JOINTS, 3))
    return np.round(places.reshape(frames, -1), 5).tolist()


class Client:
    """Requests to a server, with any headers."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname == "127.0.0.1" and parts.port is not None
        self.port, self.base = parts.port, parts.path
        self.origin = f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        whole: bool = False,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        own = {"Origin": self.origin} if content is not None else {}
        own |= headers or {}
        own = {name: value for name, value in own.items() if value}
        try:
            connection.request(
                "GET" if content is None else "POST", path if whole else self.base + path,
                content, own,
            )  # fmt: skip
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def both(place: Path) -> Iterator[tuple[Client, Session]]:
    with served(place / "own", place / "no-detector") as (address, session):
        yield Client(address), session


CHANGES = ("clips", "clips/remove", "clips/frames", "train", "stop", "open")


def test_without_the_token_nothing_answers(both: tuple[Client, Session]) -> None:
    client, session = both
    token = client.base.strip("/")
    for path in ("/", "/state", "/page.js", f"/{token}", f"/{token[:-1]}/state", f"/{token}x/state",
                 f"//{token}/state", "/state/../" + token, f"/{token.swapcase()}/"):  # fmt: skip
        status, content, _ = client.ask(path, whole=True)
        assert status in (403, 404) and content == b""
    for path in CHANGES:
        status, content, _ = client.ask(f"/{path}", {}, whole=True)
        assert status in (403, 404) and content == b""
    assert client.ask("state")[0] == 200 and not session.clips.clips


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.org"}, {"Origin": "null"}, {"Host": "example.org"},
        {"Host": "127.0.0.1.nip.io"}, {"Host": "127.0.0.1"}, {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://127.0.0.1:1"},
    ],
)  # fmt: skip
def test_another_site_reaches_nothing_even_with_the_token(
    both: tuple[Client, Session], headers: dict[str, str]
) -> None:
    client, session = both
    asked: list[tuple[str, Any]] = [("state", None), ("", None), *((path, {}) for path in CHANGES)]
    for path, body in asked:
        status, content, answered = client.ask(path, body, headers=headers)
        assert status == 403 and content == b""
        assert "access-control-allow-origin" not in {name.lower() for name in answered}
    assert (
        client.ask("clips", {}, headers={"Origin": ""})[0] == 403
    )  # a change must say where it comes from
    assert not session.clips.clips


def test_every_answer_forbids_what_pages_do_not_need(both: tuple[Client, Session]) -> None:
    client, _ = both
    for path in ("", "page.js", "state", "nowhere", "hands/hands.js"):
        _, _, headers = client.ask(path)
        found = {name.lower(): value for name, value in headers.items()}
        policy = found["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy and "'unsafe-eval'" not in policy
        assert found["referrer-policy"] == "no-referrer" and found["cache-control"] == "no-store"
        assert found["x-content-type-options"] == "nosniff"


def test_only_files_of_the_page_are_served(both: tuple[Client, Session]) -> None:
    client, _ = both
    assert b"Gestures" in client.ask("")[1] and client.ask("model.js")[0] == 200
    for path in (
        "server.py", "../server.py", "%2e%2e/server.py", "hands/../page.js", "made/x.zip",
        "made/model.wasm", "hands/package.json", "hands/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    ):  # fmt: skip
        status, content, _ = client.ask(path)
        assert status in (400, 404) and b"import" not in content


def test_uploads_are_bounded_and_checked(both: tuple[Client, Session]) -> None:
    client, session = both
    good = motion(0)
    assert client.ask("clips", b"x" * (3 << 20))[0] == 400
    assert client.ask("clips", b"[" * 100_000)[0] == 400
    refused: list[Any] = [
        {"name": "", "frames": good}, {"name": "a\nb\x00", "frames": good}, {"name": 7},
        {"name": "w" * 61, "frames": good}, {"name": "wave", "frames": good[:3]},
        {"name": "wave", "frames": good * 60}, {"name": "wave", "frames": "x"}, [], None,
        {"name": "wave", "frames": [[1.0] * 62] * 24}, {"name": "wave", "frames": [None] * 24},
        {"name": "wave", "frames": [["1"] * 63] * 24},
        {"name": "wave", "frames": [[1e9] * 63] * 24},
        {"name": "wave", "frames": [[True] * 63] * 24},
        {"name": "wave", "frames": [[{}] * 63] * 24},
    ]  # fmt: skip
    for bad in refused:
        status, content, _ = client.ask("clips", json.dumps(bad).encode())
        assert status == 400 and json.loads(content)["error"]
    nan = b'{"name": "wave", "frames": [' + b",".join([b"[" + b",".join([b"NaN"] * 63) + b"]"] * 24)
    assert client.ask("clips", nan + b"]}")[0] == 400
    files: list[Any] = ["../own/clips/labels.csv", "labels.csv", "/etc/passwd", None, {}, 3]
    for file in files:
        assert client.ask("clips/remove", {"file": file})[0] == 400
        assert client.ask("clips/frames", {"file": file})[0] == 400
    assert not session.clips.clips


def test_hostile_names_stay_names(both: tuple[Client, Session], place: Path) -> None:
    client, session = both
    before = sorted(path for path in place.rglob("*") if "own" not in path.parts)
    for number, name in enumerate(HOSTILE):
        for take in range(1 + (number < 2)):
            body = {"name": name, "frames": motion(10 * number + take)}
            assert client.ask("clips", body)[0] == 200
    folder = session.clips.folder
    assert sorted(path for path in place.rglob("*") if "own" not in path.parts) == before
    assert {path.name for path in folder.iterdir() if path.is_file()} == {
        "labels.csv",
        "layout.json",
    }
    data = load_dataset(f"csv:{folder}")
    assert set(data.classes) == set(HOSTILE) and len(data) == len(HOSTILE) + 2
    assert [clip.name for clip in Clips(folder).clips] == [c.name for c in session.clips.clips]
    for clip in list(session.clips.clips):
        status, content, _ = client.ask("clips/frames", {"file": clip.file})
        assert status == 200 and len(json.loads(content)["frames"]) == 24
        assert client.ask("clips/remove", {"file": clip.file})[0] == 200
    assert {path.name for path in folder.iterdir()} == {"labels.csv", "layout.json"}


def test_frames_without_a_hand_are_filled_in(both: tuple[Client, Session]) -> None:
    client, session = both
    whole = motion(3)
    holes: list[Any] = [None, *whole[1:]]
    holes[10] = holes[11] = None
    [file] = [json.loads(client.ask("clips", {"name": "wave", "frames": holes})[1])["file"]]
    found = session.frames(file)
    assert len(found) == 23 and np.isfinite(found).all()
    np.testing.assert_allclose(found[8], whole[9], atol=1e-4)
    session.clips.remove(file)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(TrellisError, match=r"thesis\.tex"):
        Clips(tmp_path)
    (tmp_path / "labels.csv").write_text("file,label\n../../x.csv,wave\n")
    with pytest.raises(TrellisError, match="trellis live"):
        Clips(tmp_path)


def test_clips_train_a_network_that_is_exported(both: tuple[Client, Session]) -> None:
    """Through the server alone: two gestures and nothing become C, WebAssembly and a page."""
    client, session = both
    session.length = 0.2
    for name, turns in (("side", (1.0, 0.0)), ("up", (0.0, 1.0)), ("nothing", (0.0, 0.0))):
        for take in range(3):
            body = {"name": name, "frames": motion(take, turns=turns)}
            assert client.ask("clips", body)[0] == 200
    assert client.ask("train", {})[0] == 200
    assert client.ask("train", {})[0] == 400  # under way already
    end = time.monotonic() + 120
    shares = []
    while (state := json.loads(client.ask("state")[1]))["training"]["state"] == "running":
        shares.append(state["training"]["share"])
        assert time.monotonic() < end
        time.sleep(0.2)
    assert state["training"]["state"] == "done", state["training"]
    assert shares == sorted(shares)
    model = state["model"]
    assert model["classes"] == ["nothing", "side", "up"] and not model["bySession"]
    assert model["judged"] == 6 and 0 <= model["accuracy"] <= 1
    assert {each["name"] for each in model["record"]} == {"side", "up"}  # three clips are few
    assert client.ask("made/model.wasm")[1][:4] == b"\0asm"
    status, page, headers = client.ask("made/gestures.html")
    assert status == 200 and b"<!doctype html>" in page
    assert headers["content-disposition"].startswith("attachment")
    assert client.ask("made/gestures-c.zip")[1][:2] == b"PK"
    assert 0 < model["threshold"] < 1
    again = Session(session.folder, session.hands)  # another start of the command
    assert again.state("")["model"] == model
    assert again.made("gestures.html") == page
    (session.folder / "results.json").write_text("[")
    assert Session(session.folder, session.hands).state("")["model"] is None


def test_whole_sessions_are_left_out_where_there_are_several() -> None:
    takes = [
        Take(name, session, np.array(motion(session * 9 + take, turns=turns), np.float32)
             .reshape(-1, JOINTS, 3))
        for name, turns in (("side", (1.0, 0.0)), ("up", (0.0, 1.0)), ("nothing", (0.0, 0.0)))
        for session in (1, 2) for take in range(2)
    ]  # fmt: skip
    found = train(takes, LAYOUT, length=0.1)
    assert found.by_session and found.evaluation.recordings == 8
    with pytest.raises(TrellisError, match="two gestures"):
        train([take for take in takes if take.name != "up"], LAYOUT)
    with pytest.raises(TrellisError, match="nothing"):
        train([take for take in takes if take.name != "nothing"], LAYOUT)
