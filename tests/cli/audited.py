"""Every command, and the line of the audit log that it leaves: a shop with something for each of them to do."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from click.testing import Result

from mainspring import Every, Mainspring, Manual
from mainspring.core.breaker import Breaker
from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.runtime.process import this_process
from mainspring.stores.overview import Entry, EntryFilter, Overview
from mainspring.stores.records import NodeRecord
from tests.cli.conftest import Shop, cli
from tests.cli.test_outbox import give_up, message, publish

PROGRAM = """
import os
from mainspring import Mainspring

app = Mainspring(os.environ["SHOP_URL"])

@app.task(name="add")
async def add(a: int, b: int = 1) -> int:
    return a + b

async def read(statement, params):
    return [1, 2, 3]

async def write(statement, params):
    if statement == "FAIL":
        raise OSError("disk is full")

app.host.offer(execute_read=read, execute_write=write)
"""
APP = ("--app", "audited_shop:app")
SECRET = "hunter2"  # noqa: S105 - of nothing; no line may have it
SINCE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
"""When the schedule has its first slot."""
SHORT = ("--from", SINCE.isoformat(), "--to", (SINCE + timedelta(minutes=2)).isoformat())
LONG = ("--from", SINCE.isoformat(), "--to", (SINCE + timedelta(days=1)).isoformat())
"""More than a thousand slots, about which it asks."""


@dataclass(frozen=True, slots=True)
class World:
    """A shop with jobs, schedules, dead letters, a breaker and a node, and what they are called."""

    shop: Shop
    names: dict[str, str]

    def run(self, *words: str, code: int = 0, answer: str = "") -> Result:
        """Run a command of the app, in this process, with somebody at the keyboard."""
        filled = [self.names.get(word.strip("{}"), word) for word in words]
        done = cli(*filled, *APP, answer=answer)
        assert done.exit_code == code, (words, done.output)
        return done

    def entries(self) -> list[Entry]:
        """Read the audit log, the oldest line first."""
        return read_audit(self.shop)

    def told(self) -> list[tuple[str, str, int | None, str]]:
        """Say what each line says, but for who it was."""
        return [(one.entry.action, one.entry.about, one.entry.count, one.entry.outcome) for one in self.entries()]


def read_audit(shop: Shop) -> list[Entry]:
    async def work() -> list[Entry]:
        async with shop.app() as app:
            assert isinstance(app.store, Overview)
            return list((await app.store.audit(EntryFilter(), limit=1000)).entries)[::-1]

    return asyncio.run(work())


@contextmanager
def world_of(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Fill a shop, as a program does, which leaves no line."""
    monkeypatch.setenv("SHOP_URL", shop.url)
    (shop.folder / "audited_shop.py").write_text(PROGRAM, encoding="utf-8")
    publish(shop, *(message(number) for number in range(1, 5)))
    give_up(shop, 4)
    yield World(shop, asyncio.run(_filled(shop.app())))


async def _filled(app: Mainspring) -> dict[str, str]:
    @app.task(name="add")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    async with app:
        jobs = {name: await add.enqueue(1) for name in ("old", "done", "due", "later")}
        for name in ("old", "done"):
            await jobs[name].cancel()
        await app.schedules.add("nightly", Every("1m", start=SINCE), add.call(2))
        await app.schedules.add("byhand", Manual(), add.call(3))
        await app.schedules.add("gone", Manual(), add.call(4))
        await app.schedules.pause("nightly")
        await app.store.declare_breakers({Name("", "mail"): Breaker(threshold=3)})
        await app.store.join(NodeRecord(id=NodeId("node-7"), process=this_process(), tasks=frozenset()))
    return {name: str(job.id) for name, job in jobs.items()}


@dataclass(frozen=True, slots=True)
class Does:
    """A command that changes something, and its line."""

    command: str
    words: tuple[str, ...]
    action: str
    about: str = ""
    count: int | None = None
    outcome: str = "done"
    makes: bool = False
    """Whether it makes a job, which it prints the id of."""
    code: int = 0


