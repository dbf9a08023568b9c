"""Count the files of the package that a call imports, and those in which it runs a function.

    python bench/walks.py          # a table
    python bench/walks.py --files  # also the files

Functions that run while a module is imported, such as decorators, are not counted as run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src" / "trellis"

# Runs before the call, in a process of its own.
WATCH = """
import atexit, sys, threading

seen, threads = set(), threading.local()

def watch(frame, event, argument):
    code = frame.f_code
    depth = getattr(threads, "depth", 0)
    if code.co_name == "<module>":
        threads.depth = depth + (event == "call") - (event == "return")
    elif event == "call" and depth == 0 and code.co_filename.startswith({src!r}):
        seen.add(code.co_filename)

def done():
    sys.setprofile(None)
    files = {{getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}}
    found = sorted(file for file in files if file.startswith({src!r}))
    with open({out!r}, "w") as file:
        file.writelines(f"{{'run' if name in seen else 'imported'}} {{name}}\\n" for name in found)

atexit.register(done)
"""
# From here on everything is watched; the module with this code is itself no import.
START = """
def main():
    threading.setprofile(watch)
    sys.setprofile(watch)
    {body}
threads.depth = 0
main()
"""

PRUNE = """import torch, trellis
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    trellis.prune(model, torch.zeros(1, 8), sparsity=0.9)"""


def command(*words: str) -> str:
    """The body of a call of the command line.

    >>> command("--help")
    "from trellis.cli import main; main(['--help'])"
    """
    return f"from trellis.cli import main; main({list(words)!r})"


CALLS = {
    "import trellis": "import trellis",
    "trellis --help": command("--help"),
    "trellis shrink --nonsense": command("shrink", "--nonsense"),
    "trellis.prune": PRUNE,
    "trellis shrink": command(
        "shrink", "--data", "hands45", "--sparsity", "0.9", "--course", "quick", "--length", "0.02",
        "--out", "small",
    ),
    "trellis export c": command("export", "c", "small/model", "--out", "device"),
}  # fmt: skip


def walk(body: str, folder: Path) -> dict[str, bool]:
    """Run a call in a folder; return its files, and whether a function of them ran."""
    out = folder / "walk.txt"
    out.unlink(missing_ok=True)
    script = WATCH.format(src=f"{SRC}/", out=str(out)) + START.format(body=body)
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    if not out.exists() or "Traceback" in done.stderr:
        raise RuntimeError(done.stderr)
    found = (line.split(" ", 1) for line in out.read_text().splitlines())
    return {name[len(str(SRC)) + 1 :]: how == "run" for how, name in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", action="store_true", help="list the files")
    listed = parser.parse_args().files
    print(f"{'call':26} {'imported':>8} {'run':>4}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, body in CALLS.items():
            files = walk(body, Path(folder))
            print(f"{name:26} {len(files):8} {sum(files.values()):4}", flush=True)
            for file, ran in files.items() if listed else ():
                print(f"  {'run     ' if ran else 'imported'} {file}", flush=True)


if __name__ == "__main__":
    main()
