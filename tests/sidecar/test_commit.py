"""Group commit: who waits for whom, and how often the disk is asked."""

import asyncio
import threading
import time
from errno import ENOSPC
from pathlib import Path

import pytest
from msgspec.structs import replace

from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.schedule import Schedule
from mainspring.core.steps import run_now
from mainspring.errors import StoreClosed, StoreError, StoreUnavailable
from mainspring.stores.memory.store import MemoryStore
from mainspring.stores.records import LogLine, Move, Note, Progress
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sidecar.commit import finished
from mainspring.testing.contract import plans
from mainspring.testing.contract.world import HOUR, World
from tests.sidecar.files import FaultyFiles
from tests.sidecar.opened import Place

pytestmark = pytest.mark.usefixtures("virtual_time")


class SlowFiles(FaultyFiles):
    """Holds up each write until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.hold_again = False
        """Let one through at the next opening, and hold up the one after it."""

    def create(self, path: Path, like: Path) -> int:
        self.reached.set()
        self.gate.wait(30)
        if self.hold_again:
            self.hold_again = False
            self.reached.clear()
            self.gate.clear()
        return super().create(path, like)


async def held_up(files: SlowFiles) -> None:
    await asyncio.to_thread(files.reached.wait, 30)


async def a_real_moment() -> None:
    """Hold virtual time for a while, in which a thread could do what it must not."""
    await asyncio.to_thread(time.sleep, 0.1)


async def fired(world: World, name: Name) -> bool:
    return await plans.accepted(world, run_now(await plans.schedule(world, name), world.now, world.id))


async def test_what_comes_while_the_disk_is_busy_shares_one_document(place: Place) -> None:
    files = SlowFiles()
    async with place.world(files) as world:
        names = [Name("", f"s{number}") for number in range(50)]
        there = [await plans.add(world, name) for name in names]
        moves = [plans.move_of(world, run_now(one, world.now, world.id)) for one in there]
        files.calls.clear()
        files.reached.clear()
        files.gate.clear()
        first = asyncio.ensure_future(world.store.move(moves[:1]))
        await held_up(files)
        others = [asyncio.ensure_future(world.store.move([move])) for move in moves[1:]]
        await asyncio.sleep(0)
        assert not first.done()
        files.gate.set()

        assert await asyncio.gather(first, *others) == [(True,)] * 50
        assert (files.calls.count("sync"), files.calls.count("rename")) == (2, 2)


async def test_nobody_sees_what_is_not_on_the_disk_yet(place: Place) -> None:
    """Nor is anybody woken for it, nor can its job be claimed."""
    files = SlowFiles()
    async with place.world(files) as world:
        there = await plans.add(world)
        node = await world.node()
        rings: list[bytes] = []
        world.store.watch(lambda: rings.append(place.read()))
        before = place.read()
        files.reached.clear()
        files.gate.clear()
        move = plans.move_of(world, run_now(there, world.now, world.id))
        moved = asyncio.ensure_future(world.store.move([move]))
        await held_up(files)
        looked = asyncio.ensure_future(plans.look_at(world))
        claimed = asyncio.ensure_future(world.claim(node))
        await asyncio.sleep(0)
        assert not any(one.done() for one in (moved, looked, claimed))
        assert not rings
        files.gate.set()

        await moved
        assert (await looked).open == (move.runs[0].id,)
        assert [one.claim.job.id for one in await claimed] == [move.runs[0].id]
        assert rings
        assert before not in rings


async def test_of_a_group_that_could_not_be_written_those_who_only_asked_are_answered(place: Place) -> None:
    files = SlowFiles()
    async with place.world(files) as world:
        there = await plans.add(world)
        before = await plans.look_at(world)
        files.reached.clear()
        files.gate.clear()
        moved = asyncio.ensure_future(world.store.move([plans.move_of(world, run_now(there, world.now, world.id))]))
        await held_up(files)
        second = asyncio.ensure_future(world.store.move([plans.move_of(world, run_now(there, world.now, world.id))]))
        looked = asyncio.ensure_future(plans.look_at(world))
        joined = asyncio.ensure_future(world.store.join(world.record("late")))
        await asyncio.sleep(0)
        files.always = 28
        files.gate.set()

        for one in (moved, second):
            with pytest.raises(StoreUnavailable):
                await one
        assert await looked == before
        assert await joined
        files.always = None
        await fired(world, plans.HOURLY)


async def test_what_changes_nothing_costs_no_write(place: Place) -> None:
    files = FaultyFiles()
    async with place.world(files) as world:
        await plans.add(world)
        stale = await plans.schedule(world)
        await plans.fire(world)
        node = await world.node()
        claim = await world.claim_one(node)
        files.calls.clear()

        await world.store.renew(node.id, node.term)
        assert await world.claim(node) == ()
        assert not await plans.accepted(world, run_now(stale, world.now, world.id))
        note = Note(job=claim.job.id, lease=claim.job.lease, node=node.id, progress=Progress(50.0))
        line = LogLine(world.now, "INFO", "half way")
        assert (
            await world.store.note([note, Note(job=claim.job.id, lease=claim.job.lease, node=node.id, lines=(line,))])
            == (True,) * 2
        )
        await world.store.prune(10)
        await world.store.acquire("lock", "me", HOUR)
        assert files.calls == []


async def test_what_an_attempt_saves_outlives_the_process(place: Place) -> None:
    async with place.world() as world:
        await plans.add(world)
        await plans.fire(world)
        node = await world.node()
        claim = await world.claim_one(node)
        note = Note(job=claim.job.id, lease=claim.job.lease, node=node.id, saved=b'{"page": 7}')
        assert await world.store.note([note]) == (True,)
    async with place.world() as world:
        assert (await world.view(claim.job.id)).saved == b'{"page": 7}'


async def test_an_enqueue_is_refused_with_what_to_do_instead(place: Place) -> None:
    async with place.world() as world:
        for verb in (world.store.enqueue, lambda new: world.store.enqueue_in(object(), new)):  # type: ignore[attr-defined]  # a role of its own
            with pytest.raises(
                StoreError, match=r"keeps no jobs but those of schedules.*Manual\(\).*sqlite:///jobs\.db"
            ):
                await verb([world.new()])
    with pytest.raises(StoreClosed):
        await world.store.enqueue([world.new()])


async def test_terms_of_locks_do_not_fall_when_the_process_begins_anew(place: Place) -> None:
    async with place.world() as world:
        first = await world.store.acquire("lock", "me", HOUR)
    place.clock.advance(1)
    async with place.world() as world:
        second = await world.store.acquire("lock", "you", HOUR)

    assert first
    assert second
    assert second.term > first.term


async def test_a_paused_queue_stays_paused(place: Place) -> None:
    async with place.world() as world:
        await world.store.pause("mail", by="me", reason="too many")
    async with place.world() as world:
        (queue,) = await world.store.queues()
        assert queue.paused
        assert (queue.name, queue.paused.by) == ("mail", "me")
        await world.store.resume("mail")
    async with place.world() as world:
        assert await world.store.queues() == ()


async def test_runs_in_the_document_are_the_open_ones_and_the_last_ten(place: Place) -> None:
    async with place.world() as world:
        node = await world.node()
        await plans.add(world)
        forgotten = [await plans.fire(world) for _ in range(5)]
        for _ in forgotten:
            await world.end(await world.claim_one(node), Succeeded())
        kept = [await plans.fire(world) for _ in range(10)]
        for _ in kept:
            await world.end(await world.claim_one(node), Succeeded())
        still_open = await plans.fire(world)
        assert len(await plans.runs(world)) == 16
    async with place.world() as world:
        found = [run.id for run in await plans.runs(world)]
        assert found == [run.id for run in (still_open, *reversed(kept))]
        there = await plans.schedule(world)
        assert there.known_since == forgotten[-1].slot


def unwritable_move(world: World, there: Schedule) -> Move:
    """A move of which no document can be made."""
    move = plans.move_of(world, run_now(there, world.now, world.id))
    return replace(move, jobs=(replace(move.jobs[0], payload=object()),))


@pytest.mark.parametrize("disk", ["well", "full"])
async def test_a_neighbour_that_cannot_be_written_shows_nothing_early(place: Place, disk: str) -> None:
    """Of a group, one cannot be written down; those after it wait for the disk as ever, and so does who looks."""
    files = SlowFiles()
    async with place.world(files) as world:
        first, broken, last = [await plans.add(world, Name("", name)) for name in ("first", "broken", "last")]
        files.reached.clear()
        files.gate.clear()
        before = asyncio.ensure_future(plans.accepted(world, run_now(first, world.now, world.id)))
        await held_up(files)
        bad = asyncio.ensure_future(world.store.move([unwritable_move(world, broken)]))
        good = asyncio.ensure_future(plans.accepted(world, run_now(last, world.now, world.id)))
        await asyncio.sleep(0)
        files.reached.clear()
        files.hold_again = True
        files.gate.set()
        await held_up(files)  # the last one, by itself, is on its way to the disk
        assert await before
        looked = asyncio.ensure_future(plans.look_at(world, last.name))
        await a_real_moment()
        assert not looked.done()
        assert not good.done()
        files.always = ENOSPC if disk == "full" else None
        files.gate.set()

        if disk == "full":
            with pytest.raises(StoreUnavailable):
                await good
        else:
            assert await good
        expected = 0 if disk == "full" else 1
        assert len((await looked).open) == expected
        with pytest.raises(StoreError, match="it cannot be written down"):
            await bad
        assert (await plans.look_at(world, broken.name)).open == ()
        files.always = None
    async with place.world() as world:
        assert [len((await plans.look_at(world, one.name)).open) for one in (first, broken, last)] == [1, 0, expected]


async def test_one_alone_that_cannot_be_written_is_refused_and_the_next_one_is_not(place: Place) -> None:
    async with place.world() as world:
        there = await plans.add(world)
        content = place.read()
        with pytest.raises(StoreError, match="it cannot be written down"):
            await world.store.move([unwritable_move(world, there)])
        assert place.read() == content
        assert await fired(world, plans.HOURLY)


async def broken_off(world: World, move: Move) -> None:
    store = world.store
    assert isinstance(store, SidecarStore)

    def verb(inner: MemoryStore) -> None:
        finished(inner.move([move]))
        raise ZeroDivisionError

    await store._write(verb)  # no verb of ours is known to raise so late


async def test_a_verb_of_a_group_that_raises_half_way_leaves_nothing_of_itself(place: Place) -> None:
    """Nor is anybody else hurt: what its neighbours did is done again, and what only asked is answered without it."""
    files = SlowFiles()
    async with place.world(files) as world:
        first, broken, last = [await plans.add(world, Name("", name)) for name in ("first", "broken", "last")]
        files.reached.clear()
        files.gate.clear()
        before = asyncio.ensure_future(plans.accepted(world, run_now(first, world.now, world.id)))
        await held_up(files)
        move = plans.move_of(world, run_now(broken, world.now, world.id))
        bad = asyncio.ensure_future(broken_off(world, move))
        joined = asyncio.ensure_future(world.store.join(world.record("late")))
        looked = asyncio.ensure_future(plans.look_at(world, broken.name))
        good = asyncio.ensure_future(plans.accepted(world, run_now(last, world.now, world.id)))
        await asyncio.sleep(0)
        files.calls.clear()
        files.gate.set()

        assert await before
        with pytest.raises(ZeroDivisionError):
            await bad
        assert (await joined, await good) == (1, True)
        assert (await looked).open == ()
        assert [one.node.id for one in await world.store.nodes()] == ["late"]
        assert await world.store.get([move.jobs[0].id]) == (None,)
        assert files.calls.count("rename") == 2
    async with place.world() as world:
        assert [len((await plans.look_at(world, one.name)).open) for one in (first, broken, last)] == [1, 0, 1]


async def test_a_memory_that_cannot_be_put_back_is_never_written(place: Place) -> None:
    """Garbage where nothing checks it: the store ends, the document stays, and whoever opens it again goes on."""
    async with place.world() as world:
        there = await plans.add(world)
        content = place.read()
        move = plans.move_of(world, run_now(there, world.now, world.id))
        with pytest.raises(TypeError):
            await world.store.move([replace(move, jobs=(replace(move.jobs[0], queue=["mail"]),))])
        with pytest.raises(StoreUnavailable, match="open it again"):
            await plans.look_at(world)
        assert place.read() == content
    async with place.world() as world:
        assert await fired(world, plans.HOURLY)
