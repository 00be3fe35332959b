"""Random stories about one outbox on any store, each step held against a plain list.

Two handles look at the same state. A store is said by a `Ground`: how a handle is opened, and, if it can join
transactions, how the user begins one, and whether others can write while one is open.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand, begin
from mainspring.errors import NodeGone, PartitionCountMismatch
from mainspring.stores.outbox import (
    Aside,
    Letter,
    LetterFilter,
    LetterState,
    Message,
    NewLetter,
    NewMessage,
    Outboxes,
    Published,
    Stride,
)
from mainspring.stores.port import Store, Transactions
from mainspring.stores.records import NodeRecord, Process
from mainspring.testing.contract import SettableClock, UserTransaction
from mainspring.testing.contract.verbs.transactions import LONG, Mistake
from tests.stores.outbox_model import Entry, Model

T = TypeVar("T")

NAME = "orders"
PARTITIONS = 2
MANY = 1000
PENDING, REPROCESSING, RESOLVED, DISCARDED = LetterState


class Ground(Protocol):
    """Where a story takes place."""

    clock: SettableClock
    joins: bool
    """Whether there are transactions of the user's own."""
    two_writers: bool
    """Whether others can write while one of these is open."""

    async def open(self) -> Store: ...

    async def begin(self) -> UserTransaction: ...

    def close(self) -> None:
        """Leave nothing behind; the handles have been closed."""
        ...


@dataclass(frozen=True, slots=True)
class Late:
    """A transaction that stays open while the story goes on."""

    tx: UserTransaction
    entries: list[Entry]


def role(store: Store) -> Outboxes:
    assert isinstance(store, Outboxes)
    return store


partitions = st.integers(0, PARTITIONS - 1)
places = st.integers(0, 5)
limits = st.integers(1, 4)
drafts = st.lists(
    st.tuples(partitions, st.sampled_from(["a", "b", "c", None]), st.sampled_from([None] * 4 + ["u", "v"])),
    min_size=1,
    max_size=4,
)
filters = st.builds(
    LetterFilter,
    partition=st.none() | partitions,
    key=st.none() | st.sampled_from(["a", "b"]),
    type=st.none() | st.sampled_from(["even", "odd"]),
)


