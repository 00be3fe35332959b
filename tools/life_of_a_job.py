"""Draw the life of a job, as a picture and as a table, from the steps in mainspring.core.machine.

Writes docs/explanation/life-of-a-job.svg, and the table within docs/explanation/life-of-a-job.md. The arrows are those
of `TRANSITIONS`; only where they run is chosen by hand, in `ROUTES`. A step without a route raises `NoPlace`.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from mainspring.core.job import FINISHED, WAITING, State
from mainspring.core.machine import GONE, NEW, TRANSITIONS, Event, Transition

CHECKOUT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = Path("docs/explanation/life-of-a-job.svg")
PAGE: Final = Path("docs/explanation/life-of-a-job.md")
BEGIN: Final = "<!-- table: begin -->"
END: Final = "<!-- table: end -->"


class NoPlace(Exception):
    """The table has an arrow that the picture has no room for."""


# Where things are. All lines are level or upright; y grows downwards.

WIDTH: Final = 872
HEIGHT: Final = 508
LINE_HEIGHT: Final = 17  # of labels that share an arrow
CORNER: Final = 9

Point = tuple[int, int]


class Box(NamedTuple):
    left: int
    top: int
    width: int
    height: int


class Frame(NamedTuple):
    """States that are drawn together: what all of them do is one arrow, from the frame."""

    box: Box
    states: tuple[State, ...]


ITSELF: Final = "itself"
FRAMES: Final = {
    "waiting": Frame(Box(128, 92, 144, 280), WAITING),
    "finished": Frame(Box(636, 92, 144, 280), FINISHED),
}
BOXES: Final = {
    State.READY: Box(144, 148, 112, 44),
    State.SCHEDULED: Box(144, 228, 112, 44),
    State.RETRYING: Box(144, 308, 112, 44),
    State.RUNNING: Box(408, 92, 112, 280),
    State.SUCCEEDED: Box(652, 148, 112, 44),
    State.FAILED: Box(652, 228, 112, 44),
    State.CANCELLED: Box(652, 308, 112, 44),
}
START_DOT: Final = Box(24, 162, 16, 16)
END_MARK: Final = Box(732, 436, 20, 20)

Ends = tuple[str, str]
"""Where an arrow begins and where it ends: states, frames, `NEW`, `GONE`, or `ITSELF` for where it began."""


class Route(NamedTuple):
    """How an arrow runs, and where the last of its labels stands; earlier ones stand above it."""

    way: tuple[Point, ...]
    label: Point
    anchor: str = "middle"
    room: int = 1
    """How many labels fit."""
    joins: Ends | None = None
    """The arrow that this one runs into, to share the rest of its way."""


ROUTES: Final[dict[Ends, Route]] = {
    (NEW, State.READY): Route(((40, 170), (144, 170)), (88, 162)),
    (NEW, State.SCHEDULED): Route(((32, 178), (32, 250), (144, 250)), (88, 242), room=2),
    ("waiting", ITSELF): Route(((128, 318), (56, 318), (56, 342), (128, 342)), (90, 310), room=2),
    ("waiting", State.RUNNING): Route(((272, 116), (408, 116)), (340, 108), room=2),
    (State.RUNNING, State.READY): Route(((408, 170), (256, 170)), (340, 162), room=2),
    (State.RUNNING, State.SCHEDULED): Route(((408, 250), (256, 250)), (340, 242), room=3),
    (State.RUNNING, State.RETRYING): Route(((408, 330), (256, 330)), (340, 322), room=3),
    (State.RUNNING, ITSELF): Route(((442, 92), (442, 66), (486, 66), (486, 92)), (464, 58)),
    (State.RUNNING, State.SUCCEEDED): Route(((520, 170), (652, 170)), (578, 162), room=3),
    (State.RUNNING, State.FAILED): Route(((520, 250), (652, 250)), (578, 242), room=3),
    (State.RUNNING, State.CANCELLED): Route(((520, 330), (652, 330)), (578, 322), room=3),
    ("waiting", State.CANCELLED): Route(((230, 372), (230, 408), (686, 408), (686, 352)), (464, 400)),
    ("waiting", GONE): Route(((170, 372), (170, 446), (732, 446)), (464, 438)),
    ("finished", GONE): Route(((742, 372), (742, 436)), (752, 408), anchor="start", room=2),
    (State.FAILED, State.READY): Route(((764, 250), (852, 250), (852, 28), (230, 28), (230, 148)), (814, 242), room=3),
    (State.CANCELLED, State.READY): Route(
        ((764, 330), (852, 330), (852, 241)), (814, 322), room=3, joins=(State.FAILED, State.READY)
    ),
}

# Colours come twice, for light and for dark: the card has its own ground, so that it can be read on any page, also
# where the page is dark and the reader's system is not.
STYLE: Final = """\
text { font: 600 15px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; fill: #1c2530 }
.note { font-size: 13px; font-weight: 500; fill: #55616f }
.event { font: 500 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #36414d }
.card { fill: #ffffff; stroke: #dde3ea }
.frame { fill: #f3f6fa; stroke: #cfd8e3 }
.state { stroke-width: 1.5 }
.waiting { fill: #e3eefb; stroke: #3f7cc0 }
.running { fill: #fdf0d3; stroke: #bf8412 }
.succeeded { fill: #def3e3; stroke: #2f8f4e }
.failed { fill: #fce4e2; stroke: #c8463d }
.cancelled { fill: #e9eaee; stroke: #737c8a }
.line { fill: none; stroke: #5f6b7a; stroke-width: 1.6 }
.head, .dot { fill: #5f6b7a }
.operator .line { stroke: #8250c4; stroke-dasharray: 5 4 }
.operator .head { fill: #8250c4 }
.operator .event { fill: #6b3bab }
@media (prefers-color-scheme: dark) {
  text { fill: #e8ecf1 }
  .note { fill: #9ba7b5 }
  .event { fill: #c9d1db }
  .card { fill: #14181e; stroke: #2c343e }
  .frame { fill: #1b2129; stroke: #343e4a }
  .waiting { fill: #182c44; stroke: #5b9be0 }
  .running { fill: #3a2c0d; stroke: #d9a032 }
  .succeeded { fill: #14331f; stroke: #4cb36e }
  .failed { fill: #401d1b; stroke: #e5736a }
  .cancelled { fill: #2a2f37; stroke: #8f99a8 }
  .line { stroke: #8b97a6 }
  .head, .dot { fill: #8b97a6 }
  .operator .line { stroke: #b18ae6 }
  .operator .head { fill: #b18ae6 }
  .operator .event { fill: #cdb2f2 }
}"""


@dataclass(frozen=True, slots=True)
class Arrow:
    """All steps that lead from one place to another."""

    ends: Ends
    steps: tuple[Transition, ...]

    @property
    def events(self) -> list[Event]:
        return list(dict.fromkeys(step.event for step in self.steps))

    @property
    def is_an_operators(self) -> bool:
        return all("operator" in step.when for step in self.steps)

    def __str__(self) -> str:
        return f"{' → '.join(self.ends)} ({', '.join(self.events)})"


def arrows(steps: Iterable[Transition]) -> list[Arrow]:
    """Gather steps into arrows, in the order of the table."""
    steps = list(steps)
    sources: dict[tuple[Event, str], set[State | None]] = {}
    for step in steps:
        sources.setdefault((step.event, end_of(step)), set()).add(step.source)
    found: dict[Ends, list[Transition]] = {}
    for step in steps:
        start = start_of(step, sources[step.event, end_of(step)])
        found.setdefault((start, end_of(step)), []).append(step)
    return [Arrow(ends, tuple(among)) for ends, among in found.items()]


def start_of(step: Transition, sources: set[State | None]) -> str:
    """Name the place where a step begins: a frame, if the same happens to every state in it."""
    for name, frame in FRAMES.items():
        if step.source in frame.states and sources.issuperset(frame.states):
            return name
    return step.source or NEW


def end_of(step: Transition) -> str:
    if step.target == step.source:
        return ITSELF
    return step.target or GONE


def routed(arrows: Iterable[Arrow]) -> list[tuple[Arrow, Route]]:
    """Give each arrow its way, or raise `NoPlace`."""
    arrows = list(arrows)
    drawn = {arrow.ends for arrow in arrows}
    for arrow in arrows:
        route = ROUTES.get(arrow.ends)
        if route is None:
            raise NoPlace(f"the picture has no way for {arrow}: add one to ROUTES")
        if len(arrow.events) > route.room:
            raise NoPlace(f"the picture has too little room for the labels of {arrow}: make some in ROUTES")
        if route.joins and route.joins not in drawn:
            raise NoPlace(f"{arrow} runs into {' → '.join(route.joins)}, which is not there: change that in ROUTES")
    return [(arrow, ROUTES[arrow.ends]) for arrow in arrows]


def svg(steps: Iterable[Transition]) -> str:
    """Draw the picture. Each arrow names its steps in `data-steps`, as source:event:target."""
    steps = list(steps)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"',
        '     role="img" aria-labelledby="life-of-a-job-title life-of-a-job-desc">',
        '<title id="life-of-a-job-title">The life of a job</title>',
        f'<desc id="life-of-a-job-desc">{escape(description(steps))}</desc>',
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="12"/>',
        *(line for name, frame in FRAMES.items() for line in drawn_frame(name, frame.box)),
        *(line for state in State for line in drawn_state(state)),
        *(line for arrow, route in routed(arrows(steps)) for line in drawn_arrow(arrow, route)),
        *drawn_ends(),
        *drawn_legend(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def description(steps: Iterable[Transition]) -> str:
    said = (f"{', '.join(row.sources)} to {row.target}, {row.event}: {row.when}." for row in rows(steps))
    return "The states of a job and the steps between them. " + " ".join(said)


def drawn_frame(name: str, box: Box) -> Iterator[str]:
    yield f'<rect class="frame" {placed(box)} rx="14"/>'
    yield f'<text class="note" x="{box.left + 16}" y="{box.top + 29}">{name}</text>'


def drawn_state(state: State) -> Iterator[str]:
    if state not in BOXES:
        raise NoPlace(f"the picture has no box for {state}: add one to BOXES")
    box, kind = BOXES[state], "waiting" if state in WAITING else state
    x, y = middle(box)
    yield f'<rect class="state {kind}" {placed(box)} rx="10"/>'
    yield f'<text x="{x}" y="{y + 5}" text-anchor="middle">{state}</text>'


def drawn_arrow(arrow: Arrow, route: Route) -> Iterator[str]:
    kind = "arrow operator" if arrow.is_an_operators else "arrow"
    named = " ".join(f"{step.source or NEW}:{step.event}:{step.target or GONE}" for step in arrow.steps)
    reasons = dict.fromkeys(f"{step.event}: {step.when}" for step in arrow.steps)
    yield f'<g class="{kind}" data-steps="{named}">'
    yield f"<title>{escape('; '.join(reasons))}</title>"
    yield f'<path class="line" d="{path(route.way)}"/>'
    if not route.joins:
        yield f'<path class="head" d="{head(*route.way[-2:])}"/>'
    x, y = route.label
    y -= LINE_HEIGHT * (len(arrow.events) - 1)
    for below, event in enumerate(arrow.events):
        yield f'<text class="event" x="{x}" y="{y + below * LINE_HEIGHT}" text-anchor="{route.anchor}">{event}</text>'
    yield "</g>"


def drawn_ends() -> Iterator[str]:
    x, y = middle(START_DOT)
    yield f'<circle class="dot" cx="{x}" cy="{y}" r="8"/>'
    yield f'<text class="note" x="{x}" y="{y - 16}" text-anchor="middle">{NEW}</text>'
    x, y = middle(END_MARK)
    yield f'<circle class="line" cx="{x}" cy="{y}" r="9"/>'
    yield f'<circle class="dot" cx="{x}" cy="{y}" r="5"/>'
    yield f'<text class="note" x="{x + 18}" y="{y + 5}">{GONE}</text>'


def drawn_legend() -> Iterator[str]:
    yield '<g class="operator">'
    yield '<path class="line" d="M128 482 L169 482"/>'
    yield '<text class="note" x="180" y="486">by an operator or the pruner</text>'
    yield "</g>"


def placed(box: Box) -> str:
    return f'x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}"'


def middle(box: Box) -> Point:
    return box.left + box.width // 2, box.top + box.height // 2


def path(way: tuple[Point, ...]) -> str:
    """Write a way of level and upright lines with rounded corners."""
    start, *corners, stop = way
    parts = [f"M{start[0]} {start[1]}"]
    for before, corner, after in zip(way, corners, way[2:], strict=False):  # each corner between its neighbours
        near, far = towards(corner, before, CORNER), towards(corner, after, CORNER)
        parts.append(f"L{near[0]} {near[1]} Q{corner[0]} {corner[1]} {far[0]} {far[1]}")
    return " ".join([*parts, f"L{stop[0]} {stop[1]}"])


def head(before: Point, tip: Point) -> str:
    """Write the head of an arrow: a triangle, 10 long and 9 wide."""
    x, y = towards(tip, before, 10)
    across, along = (0, 4.5) if y == tip[1] else (4.5, 0)
    return f"M{tip[0]} {tip[1]} L{x + across:g} {y + along:g} L{x - across:g} {y - along:g} Z"


def towards(start: Point, goal: Point, distance: int) -> Point:
    """Go a distance from one point towards another that is level with it, or right above or below it."""

    def step(here: int, there: int) -> int:
        return here + distance * ((there > here) - (there < here))

    return step(start[0], goal[0]), step(start[1], goal[1])


class Row(NamedTuple):
    """Steps that differ only in where they begin."""

    sources: list[str]
    event: Event
    target: str
    when: str


def rows(steps: Iterable[Transition]) -> list[Row]:
    found: dict[tuple[Event, str, str], list[str]] = {}
    for step in steps:
        found.setdefault((step.event, step.target or f"({GONE})", step.when), []).append(step.source or f"({NEW})")
    return [Row(sources, event, target, when) for (event, target, when), sources in found.items()]


def table(steps: Iterable[Transition]) -> str:
    """Write the table in Markdown."""
    lines = ["| from | event | to | when |", "| --- | --- | --- | --- |"]
    for row in rows(steps):
        cells = [", ".join(map(code, row.sources)), code(row.event), code(row.target), row.when]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def code(word: str) -> str:
    return word if word.startswith("(") else f"`{word}`"


def with_table(page: str, new: str) -> str:
    """Put a table between the marks of a page."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise NoPlace(f"{PAGE} has no place for the table: it wants a line {BEGIN} and, after it, a line {END}")
    return f"{before}{BEGIN}\n\n{new}\n{END}{after}"


def main(arguments: list[str], checkout: Path = CHECKOUT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check = parser.parse_args(arguments).check

    page = (checkout / PAGE).read_text(encoding="utf-8")
    picture = (checkout / PICTURE).read_text(encoding="utf-8") if (checkout / PICTURE).exists() else None
    fresh = {PICTURE: (picture, svg(TRANSITIONS)), PAGE: (page, with_table(page, table(TRANSITIONS)))}
    stale = {file: new for file, (old, new) in fresh.items() if old != new}
    for file, text in stale.items():
        if check:
            print(f"{file} is out of date; make it again with: python tools/life_of_a_job.py", file=sys.stderr)
        else:
            (checkout / file).write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {file}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
