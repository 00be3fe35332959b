"""`mainspring outbox deadletters`, `replay` and `discard`: messages that were given up, and what becomes of them.

Whatever is replayed or discarded by a filter is looked up first and done by its ids: what was shown is what is done.
"""

import functools
import json
import textwrap
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import click
import msgspec

from mainspring.app import Mainspring
from mainspring.cli.acting import acting
from mainspring.cli.codes import Code
from mainspring.cli.echo import echo
from mainspring.cli.plain import plain, print_json
from mainspring.cli.reach import as_json, reached_outboxes, reaches_store
from mainspring.cli.schedules_run import Progress
from mainspring.cli.table import Column, print_table
from mainspring.client.audit import letters_named
from mainspring.client.lags import views_of
from mainspring.client.words import ago, count
from mainspring.errors import PartitionOutOfRange
from mainspring.stores.outbox import Letter, LetterFilter, LetterState, Outboxes

PAGE: Final = 200
CHUNK: Final = 100
"""Letters that are replayed or discarded in one transaction."""
SHOWN: Final = 10
"""Letters of a preview."""
NOT_THERE: Final = "there is no such dead letter"
PENDING: Final = (LetterState.PENDING,)
OPEN: Final = (LetterState.PENDING, LetterState.REPROCESSING)

COLUMNS: Final = (
    Column("ID", right=True),
    Column("OUTBOX"),
    Column("MESSAGE"),
    Column("TYPE", optional=True, shrinks=True),
    Column("KEY", shrinks=True),
    Column("STATE", optional=True),
    Column("TRIES", right=True),
    Column("FAILED", right=True),
    Column("ERROR", shrinks=True),
)

ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1, type=click.IntRange(min=1))


class Selection(NamedTuple):
    """Which dead letters somebody means."""

    ids: tuple[int, ...]
    outbox: str | None
    partition: int | None
    type: str | None
    key: str | None

    @property
    def has_filter(self) -> bool:
        return any(one is not None for one in self[1:])

    @property
    def about(self) -> str:
        """Say which are meant, in a line of the audit log."""
        ids, outbox, partition, type_, key = self
        return letters_named(outbox, ids, partition=partition, type_=type_, has_key=key is not None)

    def filter(self, states: Sequence[LetterState], ids: Sequence[int] | None = None) -> LetterFilter:
        wanted = tuple(ids) if ids is not None else self.ids or None
        _, outbox, partition, type_, key = self
        return LetterFilter(ids=wanted, outbox=outbox, partition=partition, type=type_, key=key, states=tuple(states))


