"""How `mainspring top` lays out what it has gathered: sections of rows, as many as fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mainspring.cli.echo import visible_cell
from mainspring.cli.table import Column, Row
from mainspring.cli.top_gather import Frame, QueueRow
from mainspring.client.health.finding import Finding
from mainspring.client.words import count, length, percent, size
from mainspring.stores.overview import MOST

BAR: Final = 10
RECENT_S: Final = 1.0
"""Counts that are older are shown with their age."""

NODES: Final = (
    Column("NODE", shrinks=True),
    Column("STATE"),
    Column("RUNNING", right=True),
    Column("PLACES", right=True),
    Column("MEMORY", right=True, optional=True),
    Column("RENEWED", right=True, optional=True),
)
QUEUES: Final = (
    Column("QUEUE", shrinks=True),
    Column("DUE", right=True),
    Column("OLDEST", right=True),
    Column("LATER", right=True, optional=True),
    Column("RUNNING", right=True),
    Column("LIMIT", right=True, optional=True),
    Column("ENDED/MIN", right=True, optional=True),
    Column("BAD/MIN", right=True),
    Column("STATE", optional=True),
)
TASKS: Final = (
    Column("TASK", shrinks=True),
    Column("ENDED/MIN", right=True),
    Column("BAD/MIN", right=True),
    Column("WAIT P95", right=True, optional=True),
    Column("RUN P95", right=True, optional=True),
)
RUNNING: Final = (
    Column("RUNNING", optional=True),
    Column("TASK", shrinks=True),
    Column("FOR", right=True),
    Column("ATTEMPT", right=True, optional=True),
    Column("NODE", shrinks=True, optional=True),
    Column("PROGRESS", shrinks=True),
)
ERRORS: Final = (
    Column("ERROR", shrinks=True),
    Column("IN 10 MIN", right=True),
    Column("MOSTLY IN", shrinks=True),
)
FAILED: Final = (
    Column("FAILED", optional=True),
    Column("TASK", shrinks=True),
    Column("AGO", right=True),
    Column("ERROR", shrinks=True),
)


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the frame."""

    columns: tuple[Column, ...]
    rows: Sequence[Row]


def headline(frame: Frame) -> str:
    """Say the time and the whole in a line."""
    running, places = sum(one.running for one in frame.nodes), sum(one.places for one in frame.nodes)
    due = sum(one.due for one in frame.queues)
    age = 0.0 if frame.counted_at is None else (frame.now - frame.counted_at).total_seconds()
    words = [
        f"{frame.now:%H:%M:%S} UTC",
        count(len(frame.nodes), "node"),
        f"{running} of {places} places",
        f"{due:,} due" if age < RECENT_S else f"{due:,} due (counted {length(age, shortly=True)} ago)",
    ]
    if frame.enqueued is not None:
        words.append(f"{frame.enqueued:,} enqueued/min")
    return "   ".join(words)


def told(warning: Finding) -> str:
    """Say in a line what needs a person, and what to do about it."""
    return printable(f"! {warning.subject}: {warning.says}{f'; {warning.do}' if warning.do else ''}")


def sections(frame: Frame) -> tuple[Section, ...]:
    """Lay out a frame: its tables from the top to the bottom, and their rows by how much they matter."""
    return tuple(
        Section(section.columns, [tuple(printable(cell) for cell in row) for row in section.rows])
        for section in _sections(frame, frame.now)
    )


def _sections(frame: Frame, now: datetime) -> tuple[Section, ...]:
    return (
        Section(
            NODES,
            [
                (
                    one.id,
                    one.state,
                    str(one.running),
                    str(one.places),
                    "" if one.memory is None else size(one.memory),
                    _since(one.renewed_at, now),
                )
                for one in frame.nodes
            ],
        ),
        Section(
            QUEUES,
            [
                (
                    one.name,
                    _many(one.due),
                    _since(one.oldest_at, now),
                    "" if one.later is None else _many(one.later),
                    _many(one.running),
                    ", ".join(str(word) for word in (one.limit, one.rate) if word is not None),
                    _some(one.ended),
                    _some(one.bad),
                    "paused" if one.paused else "open",
                )
                for one in sorted(frame.queues, key=_busy)
            ],
        ),
        Section(
            TASKS, [(one.task, str(one.ended), _some(one.bad), _took(one.wait), _took(one.run)) for one in frame.tasks]
        ),
        Section(
            RUNNING,
            [
                (
                    str(one.id),
                    one.task,
                    _since(one.started_at, now),
                    str(one.attempt),
                    one.node or "",
                    _progress(one.percent, one.message),
                )
                for one in frame.running
            ],
        ),
        Section(ERRORS, [(one.error, str(one.count), one.task) for one in frame.errors]),
        Section(
            FAILED,
            [(str(one.id), one.task, _since(one.finished_at, now), printable(one.error)) for one in frame.failed],
        ),
    )


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Say how many rows each section gets of a room of lines, where a section also takes a blank line and its head.

    The longest gives way first; where there is not even a row for each, the last ones go.
    """
    given = list(wanted)
    while sum(rows + 2 for rows in given if rows) > room:
        longest = max(given, default=0)
        if longest > 1:
            given[given.index(longest)] -= 1
        elif any(given):
            given[max(place for place, rows in enumerate(given) if rows)] = 0
        else:
            break
    return given


def _busy(queue: QueueRow) -> tuple[int, str]:
    return -(queue.due + queue.running + queue.ended), queue.name


def _many(number: int) -> str:
    """Write a count of a census, which ends at `MOST` for each task."""
    return f"{number:,}+" if number >= MOST else f"{number:,}"


def _some(number: int) -> str:
    return f"{number:,}" if number else ""


def _since(then: datetime | None, now: datetime) -> str:
    return "" if then is None else length(max((now - then).total_seconds(), 0.0), shortly=True)


def _took(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else length(seconds, shortly=True)


def _progress(done: float | None, message: str) -> str:
    if done is None:
        return printable(message)
    full = int(done * BAR / 100)
    return f"{'█' * full}{'░' * (BAR - full)} {percent(done):>5} {printable(message)}".rstrip()


def printable(text: str) -> str:
    """Keep of a text what can be shown in a cell: no line ends, and nothing that a terminal would obey."""
    return visible_cell(text.strip().split("\n", 1)[0])
