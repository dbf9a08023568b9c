"""What a page works with: the clips, the training under way, and what it made."""

from __future__ import annotations

import io
import json
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import trellis

from ..deploy.wasm import Clip as Shown
from ..deploy.wasm import Scene
from ..errors import TrellisError
from ..files import replacing
from ..skeleton import Recognizer
from ..skeleton.data.dataset import branches, turn_of
from .clips import LAYOUT, NOTHING, RATE, Clips
from .training import Take, Trained, train

_SHOWN = 6  # clips in the page that can be taken away
_MADE = ("model.wasm", "gestures.html", "gestures-c.zip")
_ABOUT = "results.json"


class Stopped(Exception):
    """Training was stopped by the user."""


class Session:
    """One run of ``trellis live``.

    Args:
        folder: Where clips and models are kept.
        hands: The folder of the hand detector.
        length: A factor on the length of training.

    Attributes:
        clips: The clips, in ``clips/`` of the folder.
    """

    def __init__(self, folder: Path, hands: Path, length: float = 1.0) -> None:
        self.folder, self.hands, self.length = folder, hands, length
        self.clips = Clips(folder / "clips")
        self._page = ""
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._training: dict[str, Any] = {"state": "none"}
        self._model, self._content = made_before(folder)

    def open(self, page: str) -> None:
        """Give the session to a page; an older page then shows that it is not current."""
        self._page = page

    def state(self, page: str) -> dict[str, Any]:
        """Return everything that a page shows."""
        with self._lock:
            return {
                "mine": page == self._page,
                "folder": str(self.clips.folder),
                "session": self.clips.session,
                "gestures": self.clips.summary(),
                "training": dict(self._training),
                "model": self._model,
                "joints": list(LAYOUT.joints),
                "bones": [list(bone) for bone in LAYOUT.bones],
                "branches": branches(LAYOUT),
                "rate": RATE,
                "nothing": NOTHING,
            }

    def frames(self, file: Any) -> list[list[float]]:
        """Return a clip's frames, for a replay."""
        found = next((clip for clip in self.clips.clips if clip.file == file), None)
        if found is None:
            raise TrellisError("the clip does not exist")
        frames = self.clips.frames(found)
        rows: list[list[float]] = (
            np.round(frames.astype(float), 5).reshape(len(frames), -1).tolist()
        )
        return rows

    def train(self) -> None:
        """Start training in a thread."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                raise TrellisError("training is under way already")
            self._stop.clear()
            self._training = {"state": "running", "phase": "reading the clips", "share": 0.0}
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop training, and wait for its end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)

    def made(self, name: str) -> bytes:
        """Return a file that training made."""
        with self._lock:
            if name not in self._content:
                raise KeyError(name)
            return self._content[name]

    def _tell(self, phase: str, share: float) -> None:
        if self._stop.is_set():
            raise Stopped
        with self._lock:
            self._training = {"state": "running", "phase": phase, "share": round(share, 4)}

    def _run(self) -> None:
        began = time.monotonic()
        try:
            takes = [Take(c.name, c.session, self.clips.frames(c)) for c in self.clips.clips]
            done = train(
                takes, LAYOUT, nothing=NOTHING, length=self.length,
                progress=lambda phase, share: self._tell(phase, 0.9 * share),
            )  # fmt: skip
            self._tell("building C and WebAssembly", 0.92)
            content, sizes = exported(done.recognizer, takes)
            model = described(done, takes) | sizes
            model["number"] = time.time_ns()
            model["seconds"] = round(time.monotonic() - began, 1)
            self._save(done.recognizer, content | {_ABOUT: json.dumps(model).encode()})
            with self._lock:
                self._model, self._content = model, content
                self._training = {"state": "done", "share": 1.0}
        except Stopped:
            self._training = {"state": "stopped"}
        except TrellisError as error:
            self._training = {"state": "failed", "why": str(error)}
        except Exception as error:
            self._training = {"state": "failed", "why": f"{type(error).__name__}: {error!s:.300}"}

    def _save(self, recognizer: Recognizer, content: dict[str, bytes]) -> None:
        """Write the model and the files to take away, in place of the last ones."""
        recognizer.save(self.folder / "model")
        paths = [self.folder / name for name in content]
        with replacing(*paths) as drafts:
            for draft, each in zip(drafts, content.values(), strict=True):
                draft.write_bytes(each)


def made_before(folder: Path) -> tuple[dict[str, Any] | None, dict[str, bytes]]:
    """Return what the last training in a folder made: what the page tells of it, and its files."""
    try:
        model = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        content = {name: (folder / name).read_bytes() for name in _MADE}
    except (OSError, ValueError, RecursionError):
        return None, {}
    return (model, content) if isinstance(model, dict) else (None, {})


def described(done: Trained, takes: list[Take]) -> dict[str, Any]:
    """Return what a page tells of a model."""
    evaluation = done.evaluation
    settings = done.recognizer.streaming
    assert settings is not None
    return {
        "classes": list(done.recognizer.classes),
        "windows": list(settings.windows),
        "threshold": settings.threshold,
        "kept": done.kept,
        "total": done.total,
        "accuracy": evaluation.top1,
        "judged": evaluation.recordings,
        "bySession": done.by_session,
        "sessions": len({take.session for take in takes}),
        "events": done.events_f1,
        "confusions": [vars(each) for each in evaluation.confusions()],
        "record": [{"name": name, "why": why} for name, why in done.record],
    }


def exported(recognizer: Recognizer, takes: list[Take]) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the files to take away, and sizes in bytes."""
    network = recognizer.network()
    example = torch.zeros(1, len(recognizer.layout.joints), 3 * recognizer.chunks)
    own = [take for take in takes if take.name != NOTHING]
    first: dict[str, Take] = {take.name: take for take in own}
    picked = [*first.values(), *own][:_SHOWN]
    clips = [Shown(f"clip {i}", take.frames, take.name) for i, take in enumerate(picked, 1)]
    scene = Scene(
        clips, recognizer.layout.bones, branches(recognizer.layout),
        turn_of(recognizer.layout).tolist(), RATE, "your clips",
    )  # fmt: skip
    about: dict[str, Any] = {"classes": recognizer.classes, "recording": recognizer.recording}
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        wasm = trellis.export_wasm(
            network, example, place / "wasm", scene=scene, title="Gestures", **about
        )
        c = trellis.export_c(network, example, place / "c", **about)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted((place / "c").iterdir()):
                file.writestr(f"gestures-c/{path.name}", path.read_bytes())
        content = {
            "model.wasm": (place / "wasm" / "model.wasm").read_bytes(),
            "gestures.html": (place / "wasm" / "index.html").read_bytes(),
            "gestures-c.zip": packed.getvalue(),
        }
    sizes = {"wasm": wasm.wasm, "flash": c.flash, "ram": c.ram, "weights": c.weights,
             "multiplications": c.uses}  # fmt: skip
    return content, sizes
