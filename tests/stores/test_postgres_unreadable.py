"""Claims beside rows that cannot be decoded before they are claimed: a key that is no text, a task name that is none."""

from datetime import timedelta

import pytest

from mainspring.core.job import State
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.stores.records import JobFilter
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import SEND, crowd, new
from tests.stores.postgres_wires import on_real_time

OTHER = Name("", "other")


@on_real_time
async def test_a_key_that_is_no_text_under_a_limit_by_key_hinders_no_other_job(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[SEND, OTHER])
        await node.store.declare([Gate(scope=Scope.KEY, name=str(SEND), concurrency=1)])
        await node.store.enqueue([new(key="k"), new(key="l"), new(OTHER)])
        await those.sql("UPDATE mainspring.jobs SET key = '\\xff'::bytea WHERE key = 'k'::bytea")
        given = await node.take(5)

        assert sorted((str(one.claim.job.task), one.key, one.unreadable is not None) for one in given) == [
            ("mail.send", "l", False),
            ("mail.send", "\N{REPLACEMENT CHARACTER}", True),
            ("other", None, False),
        ]
        await node.store.enqueue([new(key="l")])
        assert await node.take(5) == []
        await node.settle(given)
        assert len(await node.take(5)) == 1


@on_real_time
async def test_parked_jobs_whose_key_is_no_text_are_claimed_one_after_the_other(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.declare([Gate(scope=Scope.KEY, name=str(SEND), concurrency=1)])
        await node.store.enqueue([new(key="k") for _ in range(100)])
        await those.sql("UPDATE mainspring.jobs SET key = '\\xff'::bytea")
        claimed = 0
        for _ in range(200):
            given = await node.take(5)
            assert len(given) <= 1
            await node.settle(given)
            claimed += len(given)
            await node.store.mend(1000)
            if claimed == 100:
                break

        assert claimed == 100


@on_real_time
async def test_a_task_name_that_cannot_be_parsed_hinders_no_other_task(
    postgres: Server, postgres_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[SEND, OTHER])
        await node.store.enqueue([new(), new(OTHER), new(OTHER)])
        await those.sql("UPDATE mainspring.jobs SET task = 'mail send' WHERE task = 'mail.send'")
        given = [*await node.take(1), *await node.take(5)]
        page = await node.store.list_jobs(JobFilter(states=(State.READY,)))

        assert [one.claim.job.task for one in given] == [OTHER, OTHER]
        assert await node.store.unknown_tasks(timedelta(0)) == ()
        assert [str(one.job.task) for one in page.jobs] == ["mail\N{REPLACEMENT CHARACTER}send"]
        assert caplog.text.count("'mail send'") == 1
