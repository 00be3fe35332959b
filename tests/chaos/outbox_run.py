"""Runs with outboxes: writers publish, nodes deliver and are killed, and then everything is looked at."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mainspring import Mainspring
from mainspring.stores.outbox import LetterFilter, Outboxes, PartitionView
from tests.chaos.fleet import Fleet, Program
from tests.chaos.outbox_ledger import Effect, OutboxLedger, check_effects
from tests.chaos.outbox_worker import (
    BAD_KEY,
    IN_TRANSACTIONS,
    KEYED,
    KEYS,
    OUTBOXES,
    PARTITIONS,
    POISON,
    POISON_ATTEMPTS,
    POISONED,
    effects_table,
    written_table,
)
from tests.tier import FULL, SEED

T = TypeVar("T")

PROGRAM = "tests.chaos.outbox_worker"
SECONDS = 60.0 if FULL else 4.0
LONGEST = 8.0 if FULL else 2.0
COMMITTED = 150
"""Messages that each process commits at least."""
MESSAGES = 400 if FULL else 80
"""In the outbox with poison."""
DOOM = 0.01
"""Of so many messages one is followed by the end of the process that has handled it."""
WAYS = ["leased/partition", "leased/key", "transactional/partition", "transactional/key"]
"""How messages are delivered of which some are poison."""
Rows = Callable[[str], Sequence[tuple[Any, ...]]]
"""Runs a statement of the test's own, and returns what it gives."""