ARGS = ("--args", '{"a": 1, "b": 31337}')
CHANGES = (  # in an order in which each has something to do
    Does("jobs retry", ("{old}",), "jobs.retry", "{old}", 1),
    Does("jobs cancel", ("{due}", "{later}"), "jobs.cancel", "{due}, {later}", 2),
    Does("jobs delete", ("{due}",), "jobs.delete", "{due}", 1),
    Does("jobs enqueue", ("add", *ARGS), "jobs.enqueue", "add", makes=True),
    Does("queues pause", ("mail", "default", "--reason", SECRET), "queues.pause", "mail, default", 2),
    Does("queues resume", ("mail",), "queues.resume", "mail", 1),
    Does("schedules add", ("extra", "--every", "1h", "--task", "add", *ARGS), "schedules.add", "extra"),
    Does("schedules change", ("extra", "--every", "2h"), "schedules.change", "extra", 1),
    Does("schedules pause", ("extra", "--reason", SECRET), "schedules.pause", "extra", 1),
    Does("schedules resume", ("extra", "nightly"), "schedules.resume", "extra, nightly", 2),
    Does("schedules reset", ("extra",), "schedules.reset", "extra", 0),
    Does("schedules run", ("byhand",), "schedules.run", "byhand", makes=True),
    Does("schedules backfill", ("nightly", *SHORT), "schedules.backfill", "nightly", 3),
    Does("schedules remove", ("extra", "--yes"), "schedules.remove", "extra", 1),
    Does("outbox replay", ("--outbox", "orders", "--limit", "2", "--yes"), "outboxes.replay", "orders", 2),
    Does("outbox discard", ("4", "--yes"), "outboxes.discard", "letter 4", 1),
    Does("breakers open", ("mail", "--reason", SECRET), "breakers.open", "mail", 1),
    Does("breakers close", ("mail", "--reason", SECRET), "breakers.close", "mail", 1),
    Does("breakers reset", ("mail", "--reason", SECRET), "breakers.reset", "mail", 1),
    Does("nodes quiet", ("node-7",), "nodes.quiet", "node-7", 1),
    Does("nodes resume", ("node-7",), "nodes.resume", "node-7", 1),
    Does("nodes concurrency", ("node-7", "5"), "nodes.concurrency", "node-7", 1),
    Does("nodes stacks", ("node-7", "--timeout", "100ms"), "nodes.stacks", "node-7", outcome="no_answer", code=1),
    Does("nodes stop", ("node-7",), "nodes.stop", "node-7", 1),
    Does("control add", ("often", "periodic", "60", "--task", "add", *ARGS), "control.add", "often"),
    Does("control run", ("often",), "control.run", "often", makes=True),
    Does("control cancel", ("often",), "control.cancel", "often", 1),
    Does("control submit", (f"SET {SECRET}",), "control.submit"),
    Does("control iterate", (f"GET {SECRET}", f"SET {SECRET}", "--yes"), "control.iterate", count=3),
    Does("control flush", (), "control.flush"),
)
LOOKS = {  # what only looks
    "jobs list": (),
    "jobs show": ("{old}",),
    "queues list": (),
    "schedules list": (),
    "schedules show": ("nightly",),
    "schedules runs": ("nightly",),
    "schedules next": ("nightly",),
    "outbox list": (),
    "outbox lag": (),
    "outbox deadletters": (),
    "breakers list": (),
    "breakers show": ("mail",),
    "nodes list": (),
    "plugins list": (),
    "control list": (),
    "doctor": (),
    "migrate": (),
}
ELSEWHERE = {  # what needs no store, is told of it in another way, or works itself
    "schedules explain",
    "plugins install-check",
    "top",
    "worker",
    "dashboard",
    "demo",
}


def check_that_each_leaves_its_line(world: World) -> None:
    """Have every command do its work, and see what they leave: one line each, with nothing secret in it."""
    made: list[str | None] = []
    for does in CHANGES:
        done = world.run(*does.command.split(), *does.words, code=does.code)
        made.append(done.stdout.strip() if does.makes else None)
    entries = world.entries()
    assert world.told() == [
        (does.action, does.about.format(**world.names), does.count, does.outcome) for does in CHANGES
    ]
    assert [_job(one) for one in entries] == made
    said = str([one.entry for one in entries])
    assert SECRET not in said
    assert "31337" not in said
    assert len({one.entry.who for one in entries}) == 1
    assert [one.at for one in entries] == sorted(one.at for one in entries)


def _job(one: Entry) -> Any:  # noqa: ANN401 - as it was written
    return None if one.entry.detail is None else msgspec.json.decode(one.entry.detail)["job"]
