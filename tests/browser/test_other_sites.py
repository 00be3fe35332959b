"""What pages of other sites can have a real browser do to the dashboard: lead to it, and change nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from mainspring.core.job import State
from mainspring.web import TokenFile
from tests.browser.conftest import PATIENCE, Program

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

EVIL = "http://evil.example/"
TOKEN = "0123456789-abcdefghij-xyz"  # noqa: S105 - of nobody
HTML = """<!doctype html><title>evil</title>
<form method="post" action="{base}do/jobs.cancel"><input name="id" value="{id}"><button id="post">post</button></form>
<a id="link" href="{base}job?id={id}">look</a>
"""


@contextmanager
def visited(browser: Browser, program: Program) -> Iterator[Page]:
    """A page in a browser of its own, while a program is served."""
    base = program.start()
    try:
        context = browser.new_context(base_url=base)
        context.set_default_timeout(PATIENCE * 1000)
        yield context.new_page()
        context.close()
    finally:
        program.stop()


def lure(page: Page, base: str, job: str) -> None:
    """Have the browser show another site's page, which is never asked for from the net."""
    html = HTML.format(base=base, id=job)
    page.route(f"{EVIL}**", lambda route: route.fulfill(body=html, content_type="text/html"))
    page.goto(EVIL)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"anna admin {TOKEN}\n")
    return path


@pytest.mark.parametrize("with_token", [False, True])
def test_another_site_changes_nothing_and_may_lead_here(browser: Browser, tokens: Path, with_token: bool) -> None:
    program = Program(auth=TokenFile(tokens) if with_token else None)
    with visited(browser, program) as page:
        page.goto("")
        base = page.url
        if with_token:
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator(".who .name")).to_have_text("anna")
        job = program.enqueue("film.encode")
        lure(page, base, str(job.id))
        with page.expect_response(lambda answer: "do/jobs.cancel" in answer.url) as posted:
            page.locator("#post").click()
        assert posted.value.status == (401 if with_token else 403)  # the cookie was not even sent
        assert program.do(job.state) in {State.READY, State.RUNNING}
        lure(page, base, str(job.id))
        page.locator("#link").click()
        expect(page.locator("h1")).to_contain_text("film.encode")
