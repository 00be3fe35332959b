# ruff: noqa: S101 -- a suite of tests is built on assert
"""Search: what fits is found, all of it and nothing else, however small the steps."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import islice, product

import pytest
from msgspec.structs import replace

from mainspring.core.command import CancelJob, DeleteJob, RetryJob
from mainspring.core.job import Cause, JobId, State
from mainspring.core.outcome import AttemptError, Raised, Succeeded
from mainspring.stores.overview import Argument, Search
from mainspring.stores.records import Cut, Facts, JobView, Note, Verdict
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.overviews import EVERYTHING, answers, ids_of, on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.inspect import various, wanted
from mainspring.testing.contract.world import FATAL, HOUR, RAISED, RESIZE, SECOND, SEND, World

NO_TIME = timedelta(0)


class SearchContract(Contract):
    """`search`. Needs the roles Jobs, Nodes and Inspector too."""

    @obligation("search")
    @obligation("search", 2)
    async def test_all_jobs_are_found_newest_first_in_pages(self, world: World) -> None:
        await various(world)
        everything = (await world.store.list_jobs(EVERYTHING, limit=1000)).jobs

        for limit in (1, 7, 1000):
            every = await answers(world, EVERYTHING, limit=limit)
            assert [view for found in every for view in found.jobs] == list(everything)

    @obligation("search")
    async def test_there_may_be_no_jobs(self, world: World) -> None:
        found = await on(world).search(EVERYTHING)

        assert (found.jobs, found.after, found.looked, found.back_to, found.in_time) == ((), None, 0, None, True)

    @obligation("search")
    @obligation("search", 1)
    @obligation("search", 2)
    @pytest.mark.parametrize("limit", [2, 100])
    async def test_a_search_finds_what_fits_and_nothing_else(self, world: World, limit: int) -> None:
        await various(world)
        views = (await world.store.list_jobs(EVERYTHING, limit=1000)).jobs
        parent = next(view.facts.parent for view in views if view.facts.parent)
        choices = product(
            [(), (State.READY,), (State.FAILED, State.CANCELLED), (State.RUNNING, State.SUCCEEDED), (State.RETRYING,)],
            [None, "mail", "nowhere"],
            [None, SEND, RESIZE],
            [None, "a", "ab"],
            [None, Cause.REFUSED, Cause.UNKNOWN_TASK],
            [None, parent],
        )
        found = 0
        for states, queue, task, tag, cause, whose in islice(choices, 0, None, 7):
            which = Search(states=states, queue=queue, task=task, tag=tag, cause=cause, parent=whose)
            got = await ids_of(world, which, limit=limit)
            assert got == [view.job.id for view in views if wanted(view, which)], which
            found += len(got)
        assert found > 50  # or the jobs are not various enough

    @obligation("search")
    async def test_jobs_are_found_by_their_key_whether_they_wait_run_or_have_ended(self, world: World) -> None:
        node = await world.node()
        keys = ["a", "b", None, "", "a\0b", "ä" * 100]
        ids: dict[str | None, list[JobId]] = {key: [] for key in keys}
        for end in (Succeeded(), FATAL, RAISED, None):
            for key in keys:
                claim = await world.running(node, key=key, priority=99)
                ids[key].insert(0, claim.job.id)
                if end:
                    await world.end(claim, end)
        for key in keys:
            ids[key].insert(0, await world.enqueue(RESIZE, key=key))
            ids[key].insert(0, await world.enqueue(key=key, run_at=HOUR))

        for key in keys:
            if key is not None:
                assert await ids_of(world, Search(key=key)) == ids[key]
                assert await ids_of(world, Search(key=key, task=RESIZE)) == [ids[key][1]]
                assert await ids_of(world, Search(key=key, states=(State.FAILED,))) == [ids[key][4]]
        assert await ids_of(world, Search(key="c")) == []

    @obligation("search")
    async def test_jobs_are_found_by_who_holds_their_lease_or_held_it_last(self, world: World) -> None:
        first, second = await world.node("first"), await world.node("second")
        done = await world.running(first)
        await world.end(done, Succeeded())
        runs = await world.running(first)
        moved = await world.running(first)
        await world.end(moved, RAISED)
        world.clock.advance(HOUR)
        assert (await world.claim_one(second)).job.id == moved.job.id
        await world.enqueue()

        assert await ids_of(world, Search(node=first.id)) == [runs.job.id, done.job.id]
        assert await ids_of(world, Search(node=second.id)) == [moved.job.id]

    @obligation("search")
    async def test_jobs_are_found_by_when_they_were_enqueued(self, world: World) -> None:
        began = world.now
        ids = []
        for _ in range(5):
            ids.append(await world.enqueue())
            world.clock.advance(SECOND)

        assert await ids_of(world, Search(since=began + SECOND)) == ids[:0:-1]
        assert await ids_of(world, Search(until=began + SECOND)) == ids[:1]
        assert await ids_of(world, Search(since=began + SECOND, until=began + 3 * SECOND)) == [ids[2], ids[1]]
        assert await ids_of(world, Search(since=world.now)) == []

    @obligation("search")
    async def test_jobs_are_found_by_a_text_within_their_last_error(self, world: World) -> None:
        node = await world.node()
        failed = await world.running(node)
        await world.end(failed, raised("ValueError", "no such User: Ünal 🕰", retryable=False))
        waits = await world.running(node)
        await world.end(waits, raised("KeyError", "user 7"))
        again = await world.running(node)
        await world.end(again, raised("KeyError", "first"))
        world.clock.advance(HOUR)
        claimed = [one.claim for one in await world.claim(node, room=9)]
        (last,) = [claim for claim in claimed if claim.job.id == again.job.id]
        await world.end(last, raised("ValueError", "second"))
        await world.end(await world.running(node, priority=99), Succeeded())

        async def found(text: str) -> list[JobId]:
            return await ids_of(world, Search(error=text))

        assert await found("user") == [waits.job.id, failed.job.id]
        assert await found("VALUEERROR: NO SUCH") == [failed.job.id]
        assert await found("ünal 🕰") == [failed.job.id]
        assert await found("first") == []
        assert await found("error: second") == [again.job.id]
        assert await found("") == [again.job.id, waits.job.id, failed.job.id]
        assert await found("%") == []
        assert await ids_of(world, Search(error="user", states=(State.FAILED,))) == [failed.job.id]

    @obligation("search")
    async def test_jobs_are_found_by_their_arguments(self, world: World) -> None:
        payloads = [
            b'{"args":{"order":{"id":7,"lines":[{"sku":"a"},{"sku":"b"}]},"big":true}}',
            b'{"args":{"order":{"id":7.0},"big":1}}',
            b'{"args":{"order":null,"flags":[true,{"a":1}]}}',
            b'{"args":{"order":"7"}}',
            b'{"args":{}}',
            b"{}",
            b"[]",
            b"no JSON",
            b'{"args":{"deep":' + b"[" * 5000 + b"]" * 5000 + b"}}",
            b'{"args":{"big":null,"0":{"first-name":"Ada"},"class":{"__class__":{"inner":[]}},"\\u0061b":{"a\\tb":1}}}',
            b'{"args":{"twice":1,"twice":2},"kwargs":{"order":7}}',
            b'{"args":[{"sku":"a"}]}',
            b'{"args":' + b'{"a":' * 50 + b"1" + b"}" * 51,
        ]
        ids = [await world.enqueue(payload=payload) for payload in payloads]
        await world.end(await world.claim_one(await world.node()), Succeeded())

        async def found(*path: str, value: bytes | None = None) -> list[int]:
            got = await ids_of(world, Search(argument=Argument(path=path, value=value)))
            return sorted(ids.index(id_) for id_ in got)

        assert await found("order") == [0, 1, 2, 3]
        assert await found("order", "id", value=b"7") == [0, 1]
        assert await found("order", "lines", "1", "sku", value=b'"b"') == [0]
        assert await found("order", "lines", "2") == []
        assert await found("order", value=b"null") == [2]
        assert await found("order", value=b'"7"') == [3]
        assert await found("big", value=b"true") == [0]
        assert await found("big", value=b"1") == [1]
        assert await found("flags", value=b'[true,{"a":1.0}]') == [2]
        assert await found("flags", value=b'[1,{"a":1}]') == []
        assert await found("order", "lines", value=b'[{"sku":"a"},{"sku":"b"}]') == [0]
        assert await found("big") == [0, 1, 9]
        assert await found("big", value=b"null") == [9]
        assert await found("big", "inner") == []
        assert await found("0") == [9, 11]
        assert await found("0", "first-name", value=b'"Ada"') == [9]
        assert await found("class", "__class__", "inner", value=b"[]") == [9]
        assert await found("ab", "a\tb", value=b"1.0") == [9]
        assert await found("twice", value=b"1") == []
        assert await found("twice", value=b"2") == [10]
        assert await found("order", "lines", value=b"no JSON") == []
        assert await found(*"a" * 50, value=b"1") == [12]
        assert await found(*"a" * 51) == await found(*"a" * 5000) == []

    @obligation("search", 1)
    @obligation("search", 4)
    async def test_a_search_ends_when_its_page_is_full(self, world: World) -> None:
        ids = [await world.enqueue() for _ in range(5)]
        found = await on(world).search(EVERYTHING, limit=3)

        assert [view.job.id for view in found.jobs] == ids[:1:-1]
        assert found.in_time
        assert found.after is not None
        assert found.looked >= 3
        assert found.back_to is not None
        assert found.back_to <= found.jobs[-1].enqueued_at

    @obligation("search", 2)
    @pytest.mark.parametrize("limit", [1, 4])
    async def test_who_goes_on_misses_nothing_that_stays_as_it_is(self, world: World, limit: int) -> None:
        node = await world.node()
        ended = [await world.enqueue(priority=99) for _ in range(20)]
        for _ in ended:
            await world.end(await world.claim_one(node), FATAL)
        waits = [await world.enqueue() for _ in range(20)]
        moves: list[Callable[[JobId], Awaitable[Verdict]]] = [
            lambda id_: world.command(id_, CancelJob()),
            lambda id_: world.command(id_, DeleteJob()),
        ]
        changed: set[JobId] = set()
        found: list[JobId] = []
        after = None
        for turn in range(200):
            page = await on(world).search(EVERYTHING, limit=limit, after=after)
            found += [view.job.id for view in page.jobs]
            if page.after is None:
                break
            after = page.after
            await world.enqueue()
            if turn < 5:
                changed |= {waits[turn], waits[turn + 8], ended[turn]}
                await moves[turn % 2](waits[turn])
                await world.command(waits[turn + 8], CancelJob())
                await world.command(ended[turn], RetryJob())
        stayed = [id_ for id_ in (*ended, *waits) if id_ not in changed]
        assert [id_ for id_ in found if id_ in stayed] == stayed[::-1]

    @obligation("search", 1)
    @obligation("search", 2)
    @obligation("search", 4)
    async def test_whoever_gives_it_no_time_gets_there_in_small_steps(self, world: World) -> None:
        await various(world)
        parts = [
            EVERYTHING,
            Search(task=SEND),
            Search(queue="mail", states=(State.FAILED,)),
            Search(tag="a"),
            Search(error="valueerror"),
            Search(error="nothing like that"),
            Search(states=(State.RUNNING,)),
        ]
        for which in parts:
            expected = await ids_of(world, which, limit=1000)
            for limit in (1, 20):
                assert await ids_of(world, which, limit=limit, budget=NO_TIME) == expected

    @obligation("search")
    async def test_what_is_found_is_what_is_there(self, world: World) -> None:
        node = await world.node()
        facts = Facts(tags=("a",), owner="me")
        claim = await world.running(node, key="k", facts=facts, timeout=HOUR)
        await world.end(claim, RAISED)
        (found,) = (await on(world).search(Search(key="k", tag="a", error="no"))).jobs

        assert found == await world.view(claim.job.id)
        assert seen(found) == (State.RETRYING, "k", ("a",), "no")

    @obligation("get", 1)
    @obligation("search", 5)
    @pytest.mark.parametrize("which", [EVERYTHING, Search(argument=Argument(path=("text",)))], ids=["all", "argument"])
    async def test_a_preview_has_the_beginning_of_a_payload_and_nothing_that_is_saved_or_returned(
        self, world: World, which: Search
    ) -> None:
        node = await world.node()
        payload = b'{"args":{"text":"' + b"x" * 5000 + b'"}}'
        claim = await world.running(node, payload=payload)
        note = Note(job=claim.job.id, lease=claim.job.lease, node=node.id, saved=b'{"place":7}')
        assert await world.store.note([note]) == (True,)
        await world.end(claim, Succeeded(result=b'{"value":12}'))
        small = await world.enqueue(payload=b'{"args":{"text":1}}')
        short, long = [await world.view(id_) for id_ in (small, claim.job.id)]
        assert (long.payload, long.result, long.cut) == (payload, b'{"value":12}', None)

        for preview in (0, 100, len(payload), 10**6):
            cut = Cut(payload=len(payload) if preview < len(payload) else 0, saved=11, result=12)
            wanted = replace(long, payload=payload[:preview], saved=None, result=None, cut=cut)
            found = await on(world).search(which, preview=preview)
            assert found.jobs[1] == wanted
            assert found.jobs == await world.store.get([small, claim.job.id], preview=preview)
            if preview:
                assert found.jobs[0] == short

    @obligation("search", 6)
    @pytest.mark.parametrize("limit", [1, 2, 50])
    async def test_a_job_that_is_not_accepted_is_treated_as_no_match(self, world: World, limit: int) -> None:
        kept = [await world.enqueue(RESIZE, payload=b'{"args":{"a":1}}') for _ in range(3)]
        for _ in range(3):
            await world.enqueue(SEND, payload=b'{"args":{"a":1}}')

        which, other = (Search(argument=Argument(path=("a",), value=value)) for value in (b"1", b"2"))
        found = await on(world).search(which, limit=limit, accept=lambda view: view.job.task == RESIZE)
        assert [view.job.id for view in found.jobs] == kept[::-1][:limit]
        ends = [await on(world).search(one, limit=limit, accept=lambda _: False) for one in (which, other)]
        assert ends[0] == ends[1]


class SearchCostContract(Contract):
    """What `search` and `census` cost with many jobs around. Takes seconds."""

    @obligation("search", 3)
    async def test_what_is_rare_is_found_in_the_first_step(self, world: World) -> None:
        node = await world.node()
        rare = [await world.enqueue(RESIZE, queue="rare", key="rare") for _ in range(4)]
        await world.end(await world.claim_one(node), Succeeded())
        await world.end(await world.claim_one(node), FATAL)
        runs = await world.claim_one(node)
        await world.command(late := await world.enqueue(RESIZE, queue="rare", key="rare"), CancelJob())
        await world.enqueue_all(world.new(SEND, queue="many", run_at=at * HOUR) for at in (0, 1) for _ in range(10_000))

        async def first(which: Search) -> set[JobId]:
            """On a busy machine even a first step may be cut off; one that walks finds nothing however often."""
            for _ in range(10):
                if jobs := (await on(world).search(which, budget=NO_TIME)).jobs:
                    return {view.job.id for view in jobs}
            return set()

        assert runs.job.id == rare[2]
        assert await first(Search(task=RESIZE)) == {*rare, late}
        assert await first(Search(queue="rare")) == {*rare, late}
        assert await first(Search(key="rare")) == {*rare, late}
        assert await first(Search(states=(State.FAILED,))) == {rare[1]}
        assert await first(Search(states=(State.RUNNING,))) == {rare[2]}
        assert await first(Search(states=(State.CANCELLED,))) == {late}
        assert await first(Search(task=RESIZE, states=(State.READY,))) == {rare[3]}


def raised(type_: str, message: str, *, retryable: bool = True) -> Raised:
    return Raised(error=AttemptError(type=type_, message=message), retryable=retryable)


def seen(view: JobView) -> tuple[State, str | None, tuple[str, ...], str]:
    return view.job.state, view.key, view.facts.tags, view.error.message if view.error else ""
