"""schemathesis asks whatever the description allows, and much that it does not: nothing is answered with a 500.

It asks a shop in which there is something of everything, and a node at work, in each store that is always there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from mainspring.web.application import described
from mainspring.web.groups import ALL as ROUTES
from mainspring.web.routes import AnyRoute
from tests import tier
from tests.web.conftest import BASE
from tests.web.served import Kept

pytestmark = pytest.mark.slow

EXAMPLES = 25 if tier.FULL else 5  # of each kind for each route
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
FIRST = object()
CERTAIN: dict[str, dict[str, object]] = {
    "schedules.backfill": {"name": "nightly", "since": FIRST, "until": FIRST},
    "control.add": {"kind": "periodic"},
    "jobs.enqueue": {"task": "add", "args": {"a": 1}},
}
"""What makes sense and is asked in any case, where so much has to fit together that chance may never find it."""
NOT_ALWAYS = {"control.cancel", "nodes.stacks", "audit.list", "queues.limit"}
"""What an earlier question may have done already, takes longer than it is given, or needs a store that plays a role."""


@pytest.fixture(scope="module", params=["memory", pytest.param("sqlite", marks=pytest.mark.full)])
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    place: Path = tmp_path_factory.mktemp("shop") / "jobs.db"
    with Kept("memory://" if request.param == "memory" else f"sqlite:///{place}") as found:
        yield found


# By chance nobody would find a name that is there, or an expression that is one.
def known(route: AnyRoute, there: Mapping[str, list[Any]]) -> dict[str, st.SearchStrategy[Any]]:
    """Say what makes sense in the fields of a route."""
    group = route.name.partition(".")[0]
    ids = {
        "nodes": there["node"],
        "outboxes": there["letters"],
        "jobs.retry": there["over"],
        "jobs.cancel": there["waiting"],
        "jobs.run_now": there["waiting"],
    }.get(
        route.name if route.name in {"jobs.retry", "jobs.cancel", "jobs.run_now"} else group,
        there["waiting"] + there["over"],
    )
    named = {"queues": ["default", "closed"], "schedules": ["nightly", "often", "by-hand"]}.get(group, ["x"])
    which = st.fixed_dictionaries(
        {},
        optional={
            "state": st.sampled_from(["failed", "ready,retrying", "cancelled", "nonsense"]),
            "task": st.sampled_from(["add", "fail", "quiet"]),
            "since": st.sampled_from(["1h", "2026-01-01T00:00:00Z", "x", "0001-01-01T00:00:00+14:00"]),
            "argument": st.sampled_from(["a=1", "a", "password", "b.0", 'a="x', "a=" + "[" * 900]),
            "error": st.sampled_from(["no", "%", "_"]),
        },
    )
    return {
        "qname": st.sampled_from(["photos:sweep", "photos.sweep", "nightly"]),
        "kind": st.sampled_from(["periodic", "cron", "once", "manual"]),
        "arg": st.sampled_from([None, 60, "60", 10**12, 0.5, "*/5 * * * *", "2090-01-01T00:00:00Z"]),
        "task": st.sampled_from(
            {"control": ["photos:sweep"], "breakers": ["fail"]}.get(group, ["add", "nap", "quiet"])
        ),
        "args": st.sampled_from([{}, {"width": 1}, {"name": "x"}, {"a": 1}, {"a": 10**30}]),
        "id": st.sampled_from(ids),
        "ids": st.lists(st.sampled_from(ids), min_size=1, max_size=3),
        "which": which,
        "name": st.sampled_from(named),
        "outbox": st.just("orders"),
        "partition": st.sampled_from([0, 1, 2]),
        "since": st.sampled_from(there["since"]),
        "until": st.sampled_from(there["until"]),
        "seconds": st.just(0.01),
        "places": st.integers(1, 50),
        "delay": st.sampled_from(["1h", "x", "-1s"]),
        "queue": st.sampled_from(["default", "closed"]),
        "state": st.sampled_from(["failed", "pending", "ready,retrying", "discarded", ","]),
        "argument": st.sampled_from(["a=1", "password", "a..b"]),
        "priority": st.integers(0, 100),
    }


@pytest.mark.parametrize("kind", schemathesis.GenerationMode, ids=lambda kind: str(kind.value))
@pytest.mark.parametrize("route", described(ROUTES), ids=lambda route: route.name)
def test_no_question_is_answered_with_an_error_of_ours(
    kept: Kept, route: AnyRoute, kind: schemathesis.GenerationMode
) -> None:
    schema = schemathesis.openapi.from_asgi(f"{BASE}/openapi.json", kept)
    answers: Counter[int] = Counter()
    well_formed = kind is schemathesis.GenerationMode.POSITIVE
    fields = {field.name: field.required for field in msgspec.structs.fields(route.takes)}
    there = kept.refill()
    sensible = {name: one for name, one in known(route, there).items() if name in fields}
    if route.name == "jobs.bulk":
        sensible.pop("ids")  # it takes either
    if route.name in {"outboxes.replay", "outboxes.discard"}:
        sensible.pop("ids")
    needed = {name: one for name, one in sensible.items() if fields[name]}
    others = {name: one for name, one in sensible.items() if not fields[name]}

    operation = schema[route.path][route.method]

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
    @given(
        case=operation.as_strategy(generation_mode=kind),
        said=st.none() | st.fixed_dictionaries(needed, optional=others),
    )
    def ask(case: Any, said: dict[str, object] | None) -> None:  # noqa: ANN401 - schemathesis' own
        if said is not None and well_formed:
            if route.name == "jobs.bulk":
                said = {"action": "cancel", "dry_run": True, "which": {}, **said}
            if route.name in {"outboxes.replay", "outboxes.discard"}:
                said = {"outbox": "orders", **said}
            if route.name == "jobs.enqueue":
                said = {**said, "task": "add", "args": {"a": 1}}
            if route.name == "control.add" and said["kind"] == "periodic":
                said = {**said, "arg": 60, "qname": "photos:often", "task": "photos:sweep", "args": {}}
            if route.name == "queues.limit":
                said = {"concurrency": 5, **said}
            if route.changes:
                case.body = said
            else:
                case.query = {name: str(value) for name, value in said.items()}
        # Its addresses are relative to where it is, which schemathesis does not understand.
        response = case.call(base_url=f"http://localhost{BASE}")
        answers[response.status_code] += 1
        case.validate_response(
            response,
            checks=CHECKS,
            excluded_checks=[negative_data_rejection] if response.status_code == 413 else [],  # which it does not know
        )

    if well_formed and route.name in CERTAIN:
        certain = {name: there[name][0] if value is FIRST else value for name, value in CERTAIN[route.name].items()}
        ask = example(case=operation.Case(media_type="application/json"), said=certain)(ask)
    ask()
    if well_formed and route.name not in NOT_ALWAYS:
        assert answers[200], answers