class OutboxStories(RuleBasedStateMachine):
    """Tells a story; a subclass says where."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self.ground = self.make()
        self.stores = [self.run(self.ground.open()) for _ in range(2)]
        self.store = role(self.stores[0])
        self.model = Model(NAME, PARTITIONS)
        self.nodes: list[tuple[NodeId, int]] = []
        self.late: list[Late] = []
        self._count = 0
        self.run(self.store.register_outbox(NAME, PARTITIONS))
        for _ in range(2):
            self._join()

    def make(self) -> Ground:
        raise NotImplementedError

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(step)

    @property
    def now(self) -> datetime:
        return self.ground.clock.now()

    @initialize(fates=st.lists(st.sampled_from(["dead", "dead", "aside", "later", "done"]), min_size=6, max_size=6))
    def begin(self, fates: list[str]) -> None:
        """Have there be something of everything: few stories would come so far by themselves."""
        for partition in range(PARTITIONS):
            self.publish([(partition, key, None) for key in ("a", "b", None, "a")], "plain", other=False)
            self._compare()
            self.go_on(partition=partition, node=0, fates=fates[partition * 3 :][:3], holds=False, off=0, way="plain")
            self.ground.clock.advance(timedelta(seconds=1))

    # Messages.

    @rule(
        drafts=drafts, way=st.sampled_from(["plain", "plain", "commit", "rollback", "late", "own"]), other=st.booleans()
    )
    def publish(self, drafts: list[tuple[int, str | None, str | None]], way: str, other: bool) -> None:
        new = [self._new(*one) for one in drafts]
        store = role(self.stores[other])
        if way == "plain" or not self.ground.joins:
            if self._waits(new):
                return
            answers = self.run(store.publish(new))
            self.model.committed(self.model.written(new, answers, self.now))
            return
        if self._waits(new):
            return
        if way == "own":
            answers = self.run(self._publish_in_own(self.stores[other], new))
            self.model.committed(self.model.written(new, answers, self.now))
            return
        texts = dict(self.model.texts)
        tx = self.run(self.ground.begin())
        entries = self.model.written(new, self.run(store.publish_in(tx.handle, new)), self.now)
        if way == "late" and self.ground.two_writers:
            self.late.append(Late(tx, entries))
            return
        self._compare()  # nobody sees anything of it yet
        if way == "rollback":
            self.run(tx.rollback())
            self.model.rolled_back(entries, texts)
        else:
            self.run(tx.commit())
            self.model.committed(entries)

    async def _publish_in_own(self, store: Store, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """Publish in a transaction of the store's own; once before, and roll that back."""
        assert isinstance(store, Transactions)
        with suppress(Mistake):
            async with store.transaction(limit=LONG) as tx:
                await role(store).publish_in(tx, new)
                raise Mistake
        async with store.transaction(limit=LONG) as tx:
            return await role(store).publish_in(tx, new)

    def _waits(self, new: Sequence[NewMessage]) -> bool:
        """Say whether somebody who holds a text would have to end first."""
        held = {entry.new.unique for late in self.late for entry in late.entries}
        return any(one.unique is not None and one.unique in held for one in new)

    @precondition(lambda self: self.late)
    @rule(at=places, commit=st.booleans())
    def end_late(self, at: int, commit: bool) -> None:
        late = self.late.pop(at % len(self.late))
        if commit:
            self.run(late.tx.commit())
            self.model.committed(late.entries)
            return
        self.run(late.tx.rollback())
        gone = {id(entry) for entry in late.entries}
        texts = {text: entry for text, entry in self.model.texts.items() if id(entry) not in gone}
        self.model.rolled_back(late.entries, texts)

    @rule(partition=partitions)
    def publish_what_cannot_be(self, partition: int) -> None:
        new = [self._new(partition, None, None), replace(self._new(partition, None, None), partitions=64)]
        try:
            self.run(self.store.publish(new))
        except PartitionCountMismatch:
            return
        raise AssertionError("an outbox with another number of partitions was taken")

    @rule(limit=limits)
    def clear(self, limit: int) -> None:
        gone = self.run(self.store.clear_messages(limit))

        assert 0 <= gone <= min(limit, self.model.may_clear())

    @rule(span=st.sampled_from([timedelta(seconds=1), timedelta(seconds=1), timedelta(hours=1), timedelta(days=2)]))
    def let_time_pass(self, span: timedelta) -> None:
        self.ground.clock.advance(span)

    # Delivery.

    @rule(
        partition=partitions,
        node=st.integers(0, 1),
        given=limits,
        off=st.sampled_from([0, 0, 0, 0, -1, 1]),
        way=st.sampled_from(["plain", "plain", "commit", "rollback"]),
    )
    def begin_delivery(self, partition: int, node: int, given: int, off: int, way: str) -> None:
        stand = self._stand(partition)
        self._stride(partition, node, begin(stand, self.nodes[node][0], given), off, way)

    @rule(
        partition=partitions,
        node=st.integers(0, 1),
        fates=st.lists(st.sampled_from(["done", "done", "dead", "aside", "later"]), max_size=4),
        holds=st.booleans(),
        off=st.sampled_from([0, 0, 0, 0, -1, 1]),
        way=st.sampled_from(["plain", "plain", "commit", "rollback"]),
    )
    def go_on(self, *, partition: int, node: int, fates: list[str], holds: bool, off: int, way: str) -> None:
        """Give each of the messages behind the cursor an end."""
        here, stand = self.model.partitions[partition], self._stand(partition)
        given = list(zip(here.log[stand.cursor :], fates, strict=False))
        held = {one.message.key for one in here.asides.values()} - {None}
        letters: list[NewLetter] = []
        asides: list[Aside] = []
        for message, fate in given:
            if message.key in held:
                asides.append(Aside(message=message))
            elif fate == "dead":
                letters.append(NewLetter(message=message, attempts=3, error="dead"))
            elif fate != "done":
                wait = timedelta(seconds=1 if fate == "later" else 0)
                asides.append(Aside(message=message, attempts=1, retry_at=self.now + wait, error="no"))
                held.add(message.key)
                held.discard(None)
        after = replace(
            stand,
            cursor=stand.cursor + len(given),
            holder=self.nodes[node][0] if holds else None,
            error="".join(fates[:2]),
        )
        self._stride(partition, node, after, off, way, letters=tuple(letters), aside=tuple(asides))

    @rule(
        partition=partitions,
        node=st.integers(0, 1),
        dead=st.booleans(),
        again=st.booleans(),
        off=st.sampled_from([0, 0, 0, -1]),
        way=st.sampled_from(["plain", "commit", "rollback"]),
    )
    def deliver_aside(self, *, partition: int, node: int, dead: bool, again: bool, off: int, way: str) -> None:
        due = self.run(self.store.read_aside(NAME, partition, 1))
        for one in due:
            stand = self._stand(partition)
            if again:
                later = replace(one, attempts=one.attempts + 1, retry_at=self.now + timedelta(seconds=1))
                self._stride(partition, node, stand, off, way, aside=(later,))
                return
            letters = (NewLetter(message=one.message, attempts=one.attempts + 1, error="no"),) if dead else ()
            self._stride(partition, node, stand, off, way, letters=letters, back=(one.message.seq,))

    def _stride(
        self,
        partition: int,
        node: int,
        after: Stand,
        off: int,
        way: str,
        *,
        letters: tuple[NewLetter, ...] = (),
        aside: tuple[Aside, ...] = (),
        back: tuple[int, ...] = (),
    ) -> None:
        """Write a step, which is late if `off` is not 0, and compare what came of it."""
        before = max(0, self._stand(partition).revision + off)
        one = Stride(
            outbox=NAME,
            partition=partition,
            before=before,
            after=replace(after, revision=before + 1),
            letters=letters,
            aside=aside,
            back=back,
        )
        id_, term = self.nodes[node]
        wanted = self.model.accepts(id_, one)
        if way == "plain" or not self.ground.joins:
            (accepted,) = self.run(self.store.stride(id_, term, [one]))
        else:
            tx = self.run(self.ground.begin())
            accepted = self.run(self.store.stride_in(tx.handle, id_, term, one))
            self._compare()
            self.run(tx.rollback() if way == "rollback" else tx.commit())
        assert accepted is wanted
        if not accepted or (way == "rollback" and self.ground.joins):
            return
        self.model.strode(one, self.now)
        new = [found for found in self._letters(LetterFilter(states=(PENDING,))) if found.id not in self.model.letters]
        expected = [
            Letter(
                id=found.id,
                message=letter.message,
                state=PENDING,
                attempts=letter.attempts,
                error=letter.error,
                failed_at=self.now,
            )
            for found, letter in zip(sorted(new, key=lambda one: one.id), letters, strict=True)
        ]
        self.model.letters |= {found.id: found for found in expected}

    @rule(node=st.integers(0, 1), partition=partitions)
    def lose_a_node(self, node: int, partition: int) -> None:
        id_, term = self.nodes.pop(node)
        assert self.run(self.stores[0].declare_dead(id_, term))
        self.model.alive.discard(id_)
        self._join()
        stand = self._stand(partition)
        try:
            stride = Stride(outbox=NAME, partition=partition, before=stand.revision, after=stand)
            self.run(self.store.stride(id_, term, [stride]))
        except NodeGone:
            return
        raise AssertionError("a node that is gone made a step")

    # Dead letters.

    @rule(which=filters, limit=limits, hours=st.integers(0, 2))
    def take_letters(self, which: LetterFilter, limit: int, hours: int) -> None:
        within = timedelta(hours=hours)
        expected = [
            replace(one, state=REPROCESSING, term=one.term + 1, deadline=self.now + within)
            for one in self.model.free(which, self.now)[:limit]
        ]

        assert list(self.run(self.store.take_letters(which, within, limit))) == expected
        self.model.letters |= {one.id: one for one in expected}

    @rule(at=places, off=st.sampled_from([0, 0, 0, 1, -1]), well=st.booleans())
    def end_reprocessing(self, at: int, off: int, well: bool) -> None:
        if not self.model.letters:
            return
        ids = sorted(self.model.letters)
        one = self.model.letters[ids[at % len(ids)]]
        counts = one.state is REPROCESSING and off == 0
        end = (one.id, one.term + off)
        if well:
            assert self.run(self.store.resolve_letters([end])) == counts
            after = replace(one, state=RESOLVED, deadline=None, completed_at=self.now)
        else:
            assert self.run(self.store.return_letters([end], "again")) == counts
            after = replace(
                one, state=PENDING, deadline=None, attempts=one.attempts + 1, error="again", failed_at=self.now
            )
        if counts:
            self.model.letters[one.id] = after

    @rule(which=filters, limit=limits)
    def discard_letters(self, which: LetterFilter, limit: int) -> None:
        pending = {one.id for one in self.model.meant(which) if one.state is PENDING}
        count = self.run(self.store.discard_letters(which, limit))

        assert count == min(limit, len(pending))
        gone = self._changed(DISCARDED)
        assert len(gone) == count
        assert {one.id for one in gone} <= pending
        self.model.letters |= {
            one.id: replace(self.model.letters[one.id], state=DISCARDED, completed_at=self.now) for one in gone
        }

    @rule(which=filters, limit=limits)
    def replay_letters(self, which: LetterFilter, limit: int) -> None:
        free = {one.id: one for one in self.model.free(which, self.now)}
        count = self.run(self.store.replay_letters(which, limit))

        assert count == min(limit, len(free))
        gone = {one.id for one in self._changed(RESOLVED)}
        assert len(gone) == count
        assert gone <= set(free)
        oldest = max((free[one].failed_at for one in gone), default=None)
        assert oldest is None or all(oldest <= one.failed_at for one in free.values() if one.id not in gone)
        chosen = [free[one] for one in gone]
        self.model.replayed(chosen, self.now)
        self.model.letters |= {
            one.id: replace(one, state=RESOLVED, deadline=None, completed_at=self.now) for one in chosen
        }

    @rule(hours=st.integers(0, 2), limit=limits)
    def clear_letters(self, hours: int, limit: int) -> None:
        span = timedelta(hours=hours)
        ended = {
            one.id
            for one in self.model.letters.values()
            if one.completed_at is not None and one.completed_at <= self.now - span
        }

        assert self.run(self.store.clear_letters(span, limit)) == min(limit, len(ended))
        there = {one.id for one in self._letters(LetterFilter(states=tuple(LetterState)))}
        assert set(self.model.letters) - there <= ended
        self.model.letters = {id_: one for id_, one in self.model.letters.items() if id_ in there}

    def _changed(self, state: LetterState) -> list[Letter]:
        """Return the letters that are in this state, and were not as far as is known."""
        found = self._letters(LetterFilter(states=(state,)))
        return [one for one in found if self.model.letters[one.id].state is not state]

    # What holds always.

    @invariant()
    def all_is_as_it_should_be(self) -> None:
        self._compare()

    def _compare(self) -> None:
        for store in map(role, self.stores):
            looked = self.run(store.look_at_partitions([NAME]))
            assert looked.is_sequenced
            assert looked.now == self.now
            for number, here in enumerate(self.model.partitions):
                after = here.stand.cursor
                self.model.read(number, after, self._log(store, number, after))
                found = self.run(store.read_aside(NAME, number, MANY))
                due = self.model.due(number, self.now)
                assert sorted(found, key=lambda one: one.message.seq) == sorted(due, key=lambda one: one.message.seq)
                assert [one.retry_at for one in found] == sorted(one.retry_at for one in due if one.retry_at)
                keys = {one.message.key for one in here.asides.values()} - {None}
                assert self.run(store.read_keys_aside(NAME, number, ["a", "b", "c"])) == keys
            assert list(looked.partitions) == [self.model.view(number) for number in range(PARTITIONS)]
        everything = self._letters(LetterFilter(states=tuple(LetterState)))
        assert {one.id: one for one in everything} == self.model.letters
        assert [one.failed_at for one in everything] == sorted((one.failed_at for one in everything), reverse=True)
        (view,) = self.run(self.store.outboxes())
        assert view.aside == sum(len(one.asides) for one in self.model.partitions)
        assert view.letters == sum(one.state is PENDING for one in self.model.letters.values())

    def _log(self, store: Outboxes, partition: int, after: int) -> Sequence[Message]:
        """Read behind a cursor, in pages."""
        found: list[Message] = []
        while page := self.run(store.read_messages(NAME, partition, after + len(found), 3)):
            found += page
        return found

    def _letters(self, which: LetterFilter) -> list[Letter]:
        found: list[Letter] = []
        after: str | None = None
        while True:
            page = self.run(self.store.letters(which, limit=3, after=after))
            found += page.letters
            if page.after is None:
                return found
            after = page.after

    # The rest.

    def _stand(self, partition: int) -> Stand:
        return self.model.partitions[partition].stand

    def _new(self, partition: int, key: str | None, unique: str | None) -> NewMessage:
        self._count += 1
        return NewMessage(
            outbox=NAME,
            partitions=PARTITIONS,
            partition=partition,
            payload=str(self._count).encode(),
            type="odd" if self._count % 2 else "even",
            key=key,
            unique=unique,
            traceparent=None if self._count % 3 else "00-ab-cd-01",
        )

    def _join(self) -> None:
        self._count += 1
        id_ = NodeId(f"node-{self._count}")
        record = NodeRecord(id=id_, process=Process(host="here", pid=1, started="today"), tasks=frozenset())
        self.nodes.append((id_, self.run(self.stores[0].join(record))))
        self.model.alive.add(id_)

    def teardown(self) -> None:
        for late in self.late:
            self.run(late.tx.rollback())
        for store in self.stores:
            self.run(store.close())
        self.ground.close()
        self._loop.close()
