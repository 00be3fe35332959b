"""The description says what there is: the routes of the table, and the records as they are written."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

import jsonschema_rs
import pytest
from msgspec import Struct

from mainspring import Breaker, Cron, Every
from mainspring.client.clocks import ShownSlot
from mainspring.client.control import Row
from mainspring.client.plain import plain
from mainspring.client.statements import Iterated
from mainspring.client.timeline import Moment
from mainspring.client.views import run_view, schedule_view, slot_view
from mainspring.core.backoff import Backoff
from mainspring.core.job import Cause, Job, JobId, NodeId, State
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError
from mainspring.core.schedule import Plan, Run, Schedule, Template
from mainspring.stores.outbox import Letter, LetterState, Message
from mainspring.stores.overview import Entry, NewEntry
from mainspring.stores.records import (
    AttemptView,
    BreakerView,
    Facts,
    JobView,
    LogLine,
    Look,
    NodeRecord,
    NodeView,
    Pause,
    Process,
    Progress,
    QueueView,
)
from mainspring.web.application import described
from mainspring.web.described import Described
from mainspring.web.groups import ALL as ROUTES
from tests.web.conftest import Ask

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ID = JobId(UUID("0190f000-0000-7000-8000-000000000001"))
JOB = Job(
    id=ID,
    task=Name("billing", "invoices.send"),
    state=State.FAILED,
    run_at=NOON,
    backoff=Backoff.fixed("90s"),
    max_attempts=3,
    cause=Cause.POISON,
)

TEMPLATE = Template(task=Name("", "a"), payload=b"{}", backoff=Backoff.fixed("90s"), max_attempts=3)
SCHEDULE = Schedule(
    name=Name("", "nightly"),
    plan=Plan(rule=Every("15m", start=NOON), template=TEMPLATE),
    created_at=NOON,
    cursor=NOON,
    next_at=NOON,
)
MESSAGE = Message(
    outbox="orders", partition=0, seq=1, number=1, payload=b"\xff", type="Order", key=None, published_at=NOON
)


def row(**changes: Any) -> Row:  # noqa: ANN401 - the fields of a row
    given: dict[str, Any] = {
        "qname": "a:b",
        "status": "idle",
        "consecutive_failures": 0,
        "next": NOON,
        "last_started": None,
        "last_finished": None,
        "last_state": None,
        "last_error": None,
        "rule": Every("15m"),
        "task": "a:b",
    }
    return Row(**{**given, **changes})


class Point(NamedTuple):
    x: int
    y: float


class Odd(Struct):
    """What no record has yet, and a next one may have."""

    point: Point
    pair: tuple[int, str]
    names: frozenset[Name]
    table: dict[str, timedelta]
    word: Literal["a", "b"]
    again: "Odd | None" = None


RECORDS = [
    row(),
    row(rule=Cron("0 9 * * *"), next=None, last_error="no", last_finished=NOON),
    Iterated(rows=3, errors=("no",)),
    JobView(job=JOB, payload=b'{"v":1}', enqueued_at=NOON, facts=Facts(tags=("a",)), progress=Progress(percent=5)),
    NodeView(
        node=NodeRecord(
            id=NodeId("n"), process=Process(host="h", pid=1, started="x"), tasks=frozenset({Name("", "a")})
        ),
        term=1,
        counter=2,
        joined_at=NOON,
        renewed_at=NOON,
        alive=True,
    ),
    QueueView(name="mail", waiting=1, running=2, paused=Pause(at=NOON)),
    schedule_view(Look(schedule=SCHEDULE, open=(ID,))),
    run_view(Run(id=ID, schedule=Name("", "nightly"), decided_at=NOON)),
    slot_view(ShownSlot(slot=NOON, local=NOON, zone="UTC")),
    Letter(id=1, message=MESSAGE, state=LetterState.PENDING, attempts=1, error="no", failed_at=NOON),
    Entry(id=1, at=NOON, entry=NewEntry(who="anna", action="jobs.retry")),
    Moment(at=NOON, word="enqueued"),
    Odd(point=Point(1, 2), pair=(1, "a"), names=frozenset(), table={"a": timedelta(seconds=1)}, word="a"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_are_what_their_schema_says(record: object) -> None:
    described = Described()
    schema = {**described.schema(type(record)), "components": {"schemas": described.components}}
    validator = jsonschema_rs.validator_for(schema)
    found = plain(record)
    assert isinstance(found, dict)
    assert list(validator.iter_errors(found)) == []
    name = next(iter(described.components))
    assert set(described.components[name]["properties"]) == set(found) == set(described.components[name]["required"])
    for field in found:
        assert not validator.is_valid({key: value for key, value in found.items() if key != field})


@pytest.mark.parametrize("kind", [AttemptView, BreakerView, LogLine, Look, AttemptError, Breaker])
def test_every_record_that_commands_print_can_be_described(kind: type) -> None:
    assert Described().schema(kind)["$ref"]


@pytest.mark.parametrize("kind", [complex, memoryview, "Row", type[int]])
def test_what_cannot_be_written_cannot_be_described(kind: object) -> None:
    with pytest.raises(TypeError, match="no JSON"):
        Described().schema(kind)


def test_two_records_of_one_name_have_two() -> None:
    class Row(Struct):
        mine: int

    described = Described()
    assert described.schema(type(row())) != described.schema(Row)
    assert len(described.components["Row"]["properties"]) == 10


async def test_the_description_is_of_the_routes_that_there_are(ask: Ask) -> None:
    found = (await ask("openapi.json")).json()
    there = {(route.path, route.method.lower()) for route in described(ROUTES)}
    told = {(path, method) for path, methods in found["paths"].items() for method in methods}
    assert told == there
    for route in described(ROUTES):
        operation = found["paths"][route.path][route.method.lower()]
        assert operation["x-permission"] == route.permission
        assert operation["summary"].endswith(".")
        assert ("requestBody" in operation) == route.changes


async def test_everything_that_the_description_refers_to_is_in_it(ask: Ask) -> None:
    found = (await ask("openapi.json")).json()

    def references(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [one for inner in value.values() for one in references(inner)]
        return [one for inner in value for one in references(inner)] if isinstance(value, list) else []

    assert references(found)
    for reference in references(found):
        place: Any = found
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def test_without_starlette_it_is_said_what_to_install() -> None:
    program = "import sys; sys.modules['starlette'] = None; import mainspring; import mainspring.web"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "mainspring.web needs Starlette and Jinja2: install Mainspring with the extra 'dashboard'"
    )
