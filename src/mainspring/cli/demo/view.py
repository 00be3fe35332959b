"""How the demo looks while it runs: a table that changes in place where rich can draw it, else a line for each thing
that happens.
"""

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from mainspring.cli.demo.events import Happening, Moment, Watcher
from mainspring.cli.demo.fates import FATES
from mainspring.cli.echo import echo
from mainspring.cli.table import Column, fit, has_rich, rich_table, terminal_width
from mainspring.client.words import count, percent
from mainspring.core.job import FINISHED, WAITING, State
from mainspring.stores.records import JobView

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

LAST: Final = 8  # happenings that stay on the screen
BAR: Final = 10

COLUMNS: Final = (
    Column("TASK"),
    Column("FATE", shrinks=True),
    Column("WAIT", right=True),
    Column("RUN", right=True),
    Column("DONE", right=True),
    Column("NOW", shrinks=True),
)


class View(Protocol):
    """Someone who is shown every look."""

    def show(self, moment: Moment) -> None: ...


@contextmanager
def view() -> Iterator[View]:
    """Choose how to show it, for as long as the block runs."""
    width = terminal_width()
    if not width or not has_rich():
        yield Tale()
        return
    from rich.console import Console  # noqa: PLC0415 - an extra, and slow to load
    from rich.live import Live  # noqa: PLC0415 - as above

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        yield Screen(live)


class Tale:
    """A line for each thing that happens."""

    def __init__(self) -> None:
        self._watcher = Watcher()

    def show(self, moment: Moment) -> None:
        for one in self._watcher.look(moment):
            echo(line(one))


class Screen:
    """A table that changes in place, and the last things that happened under it."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self._watcher = Watcher()
        self._last: deque[Happening] = deque(maxlen=LAST)

    def show(self, moment: Moment) -> None:
        self._last.extend(self._watcher.look(moment))
        self._live.update(self._drawn(moment, self._live.console.width), refresh=True)

    def _drawn(self, moment: Moment, width: int) -> "Group":
        from rich.console import Group  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        columns, rows = fit(COLUMNS, table(moment), width)
        recent = [Text(line(one), style="bright_black", no_wrap=True, overflow="ellipsis") for one in self._last]
        blank = [Text("")] * (LAST - len(recent))
        return Group(
            Text(headline(moment), style="bold"), Text(""), rich_table(columns, rows), Text(""), *recent, *blank
        )


def line(one: Happening) -> str:
    return f"{one.seconds:5.1f} s  {one.who:<9} {one.what}"


def headline(moment: Moment) -> str:
    """Say the time and who is at work."""
    gone = len(moment.nodes) - len(moment.alive)
    return f"{moment.seconds:4.1f} s   {count(len(moment.alive), 'node')} at work, {gone} gone"


def table(moment: Moment) -> list[list[str]]:
    """One row for each task that has jobs."""
    return [_row(task, fate, jobs) for task, fate in FATES.items() if (jobs := _of(task, moment))]


def _of(task: str, moment: Moment) -> list[JobView]:
    return [one for one in moment.jobs if str(one.job.task) == task]


def _row(task: str, fate: str, jobs: list[JobView]) -> list[str]:
    states = Counter(one.job.state for one in jobs)
    numbers = (sum(states[one] for one in some) for some in (WAITING, (State.RUNNING,), FINISHED))
    return [task, fate, *(str(number or "") for number in numbers), _now(jobs)]


def _now(jobs: list[JobView]) -> str:
    """Say what matters most about these jobs now."""
    lost = max(one.job.losses for one in jobs)
    moving = [one.progress for one in jobs if one.job.state is State.RUNNING and one.progress]
    match _foremost(jobs):
        case State.RUNNING if percents := [one.percent for one in moving if one.percent]:
            return _bar(sum(percents) / len(percents))
        case State.RUNNING if moving:
            return f"running, {moving[0].message}"
        case State.FAILED:
            return f"failed: {count(lost, 'killed worker')}" if lost else "failed"
        case State.READY if lost:
            return f"ready, lost {count(lost, 'time')}"
        case state:
            return str(state)


def _foremost(jobs: list[JobView]) -> State:
    """Choose the state to tell of: what runs before what waits, and what waits before what has ended."""
    states = {one.job.state for one in jobs}
    order = (State.RUNNING, State.READY, State.RETRYING, State.SCHEDULED, State.FAILED, State.CANCELLED)
    return next((state for state in order if state in states), State.SUCCEEDED)


def _bar(done: float) -> str:
    full = int(done * BAR / 100)
    return f"{'█' * full}{'░' * (BAR - full)} {percent(done):>5}"
