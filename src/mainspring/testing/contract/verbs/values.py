# ruff: noqa: S101 -- a suite of tests is built on assert
"""What comes out equals what went in."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from mainspring.core.backoff import Backoff
from mainspring.core.job import Job, JobId, Retention, State
from mainspring.core.limits import MOMENT
from mainspring.core.machine import claim as claimed
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Raised, Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.duration import LONGEST
from mainspring.stores.records import Facts, JobView, LogLine, Note, Progress
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import World, claim_number

BYTES = [b"", b"\x00", b"null", bytes(range(256)), b"\xff\xfe" * 200_000, '{"ä":"\u2028"}'.encode()]
TEXT = "späte Grüße 🕰 'quoted' \"twice\" \\ % ; -- \n\ttabbed \u202e\u2028"


class ValuesContract(Contract):
    """G5 and G7. Needs the roles Jobs, Nodes and Inspector."""

    @obligation(GENERAL, 7)
    @obligation("get")
    async def test_a_job_comes_out_as_it_went_in(self, world: World) -> None:
        backoff = Backoff(
            initial=timedelta(microseconds=1),
            increment=timedelta(microseconds=333_333),
            multiplier=1.1 + 2**-40,
            cap=LONGEST,
            jitter=1 / 3,
        )
        retention = Retention(succeeded=timedelta(0), failed=LONGEST - MOMENT)
        unique = UniqueKey(key=TEXT, period=timedelta(days=3, microseconds=7), on_conflict=OnConflict.REPLACE)
        facts = Facts(tags=("b", "a", "", TEXT, "a"), parent=world.id(), owner=TEXT, traceparent="00-ab-cd-01")
        new = world.new(
            Name("späte", "grüße.🕰"),
            payload=bytes(range(256)),
            backoff=backoff,
            max_attempts=2**31 - 1,
            expires=timedelta(days=1),
            queue=TEXT,
            priority=0,
            loss_limit=1,
            retention=retention,
            timeout=timedelta(microseconds=1),
            key=TEXT,
            unique=unique,
            facts=facts,
        )
        await world.store.enqueue([new])

        assert await world.view(new.id) == JobView(
            job=Job(
                id=new.id,
                task=new.task,
                state=State.READY,
                run_at=world.now,
                backoff=backoff,
                max_attempts=2**31 - 1,
                queue=TEXT,
                priority=0,
                loss_limit=1,
                expires_at=world.now + timedelta(days=1),
                retention=retention,
            ),
            payload=new.payload,
            enqueued_at=world.now,
            facts=facts,
            timeout=timedelta(microseconds=1),
            key=TEXT,
            unique=unique,
        )

    @obligation(GENERAL, 7)
    async def test_what_is_left_out_stays_left_out(self, world: World) -> None:
        id_ = await world.enqueue()
        job = await world.job(id_)

        assert await world.view(id_) == JobView(job=job, payload=b"{}", enqueued_at=world.now)
        assert (job.expires_at, job.cancel_requested_at, job.finished_at, job.keep_until, job.cause) == (None,) * 5

    @obligation(GENERAL, 7)
    @pytest.mark.parametrize("value", BYTES, ids=lambda value: f"{len(value)}-bytes-from-{value[:2].hex() or 'none'}")
    async def test_bytes_are_never_looked_into(self, world: World, value: bytes) -> None:
        node = await world.node()
        id_ = await world.enqueue(payload=value)
        (delivery,) = await world.claim(node)
        await world.store.note([Note(job=id_, lease=delivery.claim.job.lease, node=node.id, saved=value)])
        await world.end(delivery.claim, Succeeded(value))

        view = await world.view(id_)
        assert [delivery.payload, view.payload, view.saved, view.result] == [value] * 4

    @obligation(GENERAL, 7)
    async def test_no_result_is_another_than_an_empty_one(self, world: World) -> None:
        claim = await world.running(await world.node())
        await world.end(claim, Succeeded(None))

        assert (await world.view(claim.job.id)).result is None

    @obligation(GENERAL, 7)
    async def test_errors_progress_and_log_lines_come_out_as_they_went_in(self, world: World) -> None:
        node = await world.node()
        claim = await world.running(node)
        error = AttemptError(type=TEXT, message=TEXT * 100, traceback="\n".join([TEXT] * 200))
        progress = Progress(100 / 3, TEXT)
        lines = (LogLine(at=world.now, level=TEXT, message=TEXT), LogLine(at=world.now, level="", message=""))
        note = Note(job=claim.job.id, lease=claim.job.lease, node=node.id, progress=progress, lines=lines)
        await world.store.note([note])
        await world.end(claim, Raised(error=error))

        view = await world.view(claim.job.id)
        assert (view.progress, view.error) == (progress, error)
        assert await world.store.log_lines(claim.job.id) == lines
        (row,) = await world.store.attempts(claim.job.id)
        assert row.error == error

    @obligation(GENERAL, 7)
    async def test_any_id_is_an_id(self, world: World) -> None:
        extremes = [JobId(UUID(int=number)) for number in (0, 2**63, 2**64, 2**127, 2**128 - 1)]
        await world.enqueue_all(world.new(id=id_) for id_ in extremes)

        views = await world.store.get(extremes)
        assert [view and view.job.id for view in views] == extremes

    @obligation(GENERAL, 5)
    @pytest.mark.parametrize(
        "zone", [UTC, timezone(timedelta(hours=5, minutes=45)), ZoneInfo("America/New_York")], ids=str
    )
    async def test_instants_are_kept_to_the_microsecond_and_come_back_in_utc(
        self, world: World, zone: ZoneInfo
    ) -> None:
        node = await world.node()
        given = (world.now - timedelta(days=400, microseconds=1)).astimezone(zone)
        wanted = (world.now + timedelta(days=36_500, microseconds=1)).astimezone(zone)
        id_ = await world.enqueue(run_at=given, expires=wanted)
        job = await world.job(id_)
        (delivery,) = await world.claim(node)
        line = LogLine(at=given, level="INFO", message="")
        await world.store.note([Note(job=id_, lease=delivery.claim.job.lease, node=node.id, lines=(line,))])
        (kept,) = await world.store.log_lines(id_)

        assert delivery.claim == claimed(job, node.id, claim_number(delivery.claim))
        for instant, expected in [
            (job.run_at, given),
            (job.expires_at, wanted),
            (delivery.claim.job.run_at, given),
            (delivery.enqueued_at, world.now),
            (kept.at, given),
        ]:
            assert instant == expected
            assert is_utc(instant)

    @obligation(GENERAL, 4)
    @obligation(GENERAL, 5)
    async def test_every_instant_that_a_verb_writes_is_the_stores(self, world: World) -> None:
        world.clock.jump(timedelta(days=3_000, microseconds=13))
        node = await world.node()
        claim = await world.running(node)
        world.clock.advance("1s")
        await world.end(claim, Raised(error=AttemptError(type="E", message="")))
        await world.store.pause("default")
        lock = await world.store.acquire("lock", "me", timedelta(seconds=5))
        view, (row,), (queue,) = (
            await world.view(claim.job.id),
            await world.store.attempts(claim.job.id),
            await world.store.queues(),
        )
        (member,) = (await world.store.renew(node.id, node.term)).nodes
        assert queue.paused
        assert lock

        earlier = world.now - timedelta(seconds=1)
        for instant, expected in [
            (view.enqueued_at, earlier),
            (view.started_at, earlier),
            (row.started_at, earlier),
            (row.ended_at, world.now),
            (queue.paused.at, world.now),
            (member.joined_at, earlier),
            (member.renewed_at, world.now),
            (lock.expires_at, world.now + timedelta(seconds=5)),
        ]:
            assert instant == expected
            assert is_utc(instant)


def is_utc(instant: datetime | None) -> bool:
    return instant is not None and instant.utcoffset() == timedelta(0) and instant.tzname() == "UTC"
