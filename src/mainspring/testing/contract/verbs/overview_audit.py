# ruff: noqa: S101 -- a suite of tests is built on assert
"""The audit log: what is written stays for its time, in its order, as it was said."""

import asyncio

from mainspring.stores.overview import KEEP_AUDIT, MOST_LINES, Entry, EntryFilter, NewEntry
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.overviews import on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import SECOND, World

ALL = EntryFilter()


class AuditContract(Contract):
    """`write_audit` and `audit`. Needs the role Jobs too."""

    @obligation("audit")
    @obligation("write_audit")
    async def test_lines_are_read_in_pages_newest_first(self, world: World) -> None:
        assert (await on(world).audit(ALL)).entries == ()
        for number in range(7):
            await on(world).write_audit([entry(number), entry(number + 100)])
            world.clock.advance(SECOND if number % 2 else 0 * SECOND)
        await on(world).write_audit([])

        everything = await read(world)
        order = [number for each in range(7) for number in (each, each + 100)]
        assert [line.entry for line in everything] == [entry(number) for number in order[::-1]]
        assert [line.id for line in everything] == sorted({line.id for line in everything}, reverse=True)
        for limit in (1, 3, 13, 14, 15):
            assert await read(world, limit=limit) == everything

    @obligation("write_audit")
    async def test_a_line_is_kept_as_it_was_said(self, world: World) -> None:
        odd = NewEntry(
            who="Ünal 🕰\0", action="jobs.retry", about="a\nb" * 5000, count=0, outcome="refused: no\0", detail=b"\xff{"
        )
        plain = NewEntry(who="", action="jobs.cancel")
        await on(world).write_audit([odd, plain])
        second, first = await read(world)

        assert (first.entry, first.at) == (odd, world.now)
        assert (second.entry, second.at) == (plain, world.now)

    @obligation("write_audit")
    async def test_a_line_may_be_of_when_it_was_asked_for(self, world: World) -> None:
        asked = world.now
        world.clock.advance(SECOND)
        await on(world).write_audit([entry(1)], at=asked)
        await on(world).write_audit([entry(2)])

        assert [line.at for line in await read(world)] == [world.now, asked]

    @obligation("audit")
    async def test_lines_are_found_by_who_what_and_about_what(self, world: World) -> None:
        lines = [
            NewEntry(who="a", action="jobs.retry", about="1"),
            NewEntry(who="b", action="jobs.retry", about="2"),
            NewEntry(who="a", action="jobs.cancel", about="2"),
            NewEntry(who="a", action="jobs.cancel", about="%"),
        ]
        await on(world).write_audit(lines)

        async def found(which: EntryFilter) -> list[NewEntry]:
            return [line.entry for line in await read(world, which, limit=1)]

        assert await found(EntryFilter(who="a")) == [lines[3], lines[2], lines[0]]
        assert await found(EntryFilter(action="jobs.retry")) == [lines[1], lines[0]]
        assert await found(EntryFilter(about="2")) == [lines[2], lines[1]]
        assert await found(EntryFilter(who="a", about="2")) == [lines[2]]
        assert await found(EntryFilter(about="%")) == [lines[3]]
        assert await found(EntryFilter(who="nobody")) == []

    @obligation("audit")
    async def test_a_page_goes_on_where_the_one_before_ended_whatever_was_added(self, world: World) -> None:
        await on(world).write_audit([entry(number) for number in range(4)])
        first = await on(world).audit(ALL, limit=2)
        await on(world).write_audit([entry(9)])
        second = await on(world).audit(ALL, limit=2, after=first.after)

        assert [line.entry for line in (*first.entries, *second.entries)] == [entry(number) for number in (3, 2, 1, 0)]

    @obligation("audit", 1)
    async def test_what_is_rare_is_found_in_the_end_and_no_answer_looks_at_more_than_it_may(self, world: World) -> None:
        rare = NewEntry(who="anna", action="jobs.delete", about="1")
        others = [NewEntry(who="cron", action="jobs.enqueue", about="1")] * (MOST_LINES + 5)
        await on(world).write_audit([rare, *others[:10], rare, *others])

        for which in (EntryFilter(who="anna"), EntryFilter(action="jobs.delete"), EntryFilter(who="anna", about="1")):
            first = await on(world).audit(which, limit=10)
            assert first.entries == ()
            assert first.after is not None
            rest = await on(world).audit(which, limit=10, after=first.after)
            assert [line.entry for line in rest.entries] == [rare, rare]
            assert rest.after is None
            assert [line.entry for line in await read(world, which, limit=1)] == [rare, rare]
        assert len((await on(world).audit(EntryFilter(who="cron"), limit=10)).entries) == 10

    @obligation("write_audit")
    async def test_many_may_write_at_once(self, world: World) -> None:
        stores = [world.store, await world.open(), await world.open()]
        await asyncio.gather(
            *(on(world, store).write_audit([entry(at * 100 + n)]) for n in range(20) for at, store in enumerate(stores))
        )

        lines = await read(world)
        assert {line.entry.about for line in lines} == {str(at * 100 + n) for n in range(20) for at in range(3)}
        assert len(lines) == 60

    @obligation("write_audit")
    async def test_lines_are_forgotten_when_they_are_old_and_not_before(self, world: World) -> None:
        await on(world).write_audit([entry(1), entry(2), entry(3)])
        world.clock.advance(KEEP_AUDIT - SECOND)
        await on(world).write_audit([entry(4)])
        assert await world.store.prune(100) == 0
        world.clock.advance(SECOND)
        assert await world.store.prune(2) == 2
        assert await world.store.prune(2) == 1
        assert await world.store.prune(2) == 0

        assert [line.entry for line in await read(world)] == [entry(4)]
        await on(world).write_audit([entry(5)])
        newest, before = await read(world)
        assert newest.id > before.id


def entry(number: int) -> NewEntry:
    return NewEntry(who="me", action="jobs.retry", about=str(number), count=number)


async def read(world: World, which: EntryFilter = ALL, *, limit: int = 100) -> list[Entry]:
    """Read all pages."""
    lines: list[Entry] = []
    after: int | None = None
    while True:
        page = await on(world).audit(which, limit=limit, after=after)
        assert len(page.entries) <= limit
        lines += page.entries
        if page.after is None:
            return lines
        assert page.after != after
        after = page.after
