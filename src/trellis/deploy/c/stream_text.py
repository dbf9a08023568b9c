"""The text of ``stream.h``, ``stream.c`` and ``stream_main.c``: gestures in a stream of frames."""

from __future__ import annotations

import numpy as np

from ..stream import UNITS, Streaming
from ..tables.form import Tables
from .source_text import LICENCE, number, packaged

FILES = ("stream.h", "stream.c", "stream_main.c")


def settings_of(tables: Tables) -> Streaming | None:
    """Return the settings of a stream that a model has, if it names what happens in recordings."""
    recording = tables.notes.get("recording") or {}
    if "stream" not in recording or not tables.notes.get("classes"):
        return None
    return Streaming.from_notes(recording["stream"])


def stream_files(tables: Tables, settings: Streaming) -> dict[str, str]:
    """Return the three files by name."""
    body = packaged("stream.c").replace("@WINDOWS@", ", ".join(map(str, settings.windows)))
    whole = packaged("recording_main.c")
    shared = whole[whole.index("static const char *why") : whole.index("static int add(")]
    parts = packaged("frame.h") + "\n" + packaged("lines.h")
    main = packaged("stream_main.c").replace("@COLUMNS@", shared).replace("@INCLUDES@", parts)
    head = packaged("stream.h").replace("@SETTINGS@", _settings(tables, settings))
    return dict(zip(FILES, (head, body, LICENCE + main), strict=True))


def _settings(tables: Tables, settings: Streaming) -> str:
    recording = tables.notes["recording"]
    scale, longest = np.float32(recording["scale"]), settings.windows[-1]
    farthest = np.float32((2**31 - 1) // -(-longest // recording["chunks"]) - 256)
    nothing = -1 if settings.nothing is None else settings.nothing
    told = {
        "WINDOWS": (len(settings.windows), "lengths of windows"),
        "RING": (f"{longest + 1}u", "the longest window, and one"),
        "NOTHING": (nothing, "the class that is no gesture, or -1"),
        "THRESHOLD": (number(settings.threshold), "the probability at which a gesture starts"),
        "RELEASE": (number(settings.release), "below it, it ends"),
        "HOLD": (settings.hold, "evaluations in a row that decide"),
        "EVERY": (f"{settings.every}u", "frames from one evaluation to the next"),
        "LAG": (f"{settings.lag}u", "frames from the centre of the windows to the last"),
        "APART": (f"{settings.apart}u", "frames after an event without another of its class"),
        "GAP": (f"{settings.gap}u", "frames without a skeleton that are bridged"),
        "UNIT": (number(float(scale / np.float32(UNITS))), "of the sums, in coordinates"),
        "FINER": (number(float(np.float32(UNITS) / scale)), "units in a coordinate of 1"),
        "FARTHEST": (number(float(farthest)), "units that a coordinate may have"),
    }
    return "".join(
        f"#define TRELLIS_{name} {value} /* {about} */\n" for name, (value, about) in told.items()
    )


def stream_readme(settings: Streaming) -> list[str]:
    """Return the section of the README on streams."""
    windows = ", ".join(map(str, settings.windows))
    return [
        "",
        "## Gestures in a stream",
        "",
        f"`stream.h` and `stream.c` find gestures while frames come, in windows of {windows}",
        "frames. There is one event for each gesture, with its start and its end. Nothing is",
        "allocated.",
        "",
        "```sh",
        "cc -std=c99 -O2 -o stream model.c stream.c stream_main.c -lm",
        "./stream < recording.csv     # a line a gesture: class, first and last frame, probability",
        "```",
        "",
        "```c",
        '#include "stream.h"',
        "",
        "static trellis_stream stream;",
        "trellis_event event;",
        "",
        "trellis_stream_begin(&stream);",
        "/* for each frame; NULL where no skeleton was found */",
        "if (trellis_stream_push(&stream, frame, &event) > 0)",
        "    puts(trellis_classes[event.label]);",
        "```",
        "",
        "`sizeof(trellis_stream)` is all the memory. `stream_main.c` takes a frame of zeros for",
        "one without a skeleton.",
    ]
