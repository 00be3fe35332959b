"""A node that is declared dead amid a claim gets nothing: nobody would notice soon what it holds (port, claim 8)."""

from collections.abc import Iterator, Sequence

import pytest

from mainspring import Mainspring
from mainspring.core.job import State
from mainspring.errors import NodeGone
from mainspring.stores.postgres import claim, nodes
from mainspring.stores.postgres.claim_cache import ClaimCache
from mainspring.stores.postgres.drive import drive_sync
from mainspring.stores.postgres.statements import Statement
from mainspring.stores.records import ClaimRequest
from tests.jobs.conftest import Ghost
from tests.servers.postgres import Row, Server
from tests.stores.postgres_verbs import Verbs
from tests.stores.postgres_wires import on_real_time


@pytest.fixture
def schema(own_postgres: Server) -> Iterator[str]:
    with own_postgres.schema() as name:
        yield name


@on_real_time
async def test_a_node_that_dies_between_the_two_statements_of_its_claim_gets_nothing(
    own_postgres: Server, schema: str
) -> None:
    app = Mainspring(f"{own_postgres.dsn()}?schema={schema}")

    @app.task
    async def task() -> None:
        """Never runs."""

    async with app:
        job = await task.enqueue()
        ghost = await Ghost.join(app)
        request = ClaimRequest(node=ghost.id, term=ghost.term, tasks=ghost.tasks)
        with Verbs(own_postgres.dsn(), schema) as verbs:

            def ask(statement: Statement, values: tuple[object, ...]) -> Sequence[Row]:
                if statement.name in {"take", "grab_task"}:
                    verbs.run(nodes.declare_dead(None, ghost.id, ghost.term, None))
                return verbs.ask(statement, values)

            with pytest.raises(NodeGone):
                drive_sync(ask, claim.claim(None, request, ClaimCache()))
        assert (await job.refresh()).job.state is State.READY
