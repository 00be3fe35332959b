"""Records as JSON: the names are those of the records, the values are what programs can read."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mainspring.cli.plain import plain
from mainspring.client.causes import why
from mainspring.core.backoff import Backoff
from mainspring.core.job import Cause, Job, JobId, NodeId, State
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError
from mainspring.stores.records import (
    Facts,
    JobView,
    NodeRecord,
    NodeView,
    Order,
    Process,
    Progress,
    QueueView,
    SetConcurrency,
)

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


def read(value: object) -> dict[str, object]:
    found = json.loads(json.dumps(plain(value)))
    assert isinstance(found, dict)
    return found


def test_a_job_stands_at_the_top_of_its_view_under_the_names_of_its_fields() -> None:
    view = JobView(job=JOB, payload=b'{"v":1,"args":{"photo":7}}', enqueued_at=NOON, facts=Facts(tags=("a",)))
    found = read(view)
    assert set(found) == (set(Job.__struct_fields__) | set(JobView.__struct_fields__)) - {"job"} | {"why"}
    assert found["id"] == str(ID)
    assert found["task"] == "billing:invoices.send"
    assert (found["state"], found["cause"]) == ("failed", "poison")
    assert found["why"] == why(JOB)
    assert found["run_at"] == "2026-01-01T12:00:00Z"
    assert found["payload"] == {"v": 1, "args": {"photo": 7}}
    assert found["facts"] == {
        "tags": ["a"],
        "parent": None,
        "owner": None,
        "traceparent": None,
        "slot": None,
        "redact": [],
    }
    assert found["backoff"] == read(JOB.backoff)
    assert read(JOB.backoff)["initial"] == 90.0


def test_what_is_stored_and_is_no_json_is_shown_and_not_hidden() -> None:
    assert read(JobView(job=JOB, payload=b"\xff", enqueued_at=NOON))["payload"] == {"base64": "/w=="}


def test_a_node_stands_at_the_top_of_its_view() -> None:
    node = NodeRecord(
        id=NodeId("here-1"),
        process=Process(host="here", pid=1, started="5"),
        tasks=frozenset({Name("", "b"), Name("", "a")}),
    )
    found = read(NodeView(node=node, term=1, counter=2, alive=True, joined_at=NOON, renewed_at=NOON))
    assert (found["id"], found["alive"], found["tasks"]) == ("here-1", True, ["a", "b"])
    assert found["process"] == {"host": "here", "pid": 1, "started": "5"}


def test_an_order_says_of_which_kind_it_is() -> None:
    found = read(Order(id=3, node=NodeId("here-1"), order=SetConcurrency(5), given_at=NOON))
    assert found["order"] == {"type": "concurrency", "places": 5}


def test_plain_values_stay_what_they_are() -> None:
    assert plain([None, True, 1, 1.5, "text", timedelta(milliseconds=1500)]) == [None, True, 1, 1.5, "text", 1.5]
    assert read(QueueView(name="mail", waiting=1, running=0)) == {
        "name": "mail",
        "waiting": 1,
        "running": 0,
        "paused": None,
    }
    assert read(Progress(50.0, "half")) == {"percent": 50.0, "message": "half"}
    assert read(AttemptError(type="ValueError", message="no"))["message"] == "no"
