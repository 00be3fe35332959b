"""Take pictures of every page of the dashboard, in light and dark, for the documentation.

    python tools/screenshots.py                     start the demo, let it work for some minutes, take all pictures
    python tools/screenshots.py --minutes 1         the same, with less to see
    python tools/screenshots.py --at ADDRESS        of a demo that runs already: mainspring demo --stay
    python tools/screenshots.py jobs job            only of these pages; the first page is called overview
    python tools/screenshots.py --check             take none, and say which are missing

It needs the extras dashboard and test, and a Chromium. Pages are those of mainspring.web.pages; a new one needs a row in
SAID, and in ABOUT if it has to be told what to show. The pictures are in docs/assets/screenshots, and
docs/reference/dashboard-tour.md, which is written here too, shows them.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, Literal
from urllib.parse import quote
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

from mainspring.web.pages import ALL

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/assets/screenshots"
TOUR = ROOT / "docs/reference/dashboard-tour.md"
LOOKS: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTH, HEIGHT = 1360, 860
MOST = 250_000
"""Bytes of one picture."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

Look = Callable[[str], Any]


def named(path: str) -> str:
    return path or "overview"


def pictures() -> list[str]:
    """Name the files that there have to be."""
    return [f"{named(page.path)}-{look}.png" for page in ALL for look in LOOKS]


# What the tour says about each page.

FRONT = """\
# The dashboard, page by page

What [the dashboard](../how-to/dashboard.md) shows, with the data of `mainspring demo`: a little shop in which something \
goes wrong on purpose. The pictures follow the colours of this page, as the dashboard follows those of your system.
"""
SECTION = """
{mark} {title}

![{title}](../assets/screenshots/{name}-light.png#only-light)
![{title}](../assets/screenshots/{name}-dark.png#only-dark)

{words}
"""
SAID = {
    "": "How the store has been doing in the last quarter of an hour, hour, six hours or day: what needs a person, how much waits and for how "
    "long, rates, the busiest tasks, waits and run times, and errors by class.",
    "jobs": "All jobs, the newest first, by state, queue, task, key, tag, error, age or argument. Some of them, or all that "
    "match, can be retried, cancelled, run now or deleted at once, after a preview.",
    "job": "Everything that is kept of one: every change of its state, attempts with tracebacks and lines of the log, "
    "progress, saved state, the lease and its node, and where it came from: a schedule's slot, a message, another job.",
    "queues": "How full each queue is and what happened in it in the last hour. A queue can be paused, with a reason, and "
    "how many of its jobs run at a time can be changed while they do.",
    "schedules": "Every rule in words, when it comes next, and how its last runs went.",
    "schedule": "The next slots on the clocks of its zone and in UTC, with changes of clocks marked, and what became of past "
    "ones, with the reason where one made no job. It can be run now, paused, and backfilled.",
    "nodes": "The processes that do the work: heartbeat, memory, how many jobs each runs and could run.",
    "node": "What one of them runs, with its leases. It can be told to take no more jobs, to stop, to run more or fewer at a "
    "time, and to show where the code of a running job is.",
    "services": "The loops that run beside jobs: what each is at, what it said last, and what its last error was. Those in "
    "trouble are named above all of them, and keep their places.",
    "outboxes": "How far delivery is behind, partition by partition, and how many messages were given up.",
    "letters": "Messages that were given up, each with its error, to be delivered again or discarded.",
    "breakers": "Tasks that are held back because they kept failing, since when, and why. A breaker can be opened and closed "
    "by hand.",
    "breaker": "The last changes of one breaker, each with the job or the person that made it.",
    "plugins": "What is installed, what each plugin brings, and what it may do.",
    "audit": "Who had what done, to what and to how many, and what was refused.",
}


def tour() -> str:
    """Write the page of the documentation."""
    if missing := [named(page.path) for page in ALL if page.path not in SAID]:
        raise SystemExit(f"Say something about {', '.join(missing)}, in SAID of tools/screenshots.py.")
    sections = [
        SECTION.format(
            mark="##" if page.icon else "###", title=page.title, name=named(page.path), words=SAID[page.path]
        )
        for page in ALL
    ]
    return FRONT + "".join(sections)


