"""The jobs that a handle records for a node: from its first claim on, and when all of them are looked up."""

import pytest

from mainspring.errors import NodeGone
from mainspring.stores.postgres.holdings import Holdings
from mainspring.stores.postgres.verb import Verb
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import crowd, new
from tests.stores.postgres_wires import on_real_time


def looks(holdings: Holdings, since: int, until: int) -> list[int]:
    """Renew every second, and return the seconds at which a look at all jobs is due."""
    return [second for second in range(since, until) if holdings.begin_renewal(second)[2]]


def test_all_jobs_are_looked_up_again_within_30_s_of_a_look_that_failed() -> None:
    holdings = Holdings()
    assert holdings.begin_renewal(0.0)[2]
    holdings.begin_look()
    holdings.fail_look(5.0)

    due = looks(holdings, 5, 60)

    assert 5 < due[0] < 30, "not at once: a renewal waits for its look"


def test_looks_that_succeed_take_a_twentieth_of_the_time() -> None:
    holdings = Holdings()
    holdings.begin_renewal(0.0)
    holdings.begin_look()
    holdings.end_look(3.0, 3.0)

    assert looks(holdings, 3, 90)[0] == 63


def renewed(holdings: Holdings) -> None:
    """Renew twice, so that no look at all jobs is due for some time."""
    holdings.begin_renewal(0.0)
    holdings.begin_look()
    holdings.end_look(0.0, 0.0)
    assert looks(holdings, 1, 4) == []


def test_all_jobs_are_looked_up_at_the_first_renewal_after_a_claim_without_an_answer() -> None:
    holdings = Holdings()
    renewed(holdings)
    holdings.doubt()

    assert looks(holdings, 4, 5) == [4]


def test_all_jobs_are_looked_up_at_the_first_renewal_after_a_claim_that_was_tried_again() -> None:
    holdings = Holdings()
    renewed(holdings)
    failures: list[str] = []
    claim = holdings.tried(nothing, lambda: failures.append("failed"))
    claim()
    assert not failures
    assert looks(holdings, 4, 5) == []
    claim()

    assert looks(holdings, 5, 6) == [5]
    assert failures == ["failed"]


def nothing() -> Verb[None]:
    yield from ()


def test_a_claim_that_loses_its_answer_during_a_look_at_all_jobs_makes_the_next_one_due() -> None:
    holdings = Holdings()
    renewed(holdings)
    holdings.begin_look()
    holdings.doubt()
    holdings.end_look(4.0, 0.0)

    assert looks(holdings, 5, 6) == [5]


@on_real_time
async def test_jobs_are_recorded_for_a_node_that_has_not_renewed_yet(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new()])
        (delivery,) = await node.take()

        _, jobs, _ = node.store._holdings[node.id].begin_renewal(0.0)

        assert jobs == [delivery.claim.job.id]


@on_real_time
async def test_nothing_is_recorded_for_a_node_that_is_gone(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new()])
        await node.store.declare_dead(node.id, node.term)
        with pytest.raises(NodeGone):
            await node.take()

        assert node.id not in node.store._holdings
