"""How long a report takes to write, and to answer a hover: `python bench/page.py`.

Makes up a run of Table 2 whole (fourteen methods, six rates, five seeds of the paper's network on
hands45; networks of random weights), lets `trellis report` write its page a few times, and hovers
over every class and joint of the network at 99 % in a headless Chromium. Prints medians beside
the goals, five seconds and 50 ms. Needs Chromium and playwright, and the tests beside it.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # runs and browser are the tests'

from tests.report.browser import Browser, launched
from tests.report.conftest import Made, full_table

# What a hover takes of the page's own thread: the handler, then styles and layout, which reading a
# box forces.
OWN_TIME = """selector => {
  const took = [];
  for (const mark of document.querySelectorAll(`#network ${selector}`)) {
    const began = performance.now();
    mark.dispatchEvent(new PointerEvent('pointerenter'));
    document.querySelector('#network .picture').getBoundingClientRect();
    document.querySelector('footer').getBoundingClientRect();
    took.push(performance.now() - began);
    mark.dispatchEvent(new PointerEvent('pointerleave'));
  }
  return took;
}"""
# From the event to the frame that shows it, painted.
TO_FRAME = """async selector => {
  const painted = () => new Promise(done => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now());
    channel.port2.postMessage(null);
  }));
  const took = [];
  for (const mark of [...document.querySelectorAll(`#network ${selector}`)].slice(0, 15)) {
    await new Promise(done => setTimeout(done, 40));
    const began = performance.now();
    mark.dispatchEvent(new PointerEvent('pointerenter'));
    took.push(await painted() - began);
    mark.dispatchEvent(new PointerEvent('pointerleave'));
  }
  return took;
}"""


def written(made: Made, out: Path) -> tuple[float, float]:
    """Seconds by the clock and of the processor, for the whole command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = ["-m", "trellis", "report", str(made.folder.path), "--out", str(out)]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    busy = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return ended - began, busy


def hovered(browser: Browser, made: Made, rounds: int) -> None:
    row = next(key for key in made.content["networks"] if key.endswith("@99"))
    with browser.opened(made.page, width=1600) as seen:
        seen.choose(row)
        for selector in (".class-mark", ".joint-mark"):
            for what, script in (("own work", OWN_TIME), ("to the frame", TO_FRAME)):
                took = [ms for _ in range(rounds) for ms in seen.page.evaluate(script, selector)]
                print(
                    f"hover over a {selector[1:6].strip('-')}, {what}: median "
                    f"{statistics.median(took):.1f} ms, slowest {max(took):.1f} (goal 50)"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as name:
        made = full_table(Path(name))
        took = [written(made, Path(name) / "page.html") for _ in range(rounds)]
        clock, busy = (statistics.median(each) for each in zip(*took, strict=True))
        size = (Path(name) / "page.html").stat().st_size / 1e6
        shown = len(made.content["networks"])
        print(f"{shown} networks shown: {clock:.2f} s, {busy:.2f} s of the processor (goal 5)")
        print(f"{size:.2f} MB (goal 3)")
        with launched() as browser:
            hovered(browser, made, rounds)


if __name__ == "__main__":
    main()