def selects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options by which dead letters are chosen; they come as `which`."""

    @ids_argument
    @click.option("--outbox", metavar="NAME", help="Of this outbox.")
    @click.option(
        "--partition", metavar="NUMBER", type=click.IntRange(min=0), help="Of this partition; needs --outbox."
    )
    @click.option("--type", "type_", metavar="NAME", help="Whose payload has this type.")
    @click.option("--key", help="With this key.")
    @functools.wraps(command)
    def run(
        *args: Any,  # noqa: ANN401 - the command knows
        ids: tuple[int, ...],
        outbox: str | None,
        partition: int | None,
        type_: str | None,
        key: str | None,
        **options: Any,  # noqa: ANN401 - as above
    ) -> Any:  # noqa: ANN401 - as above
        if partition is not None and outbox is None:
            raise click.UsageError("--partition counts within an outbox; say which: --outbox NAME")
        return command(*args, which=Selection(ids, outbox, partition, type_, key), **options)

    return run


@click.command()
@selects
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([*(str(one) for one in LetterState), "all"]),
    help="Repeatable. [pending; with an ID: all]",
)
@click.option("-n", "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="At most so many.")
@click.option("--after", metavar="PLACE", help="Go on after the page before.")
@as_json
@reaches_store
async def deadletters(
    app: Mainspring, *, which: Selection, states: tuple[str, ...], limit: int, after: str | None, as_json: bool
) -> int:
    """List dead letters, the newest failure first; with an ID, show all of it.

    Dead letters are messages that were given up: their attempts were used up,
    or a handler rejected them. They wait until somebody replays or discards
    them.
    """
    store = reached_outboxes(app)
    await _check(store, which)
    wanted = tuple(LetterState) if "all" in states or (which.ids and not states) else tuple(map(LetterState, states))
    found: list[Letter] = []
    more = after
    while len(found) < limit:
        most = min(PAGE, limit - len(found))
        page = await store.letters(which.filter(wanted or PENDING), limit=most, after=more)
        found += page.letters
        more = page.after
        if more is None:
            break
    if as_json:
        print_json(*found)
    elif which.ids:
        for line in _pages(found, app.store.now()):
            echo(line)
    elif not found:
        echo("No such dead letters.")
    else:
        print_table(COLUMNS, [_row(one, app.store.now()) for one in found])
    if more is not None and not as_json:
        echo(f"There are more: --after {more}")
    return await _tell_others(app, store, which, {one.id for one in found}) if more is None else Code.DONE


@click.command()
@selects
@click.option("--all", "all_", is_flag=True, help="All that are pending, of every outbox.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, the oldest failures first. [no limit]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@reaches_store
async def replay(app: Mainspring, *, which: Selection, all_: bool, limit: int | None, yes: bool, as_json: bool) -> int:
    """Put dead letters back at the end of their partitions, to be delivered again.

    The oldest failure goes first. They are delivered behind what waits there
    already: also behind newer messages with the same key.
    """
    store = reached_outboxes(app)
    plan = Plan("replay", "Put {} back at the end of the line?", "{} put back", OPEN, store.replay_letters)
    return await _act(app, store, plan, which, all_=all_, limit=limit, yes=yes, as_json=as_json)


@click.command()
@selects
@click.option("--all", "all_", is_flag=True, help="All that are pending, of every outbox.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, the oldest failures first. [no limit]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@reaches_store
async def discard(app: Mainspring, *, which: Selection, all_: bool, limit: int | None, yes: bool, as_json: bool) -> int:
    """Give up dead letters for good. They are kept for a while, and can be looked at."""
    store = reached_outboxes(app)
    plan = Plan("discard", "Give up {} for good?", "{} discarded", PENDING, store.discard_letters)
    return await _act(app, store, plan, which, all_=all_, limit=limit, yes=yes, as_json=as_json)


class Plan(NamedTuple):
    """What is to be done to dead letters, and how that is said."""

    verb: str
    question: str
    done: str
    states: Sequence[LetterState]
    act: Callable[[LetterFilter, int], Awaitable[int]]

    def allows(self, letter: Letter, now: datetime) -> bool:
        """Say whether it can be done to this one; somebody else may be at it."""
        return letter.deadline is None or letter.deadline <= now or letter.state is LetterState.PENDING


class Chosen(NamedTuple):
    """What was found to be meant."""

    ids: list[int]
    """The oldest failure first."""
    shown: list[Letter]
    """The first of them."""
    left: int
    """How many more there are, beyond the limit."""


async def _act(
    app: Mainspring,
    store: Outboxes,
    plan: Plan,
    which: Selection,
    *,
    all_: bool,
    limit: int | None,
    yes: bool,
    as_json: bool,
) -> int:
    if not (which.ids or which.has_filter or all_):
        raise click.UsageError(f"say which ones to {plan.verb}: by ID, by --outbox, --type or --key, or --all")
    async with acting(app, f"outboxes.{plan.verb}", which.about) as deed:
        await _check(store, which)
        chosen = await _choose(app, store, plan, which, limit)
        code = await _tell_others(app, store, which, set(chosen.ids)) if limit is None else Code.DONE
        total = len(chosen.ids)
        if total and not yes:
            _preview(chosen, app.store.now())
            if not deed.confirmed(plan.question.format(count(total, "dead letter"))):
                return Code.FAILED
        deed.count = done = 0
        progress = Progress(total)
        for begin in range(0, total, CHUNK):
            ids = chosen.ids[begin : begin + CHUNK]
            done += await plan.act(which.filter(plan.states, ids), len(ids))
            deed.count = done
            if not as_json:
                progress.tell(done)
    if as_json:
        print_json({"found": total + chosen.left, "chosen": total, "done": done})
    else:
        echo(plan.done.format(count(done, "dead letter")) if total else "No such dead letters.")
        if done < total:
            echo(f"{count(total - done, 'other')} had changed meanwhile, and stay as they are", err=True)
        if chosen.left:
            echo(f"There are {chosen.left:,} more.")
    return code


async def _choose(app: Mainspring, store: Outboxes, plan: Plan, which: Selection, limit: int | None) -> Chosen:
    """Find what is meant. Pages come with the newest first, and the oldest are to be taken: so all are read."""
    now, seen = app.store.now(), 0
    ids: deque[int] = deque(maxlen=limit)
    shown: deque[Letter] = deque(maxlen=SHOWN)
    async for letter in _all(store, which.filter(plan.states)):
        if plan.allows(letter, now):
            seen += 1
            ids.append(letter.id)
            shown.append(letter)
    first = list(reversed(shown))[: limit or SHOWN]
    return Chosen(list(reversed(ids)), first, seen - len(ids))


async def _all(store: Outboxes, which: LetterFilter) -> AsyncIterator[Letter]:
    page = await store.letters(which, limit=PAGE)
    for letter in page.letters:
        yield letter
    while page.after is not None:
        page = await store.letters(which, limit=PAGE, after=page.after)
        for letter in page.letters:
            yield letter


def _preview(chosen: Chosen, now: datetime) -> None:
    print_table(COLUMNS, [_row(one, now) for one in chosen.shown])
    if (more := len(chosen.ids) - len(chosen.shown)) > 0:
        echo(f"and {more:,} more")


async def _check(store: Outboxes, which: Selection) -> None:
    """Raise `UnknownOutbox` or `PartitionOutOfRange` where nothing could ever be found."""
    if which.outbox is None:
        return
    (view,) = await views_of(store, [which.outbox])
    if which.partition is not None and which.partition >= view.partitions:
        raise PartitionOutOfRange(view.name, which.partition, view.partitions)


async def _tell_others(app: Mainspring, store: Outboxes, which: Selection, found: set[int]) -> Code:
    """Say of each dead letter that was asked for by its id, and is not among those found, how it stands."""
    missing = [one for one in dict.fromkeys(which.ids) if one not in found]
    if not missing:
        return Code.DONE
    every = LetterFilter(ids=tuple(missing), states=tuple(LetterState))
    there = {letter.id: letter async for letter in _all(store, every)}
    for one in missing:
        echo(f"{one}: {_standing(there[one], app.store.now()) if one in there else NOT_THERE}", err=True)
    return Code.FAILED


def _standing(letter: Letter, now: datetime) -> str:
    if letter.state is LetterState.REPROCESSING and letter.deadline is not None:
        return f"somebody is reprocessing it, and has until {_instant(letter.deadline, now)}"
    if letter.completed_at is not None:
        return f"it was {letter.state} {ago(letter.completed_at, now)}"
    return f"it is {letter.state}, of outbox {letter.message.outbox}, and not what was asked for beside its id"


def _row(letter: Letter, now: datetime) -> tuple[str, ...]:
    message = letter.message
    return (
        str(letter.id),
        message.outbox,
        f"{message.partition}/{message.seq}",
        message.type,
        message.key or "",
        str(letter.state),
        str(letter.attempts),
        ago(letter.failed_at, now, shortly=True),
        letter.error.splitlines()[0] if letter.error else "",
    )


def _pages(letters: Sequence[Letter], now: datetime) -> Iterator[str]:
    for place, letter in enumerate(letters):
        if place:
            yield ""
        for title, text in _facts(letter, now):
            if text:
                yield f"{title:<11} {textwrap.indent(text, ' ' * 12).lstrip(' ')}"


def _facts(letter: Letter, now: datetime) -> Iterator[tuple[str, str]]:
    message = letter.message
    yield "dead letter", str(letter.id)
    yield "message", f"{message.outbox}/{message.partition}/{message.seq}"
    yield "state", str(letter.state)
    yield "type", message.type
    yield "key", message.key or ""
    yield "payload", _payload(message.payload)
    yield "attempts", str(letter.attempts)
    yield "error", letter.error
    yield "published", _instant(message.published_at, now)
    yield "failed", _instant(letter.failed_at, now)
    yield "taken until", _instant(letter.deadline, now) if letter.deadline else ""
    yield "completed", _instant(letter.completed_at, now) if letter.completed_at else ""
    yield "trace", message.traceparent or ""


def _payload(stored: bytes) -> str:
    try:
        value = msgspec.json.decode(stored)
    except msgspec.DecodeError:
        return json.dumps(plain(stored))
    if isinstance(value, dict) and value.keys() == {"v", "value"}:  # what is around every value that is kept
        value = value["value"]
    short = json.dumps(value, ensure_ascii=False)
    return short if len(short) <= 100 else json.dumps(value, ensure_ascii=False, indent=2)


def _instant(then: datetime, now: datetime) -> str:
    return f"{then.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC, {ago(then, now)}"
