"""schemathesis asks whatever the description allows, and much that it does not: nothing is answered with a 500."""

from collections import Counter
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from mainspring import Mainspring
from mainspring.web import Identity, api
from mainspring.web.application import described
from mainspring.web.control import ROUTES
from mainspring.web.routes import AnyRoute
from tests.web.conftest import BASE, Photos, photo_app

pytestmark = pytest.mark.slow

EXAMPLES = 40  # of each kind for each route
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]


# By chance nobody would find a name that is there, or an expression that is one.
KNOWN = st.fixed_dictionaries(
    {"qname": st.sampled_from(["photos:sweep", "photos.sweep", "nightly"])},
    optional={
        "kind": st.sampled_from(["periodic", "cron", "once", "manual"]),
        "arg": st.sampled_from([None, 60, "60", 10**12, 0.5, "*/5 * * * *", "2090-01-01T00:00:00Z"]),
        "task": st.just("photos:sweep"),
        "args": st.sampled_from([{}, {"width": 1}, {"name": "x"}, {"width": 10**30}]),
    },
)


@pytest.mark.parametrize("kind", schemathesis.GenerationMode, ids=lambda kind: str(kind.value))
@pytest.mark.parametrize("route", described(ROUTES), ids=lambda route: route.name)
def test_no_question_is_answered_with_an_error_of_ours(route: AnyRoute, kind: schemathesis.GenerationMode) -> None:
    app = photo_app(Mainspring("memory://"), Photos())
    asgi = api(app, auth=lambda _: Identity.of("anna", "admin"))
    schema = schemathesis.openapi.from_asgi(f"{BASE}/openapi.json", asgi)
    answers: Counter[int] = Counter()
    well_formed = kind is schemathesis.GenerationMode.POSITIVE
    fields = {field.name for field in msgspec.structs.fields(route.takes)}

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(case=schema[route.path][route.method].as_strategy(generation_mode=kind), known=st.none() | KNOWN)
    def ask(case: Any, known: dict[str, object] | None) -> None:  # noqa: ANN401 - schemathesis' own
        if known and well_formed and "qname" in fields:
            wanted = {"kind": "manual", **known}
            case.body = {name: value for name, value in wanted.items() if name in fields}
        # Its addresses are relative to where it is, which schemathesis does not understand.
        response = case.call(base_url=f"http://localhost{BASE}")
        answers[response.status_code] += 1
        case.validate_response(
            response,
            checks=CHECKS,
            excluded_checks=[negative_data_rejection] if response.status_code == 413 else [],  # which it does not know
        )

    ask()
    app.close_sync()
    if well_formed and route.name != "control.cancel":
        assert answers[200]
