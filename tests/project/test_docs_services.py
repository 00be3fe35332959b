"""What the pages about services show really runs, and what they list is what there is."""

from pathlib import Path

import pytest

from mainspring.client.services import ServiceContext, ServiceOptions
from tests.project.test_docs_code import blocks, pytest_on
from tests.project.test_docs_reference import listed, mentioned, names, public, rows, section


@pytest.mark.slow
def test_the_how_to_about_services_works_and_its_test_would_fail_without_the_fence(tmp_path: Path) -> None:
    page = tmp_path / "test_how_to.py"
    text = "\n".join(blocks("docs/how-to/run-services.md"))
    page.write_text(text, encoding="utf-8")
    assert "1 passed" in pytest_on(page)
    assert list(tmp_path.glob("*.db*")) == [], "jobs are kept in memory, and the export is the test's own"

    assert "AND term <= ?" in text
    page.write_text(text.replace("AND term <= ?", "AND 0 <= ?"), encoding="utf-8")
    with pytest.raises(AssertionError, match="1 failed"):
        pytest_on(page)


def test_every_option_of_a_service_is_listed() -> None:
    members = {name for name in listed("jobs.md", "Services") if name.startswith("ctx.")}
    assert listed("jobs.md", "Services") - members == set(ServiceOptions.__annotations__)
    assert {name.removeprefix("ctx.") for name in members} == public(ServiceContext)


def test_services_are_among_the_members_of_an_app() -> None:
    assert any("@app.service" in names(first) for first, *_ in rows(section("jobs.md", "The app")))
    assert "singleton" in mentioned((Path(__file__).parents[2] / "docs/how-to/run-services.md").read_text("utf-8"))