def tables(prefix: str, serial: str) -> list[str]:
    """Statements that make the user's own tables."""
    return [
        f"CREATE TABLE {written_table(prefix)} (outbox TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL)",
        f"CREATE TABLE {effects_table(prefix)} (id {serial}, outbox TEXT, part INTEGER, seq INTEGER, name TEXT)",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A store, the programs on it, and the user's own tables beside it."""

    fleet: Fleet
    rows: Rows
    prefix: str = ""
    nodes: int
    elsewhere: bool = False
    """Whether some nodes pretend to be on other machines: there nobody sees that they have died."""

    def deliver_all(self, *, processes: int, writers: int, longest: float) -> str:
        """Have it all happen, and look; returns what there is to tell."""
        print(f"MAINSPRING_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
        fleet = self.fleet
        began = time.monotonic()
        fleet.start_ready(self.nodes, prefix=self.prefix, doom=DOOM)
        writing = [
            fleet.start(
                "write",
                prefix=self.prefix,
                writers=writers,
                seconds=SECONDS,
                longest=longest,
                **{"at-least": COMMITTED},
            )
            for _ in range(processes)
        ]
        fleet.wait_for(lambda: bool(fleet.lines("committed")) or not all(one.runs for one in writing), "a first commit")
        self.torment(random.Random(SEED), writing, max(0.8, 0.4 * (time.monotonic() - began)))  # noqa: S311 - no secret
        assert [one.process.returncode for one in writing] == [0] * processes, fleet.errors()
        fleet.wait_for(lambda: is_all_done(self.look(OUTBOXES)), "everything to be delivered", limit=120, every=0.3)
        assert [fleet.end(one) for one in fleet.running] == [0] * self.nodes, fleet.errors()
        return self.check()

    def torment(self, chance: random.Random, writing: list[Program], between: float) -> None:
        """Kill nodes and start others in their place while somebody writes; now and then all at once."""
        nodes = [one for one in self.fleet.running if one.kind == "work"]
        while any(one.runs for one in writing):
            time.sleep(min(2.0, chance.expovariate(1 / between)))
            everybody = chance.random() < 0.07
            victims = {place for place, node in enumerate(nodes) if everybody or not node.runs}
            victims.add(chance.randrange(self.nodes))
            for place in victims:
                self.fleet.kill(nodes[place])
            for place in victims:
                far = {"host": f"machine-{len(self.fleet.killed)}"} if self.elsewhere and chance.random() < 0.3 else {}
                nodes[place] = self.fleet.start("work", prefix=self.prefix, doom=DOOM, **far)
        for node in nodes:
            self.fleet.kill(node)
        self.fleet.start_ready(self.nodes, prefix=self.prefix)

    def check(self) -> str:
        ledger = OutboxLedger.read(self.fleet.folder)
        written: dict[str, dict[str, str]] = defaultdict(dict)
        for outbox, key, name in self.rows(f"SELECT outbox, key, name FROM {written_table(self.prefix)}"):  # noqa: S608 - ours
            written[outbox][name] = key
        effects = self.effects()
        lasts = self.lasts(OUTBOXES)

        assert {name for names in written.values() for name in names} == set(ledger.committed)
        for outbox in OUTBOXES:
            ledger.check_all_are_there(outbox, written[outbox], lasts[outbox])
            ledger.check_order(outbox, by_key=outbox == KEYED)
            if outbox in IN_TRANSACTIONS:
                check_effects(effects, outbox, written[outbox])
        overtaken = ledger.check_what_was_committed_before_comes_first()
        assert not self.ask(dead_letters)
        passed = ledger.passed_over(BAD_KEY, KEYED)
        # Otherwise nothing has been tested.
        assert len(ledger.published) > len(ledger.committed) >= COMMITTED, "nobody rolled back, or hardly anybody wrote"
        assert len(self.fleet.killed) >= self.nodes
        assert ledger.given_again()
        assert passed, "a failing key held up its partition"
        return (
            f"\n{len(ledger.committed)} messages committed, {len(ledger.published) - len(ledger.committed)} rolled back, "
            f"{len(self.fleet.killed)} nodes killed; {ledger.given_again()} given again, {overtaken} neighbours published "
            f"the other way round, {passed} went past a failing key (seed {SEED})"
        )

    def end_poison(self, how: str) -> str:
        """Publish messages of which some end whoever is given them, and see that only these become dead letters."""
        fleet = self.fleet
        poison = {MESSAGES // 5, MESSAGES - 10}
        names = [f"{POISON}{number}" if number in poison else f"m{number}" for number in range(MESSAGES)]
        self.ask(lambda app: publish(app, names))
        until = time.monotonic() + 180
        while not is_all_done(self.look([POISONED])):
            assert time.monotonic() < until, f"it does not come to an end\n{fleet.errors()}"
            for _ in range(self.nodes - len(fleet.running)):
                fleet.start("work", prefix=self.prefix, poison=how)
            time.sleep(0.1)
        for one in fleet.running:
            fleet.kill(one)  # which may be about to begin still

        ledger = OutboxLedger.read(fleet.folder)
        letters = self.ask(dead_letters)
        handled = {place.name for place, _ in ledger.handled}
        assert sorted(letters) == sorted(name for name in names if name.startswith(POISON)), letters
        assert set(letters.values()) == {POISON_ATTEMPTS}
        assert handled == {name for name in names if not name.startswith(POISON)}
        ledger.check_order(POISONED, by_key=how.endswith("key"))
        if how.startswith("transactional"):
            assert sorted(row.name for row in self.effects()) == sorted(handled)
        deaths = sum(place.name.startswith(POISON) for place, _ in ledger.given)
        # In company none of them is known to be the one; alone each has as many deliveries as it may.
        assert POISON_ATTEMPTS * len(poison) <= deaths <= 2 * POISON_ATTEMPTS * len(poison)
        return f"\n{how}: {len(handled)} of {MESSAGES} messages handled, {deaths} processes ended by the others"

    # What the store says.

    def ask(self, question: Callable[[Mainspring], Awaitable[T]]) -> T:
        async def answer() -> T:
            async with Mainspring(self.fleet.url) as app:
                return await question(app)

        return asyncio.run(answer())

    def look(self, outboxes: Sequence[str]) -> Sequence[PartitionView]:
        async def look(app: Mainspring) -> Sequence[PartitionView]:
            return (await role(app).look_at_partitions(outboxes)).partitions

        return self.ask(look)

    def lasts(self, outboxes: Sequence[str]) -> Mapping[str, Mapping[int, int]]:
        found: dict[str, dict[int, int]] = defaultdict(dict)
        for view in self.look(outboxes):
            found[view.outbox][view.partition] = view.last
        return found

    def effects(self) -> list[Effect]:
        select = f"SELECT outbox, part, seq, name FROM {effects_table(self.prefix)} ORDER BY id"  # noqa: S608 - ours
        return [Effect(*row) for row in self.rows(select)]


def role(app: Mainspring) -> Outboxes:
    store = app.store
    assert isinstance(store, Outboxes)
    return store


async def publish(app: Mainspring, names: Sequence[str]) -> None:
    box = app.outbox(POISONED, partitions=PARTITIONS, payload=str)
    for number, name in enumerate(names):
        await box.publish(None, name, key=KEYS[number % len(KEYS)])


async def dead_letters(app: Mainspring) -> dict[str, int]:
    """Read the names of all dead letters, and how many attempts each has had."""
    page = await role(app).letters(LetterFilter(), limit=1000)
    return {one.message.payload.decode().split('"')[-2]: one.attempts for one in page.letters}


def is_all_done(views: Sequence[PartitionView]) -> bool:
    return all(view.stand.cursor == view.last and view.aside_at is None and view.stand.holder is None for view in views)