# What is shown on pages that are about one thing.


def a_job(look: Look) -> str:
    """Choose one that runs: it has a parent, a progress bar and saved state."""
    for _ in range(100):
        running = look("jobs/list?task=photo.resize&state=running")["jobs"]
        for one in running:
            if one["payload"]["args"]["width"] > 1000 and 20 < (one["progress"] or {"percent": 0})["percent"] < 60:
                return f"id={one['id']}"
        time.sleep(0.2)
    raise SystemExit("No picture is being made; does the demo still run?")


def a_node(look: Look) -> str:
    alive = [one["id"] for one in look("nodes/list")["nodes"] if one["alive"]]
    return f"id={quote(alive[0])}"


ABOUT: dict[str, Callable[[Look], str]] = {
    "": lambda _: "minutes=15",
    "job": a_job,
    "schedule": lambda _: "name=stock-count",
    "node": a_node,
    "letters": lambda _: "outbox=orders",
    "breaker": lambda _: "task=payment.charge",
}


@contextmanager
def demo(minutes: float) -> Iterator[str]:
    """Have the demo run; gives its address when it has worked for so long."""
    command = [sys.executable, "-u", "-m", "mainspring", "demo", "--stay"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        told = process.stdout or ()
        try:
            address = next((found[1] for line in told if (found := re.search(r"browser: (http\S+)$", line))), "")
            if not address:
                raise SystemExit("The demo serves no dashboard; install the extra: pip install -e .[dashboard]")
            print(f"The demo is at {address}, and is left alone for {minutes:g} min.", flush=True)
            time.sleep(60 * minutes)
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def take(address: str, names: Sequence[str]) -> int:
    """Take the pictures; returns how many pages had something to complain about."""

    def look(what: str) -> Any:  # noqa: ANN401 - as JSON has it
        with urlopen(f"{address}api/v1/{what}", timeout=30) as answer:  # noqa: S310 - our own address
            return json.load(answer)

    complaints: list[str] = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    chosen = [page for page in ALL if not names or named(page.path) in names]
    chromium = next(filter(None, map(which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in chosen:
            for scheme in LOOKS:
                tell = ABOUT.get(page.path)
                about = f"?{tell(look)}" if tell else ""
                tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
                tab.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
                answer = tab.goto(f"{address}{page.path}{about}")
                if answer is None or not answer.ok:
                    complaints.append(f"{named(page.path)} answers {answer and answer.status}")
                tab.locator("h1").wait_for()
                tab.wait_for_timeout(1500)  # the chart is drawn, and "live" is said
                path = FOLDER / f"{named(page.path)}-{scheme}.png"
                tab.screenshot(path=path, animations="disabled")
                size = path.stat().st_size
                print(f"{path.name}: {size // 1000} kB")
                if size > MOST:
                    complaints.append(f"{path.name} has {size:,} bytes")
                tab.close()
        browser.close()
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return len(complaints)


def check() -> int:
    there = {path.name for path in FOLDER.glob("*.png")}
    for name in (missing := [name for name in pictures() if name not in there]):
        print(f"{name} is missing")
    for name in (left := sorted(there - set(pictures()))):
        print(f"{name} is of no page")
    return len(missing) + len(left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="only these")
    parser.add_argument("--at", metavar="ADDRESS", help="of a demo that runs already")
    parser.add_argument("--minutes", type=float, default=5, help="for how long the demo works first")
    parser.add_argument("--check", action="store_true", help="take none")
    given = parser.parse_args()
    if given.check:
        return bool(check())
    if unknown := set(given.pages) - {named(page.path) for page in ALL}:
        raise SystemExit(f"There is no page {', '.join(sorted(unknown))}.")
    TOUR.write_text(tour(), encoding="utf-8")
    if given.at:
        return bool(take(given.at.rstrip("/") + "/", given.pages))
    with demo(given.minutes) as address:
        return bool(take(address, given.pages))


if __name__ == "__main__":
    sys.exit(main())
