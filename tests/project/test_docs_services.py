"""What the pages about services show really runs, and what they list is what there is."""

from pathlib import Path

import pytest

from mainspring.client.services import ServiceContext, ServiceOptions
from tests.project.test_docs_code import blocks, run_tests
from tests.project.test_docs_reference import listed, mentioned, names, public, rows, section


@pytest.mark.slow
def test_the_how_to_about_services_works_and_its_test_would_fail_without_the_fence(tmp_path: Path) -> None:
    page = "\n".join(blocks("docs/how-to/run-services.md"))
    assert "AND term <= ?" in page
    unfenced = page.replace("AND term <= ?", "AND 0 <= ?")
    assert run_tests(tmp_path, page=page, unfenced=unfenced) == {"page": {"PASSED": 1}, "unfenced": {"FAILED": 1}}


def test_every_option_of_a_service_is_listed() -> None:
    members = {name for name in listed("jobs.md", "Services") if name.startswith("ctx.")}
    assert listed("jobs.md", "Services") - members == set(ServiceOptions.__annotations__)
    assert {name.removeprefix("ctx.") for name in members} == public(ServiceContext)


def test_services_are_among_the_members_of_an_app() -> None:
    assert any("@app.service" in names(first) for first, *_ in rows(section("jobs.md", "The app")))
    assert "singleton" in mentioned((Path(__file__).parents[2] / "docs/how-to/run-services.md").read_text("utf-8"))
