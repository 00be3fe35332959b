"""What a page keeps while it lives: where the focus is, what is scrolled, ticked and said; and what it lets go of."""

import asyncio
import re

import pytest
from playwright.sync_api import Browser, Route, expect

from mainspring import Breaker, Context, Every
from mainspring.core.job import State
from mainspring.web.pages import ALL
from tests.browser.conftest import Program, Seen, seen
from tests.browser.test_dashboard import failed, until

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

LONG = "a_very_long_name_" * 11
RENEWED = """times => new Promise((done) => {
  document.addEventListener("htmx:afterSwap", () => { times -= 1; if (times === 0) done(); });
})"""

LOOK_AWAY = """() => {
  Object.defineProperty(document, "hidden", { value: true, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
LOOK_AGAIN = """() => { delete document.hidden; document.dispatchEvent(new Event("visibilitychange")); }"""


def renewed(see: Seen, times: int) -> None:
    """Wait until the page was brought up to date so often."""
    see.page.evaluate(RENEWED, times)


def focus(see: Seen) -> str:
    return str(see.page.evaluate("document.activeElement.textContent.trim()"))


@pytest.mark.parametrize("path", ["queues", "nodes", "job"])
def test_a_button_keeps_the_focus_while_its_page_is_renewed(see: Seen, path: str) -> None:
    running = see.program.enqueue("film.encode")
    until(see, running.id, State.RUNNING)
    see.go(f"job?id={running.id}" if path == "job" else path)
    button = see.page.locator("main button", has_text={"queues": "Limit", "nodes": "Places", "job": "Clone"}[path]).last
    button.focus()
    row = "document.activeElement.closest('tr')?.querySelector('a').id"
    before = focus(see), see.page.evaluate(row)
    renewed(see, 2)
    assert (focus(see), see.page.evaluate(row)) == before


def test_the_focus_never_comes_to_stand_on_another_button(see: Seen) -> None:
    see.go("queues")
    see.page.locator("tr", has_text="mail").get_by_role("button", name="Pause").press("Enter")
    see.page.keyboard.press("Enter")
    expect(see.page.locator("tr", has_text="mail").get_by_role("button", name="Resume")).to_be_visible()
    see.until(lambda: focus(see) == "mail", lambda: focus(see))


def test_what_is_read_stays_where_it_is_and_what_is_followed_goes_on(browser: Browser) -> None:
    program = Program()

    @program.app.task(name="talk")
    async def talk(ctx: Context) -> None:
        for number in range(10_000):
            ctx.log(f"word {number}")
            await asyncio.sleep(0 if number < 60 else 0.2)

    base = program.start()
    try:
        with seen(browser, program, base) as see:
            job = program.enqueue("talk")
            until(see, job.id, State.RUNNING)
            see.go(f"job?id={job.id}")
            log = see.page.locator(".log")
            expect(log).to_contain_text("word 60")
            log.evaluate("one => { one.scrollTop = 100; }")
            renewed(see, 2)
            assert log.evaluate("one => one.scrollTop") == 100
            log.evaluate("one => { one.scrollTop = one.scrollHeight; }")
            renewed(see, 2)
            assert log.evaluate("one => one.scrollHeight - one.scrollTop - one.clientHeight") < 2
            assert see.complaints == []
    finally:
        program.stop()


def test_a_page_that_nobody_looks_at_holds_no_connection(see: Seen) -> None:
    """A browser has six to one server, and the seventh page would not load."""
    ticks = see.program.board.ticks
    see.go("jobs")
    see.until(lambda: len(ticks) == 1)
    see.page.evaluate(LOOK_AWAY)
    see.until(lambda: len(ticks) == 0)
    job = see.program.enqueue("mail.send", "anna")
    see.page.wait_for_timeout(1500)
    assert see.page.locator(f"#job-{job.id}").count() == 0
    see.page.evaluate(LOOK_AGAIN)
    expect(see.page.locator(f"#job-{job.id}")).to_be_visible()
    see.until(lambda: len(ticks) == 1)
    expect(see.page.locator("#live-word")).to_have_text("live")


def test_a_failed_job_that_is_retried_is_seen_to_run(see: Seen) -> None:
    (id_,) = failed(see)
    see.go(f"job?id={id_}")
    see.page.get_by_role("button", name="Retry").click()
    expect(see.page.locator("dl.facts")).to_contain_text("1 granted")


def test_a_page_of_older_jobs_is_renewed_when_something_was_done_on_it(see: Seen) -> None:
    failed(see, 3)
    see.go("jobs?limit=1")
    see.page.get_by_role("link", name="Older").click()
    see.page.wait_for_url("**after=**")
    see.page.locator("#all").check()
    see.page.locator("[data-bulk=retry]").click()
    see.page.locator("#bulk-go").click()
    expect(see.page.locator("#bulk-text")).to_have_text("1 done.")
    see.page.locator("#bulk-stop").click()
    expect(see.page.locator("#rows .of")).to_have_text("/2")


def test_a_job_that_is_deleted_is_gone_from_its_page(browser: Browser, program: tuple[Program, str]) -> None:
    with seen(browser, *program) as see:  # the browser complains of the page that is not there any more
        (id_,) = failed(see)
        see.go(f"job?id={id_}")
        see.page.get_by_role("button", name="Delete").click()
        see.page.locator("#ask").get_by_role("button", name="Yes").click()
        expect(see.page.locator("h1")).to_have_text("It is gone")
        expect(see.page.locator("#live-word")).to_have_text("live")
        see.page.get_by_role("link", name="To the others").click()
        see.page.wait_for_url("**/jobs")


def test_what_takes_long_is_answered_although_its_page_is_renewed_meanwhile(see: Seen) -> None:
    running = see.program.enqueue("film.encode")  # its progress makes for a tick each second
    until(see, running.id, State.RUNNING)

    def late(route: Route) -> None:
        see.page.wait_for_timeout(3000)
        route.continue_()

    see.page.route("**/do/*", late)
    see.go("nodes")
    see.page.get_by_role("button", name="Quiet").click()
    expect(see.page.locator(".toast")).to_have_text("The node is asked to take nothing new.")
    expect(see.page.locator(".state.is-quiet")).to_be_visible()


def test_what_one_is_asked_about_is_done_although_news_were_on_their_way(see: Seen) -> None:
    see.program.enqueue("film.encode")
    see.go("queues")
    expect(see.page.locator("#live-word")).to_have_text("live")
    late: list[Route] = []

    def keep(route: Route) -> None:
        late.append(route)

    see.page.route(re.compile("part="), keep)
    see.until(lambda: bool(late))
    see.page.locator("tr", has_text="mail").get_by_role("button", name="Pause").click()
    with see.page.expect_response(re.compile("part=")):
        late[0].continue_()
    see.page.wait_for_timeout(200)
    see.page.locator("#ask-yes").click()
    expect(see.page.locator(".toast")).to_have_text("The queue is paused; what runs goes on.")
    see.page.unroute_all()


def test_who_clicks_twice_has_it_done_once(see: Seen) -> None:
    (id_,) = failed(see)
    see.go(f"job?id={id_}")
    see.page.get_by_role("button", name="Clone").dblclick()
    expect(see.page.locator(".toast")).to_have_text("A copy of the job was enqueued.")
    see.page.wait_for_timeout(500)
    assert len(see.program.do(lambda: see.program.app.jobs(task="mail.send")).jobs) == 2


def test_what_is_copied_can_be_pasted_over_plain_http_too(see: Seen) -> None:
    (id_,) = failed(see)
    see.go(f"job?id={id_}")
    see.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    see.page.get_by_role("button", name="Copy the id").click()
    expect(see.page.locator(".copy.is-done")).to_be_visible()
    see.go("jobs")
    see.page.locator("[name=task]").focus()
    see.page.keyboard.press("Control+V")
    expect(see.page.locator("[name=task]")).to_have_value(id_)


def test_a_box_that_searches_keeps_the_focus_and_the_way_back_unticks_it(see: Seen) -> None:
    failed(see)
    see.go("jobs")
    see.page.locator("#state-failed").focus()
    see.page.keyboard.press("Space")
    see.page.wait_for_url("**/jobs?state=failed")
    expect(see.page.locator("#state-failed")).to_be_focused()
    see.page.keyboard.press("Tab")
    see.page.go_back()
    see.page.wait_for_url("**/jobs")
    expect(see.page.locator("#state-failed")).not_to_be_checked()


def test_every_stop_of_the_tabulator_can_be_seen(see: Seen) -> None:
    failed(see)
    see.go("jobs")
    at = """() => { const one = document.activeElement, box = one.getBoundingClientRect();
      const shown = one.matches(".chip input") ? one.nextElementSibling : one;
      return [one.tagName, one.id, shown.checkVisibility({opacityProperty: true}) && box.width > 0, box.top >= 0]; }"""
    for _ in range(40):
        see.page.keyboard.press("Tab")
        tag, id_, is_shown, is_within = see.page.evaluate(at)
        if tag == "BODY":
            break
        assert is_shown, (tag, id_)
        assert is_within, (tag, id_)


def test_names_that_are_very_long_are_wider_than_no_screen(browser: Browser) -> None:
    program = Program()
    task, schedule = f"t{LONG}"[:190], f"s{LONG}"[:120]

    @program.app.task(name=task, queue=f"q{LONG}"[:100], breaker=Breaker(threshold=3))
    async def long(ctx: Context) -> None:
        ctx.progress(10, LONG)
        await asyncio.sleep(1000)

    program.app.schedule(Every("1h"), name=schedule)(long)
    program.app.outbox(f"o{LONG}"[:60], partitions=2)
    base = program.start()
    try:
        job = program.enqueue(task)
        (node,) = program.do(program.app.store.nodes)
        about = (f"job?id={job.id}", f"schedule?name={schedule}", f"node?id={node.node.id}")
        for width in (360, 1280):
            with seen(browser, program, base, width=width) as see:
                until(see, job.id, State.RUNNING)
                for path in (*(page.path for page in ALL if page.icon), *about):
                    see.go(path)
                    assert see.page.evaluate("document.documentElement.scrollWidth") <= width, path
                see.go(about[0])
                assert see.box(".progress progress")["width"] > 100
                assert see.complaints == []
    finally:
        program.stop()
